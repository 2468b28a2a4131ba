//! The kernel that places elements, and how boxes of a plan are put into its tables.

use std::sync::{Arc, Mutex};

use penstock_codec::convert::Change;
use penstock_codec::gpu::{Axis, GpuError, Kernels, PlaceTable, Shuffles, Side};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::Context;
use penstock_sys::cuda::CUdeviceptr;

use super::DeviceTarget;
use crate::placement::Patch;
use crate::plan::Item;

/// The kernels of a context, loaded at the first call. The context must be current or enterable.
pub fn kernels(context: &Arc<Context>) -> Result<Arc<Kernels>> {
    static KNOWN: Mutex<Vec<(Arc<Context>, Arc<Kernels>)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some((_, kernels)) = known.iter().find(|(c, _)| Arc::ptr_eq(c, context)) {
        return Ok(Arc::clone(kernels));
    }
    let _entered = context.enter()?;
    // SAFETY: the context was just made current, so CUDA is initialised.
    let loaded = unsafe { Kernels::load(context.driver.cuda) };
    let kernels = Arc::new(loaded.map_err(|e| gpu_error(context, &e))?);
    known.push((Arc::clone(context), Arc::clone(&kernels)));
    Ok(kernels)
}

pub fn gpu_error(context: &Context, error: &GpuError) -> Error {
    Error::gpu(error.code, error.text(context.driver.cuda))
}

/// A call of nvCOMP that failed.
pub fn gpu_failed(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Gpu, error.to_string())
        .remedy("read with decode=cpu, and see whether nvCOMP fits the CUDA driver")
}

pub fn table(change: Change, item: &Item, shuffled: u32) -> Result<PlaceTable> {
    let shuffles = Shuffles {
        source: shuffled,
        target: 0,
    };
    PlaceTable::new(change, item.length, shuffles).map_err(internal)
}

/// A plan's numbers were checked when it was made.
pub fn internal(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Internal, error.to_string())
}

/// Where the bytes of a decoded chunk are.
#[derive(Clone, Copy)]
pub struct Decoded {
    pub address: CUdeviceptr,
    pub length: u64,
    /// The chunk's bytes from here on.
    pub from: u64,
    /// Elements that are shuffled.
    pub shuffled: u64,
}

/// The axes of a box, the run of elements last. `source` makes of each stride in the chunk what it is
/// at the source.
fn axes(patch: &Patch, item: &Item, source: impl Fn(u64) -> i64) -> Vec<Axis> {
    let dims = patch.dims.iter().map(|dim| Axis {
        count: dim.count,
        source_stride: source(dim.source_stride),
        target_stride: dim.target_stride,
    });
    let run = Axis {
        count: patch.run,
        source_stride: source(item.stored),
        target_stride: item.memory as i64,
    };
    dims.chain([run]).collect()
}

/// Adds the boxes of a job.
pub fn push(
    table: &mut PlaceTable,
    item: &Item,
    patch: &Patch,
    decoded: &Decoded,
    target: DeviceTarget,
) -> Result<()> {
    let axes = axes(patch, item, |stride| stride as i64);
    let source = Side {
        address: decoded.address,
        length: decoded.length,
        offset: patch.source + item.offset - decoded.from,
        shuffled: decoded.shuffled,
    };
    table
        .push(source, whole(target, patch.target), &axes)
        .map_err(internal)
}

/// Adds boxes that all get the element at `address`.
pub fn push_fill(
    table: &mut PlaceTable,
    item: &Item,
    patch: &Patch,
    address: CUdeviceptr,
    target: DeviceTarget,
) -> Result<()> {
    let axes = axes(patch, item, |_| 0);
    let source = Side {
        address,
        length: item.stored,
        offset: item.offset,
        shuffled: 0,
    };
    table
        .push(source, whole(target, patch.target), &axes)
        .map_err(internal)
}

fn whole(target: DeviceTarget, offset: u64) -> Side {
    Side {
        address: target.start,
        length: target.length,
        offset,
        shuffled: 0,
    }
}
