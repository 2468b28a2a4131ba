//! The kernel that places elements, and how boxes of a plan are put into its tables.

use std::sync::{Arc, Mutex};

use penstock_codec::convert::Change;
use penstock_codec::gpu::{Axis, GpuError, Kernels, PlaceTable, Shuffles, Side};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::Context;
use penstock_sys::cuda::CUdeviceptr;

use crate::execute::memory::DeviceMemory;
use crate::{ElementMapping, StridedBox};

/// The kernels of a context, loaded at the first call. The context must be current or enterable.
pub(crate) fn kernels(context: &Arc<Context>) -> Result<Arc<Kernels>> {
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

pub(crate) fn gpu_error(context: &Context, error: &GpuError) -> Error {
    Error::gpu(error.code, error.text(context.driver.cuda))
}

/// A call of nvCOMP that failed.
pub(crate) fn gpu_failed(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Gpu, error.to_string())
        .remedy("read with decode=cpu, and see whether nvCOMP fits the CUDA driver")
}

pub(crate) fn table(change: Change, element: &ElementMapping, shuffled: u32) -> Result<PlaceTable> {
    let shuffles = Shuffles {
        source: shuffled,
        target: 0,
    };
    PlaceTable::new(change, element.length, shuffles).map_err(internal)
}

/// A plan's numbers were checked when it was made.
pub(crate) fn internal(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Internal, error.to_string())
}

/// Where the bytes of a decoded chunk are.
#[derive(Clone, Copy)]
pub(crate) struct Decoded {
    pub address: CUdeviceptr,
    pub length: u64,
    /// The chunk's bytes from here on.
    pub from: u64,
    /// Elements that are shuffled.
    pub shuffled: u64,
}

/// The axes of a box, the run of elements last. `source` makes of each stride in the chunk what it is
/// at the source.
fn axes(strided: &StridedBox, element: &ElementMapping, source: impl Fn(u64) -> i64) -> Vec<Axis> {
    let dims = strided.axes.iter().map(|dim| Axis {
        count: dim.count,
        source_stride: source(dim.chunk_stride),
        target_stride: dim.memory_stride,
    });
    let run = Axis {
        count: strided.run,
        source_stride: source(element.source),
        target_stride: element.target as i64,
    };
    dims.chain([run]).collect()
}

/// Adds the boxes of a job.
pub(crate) fn push(
    table: &mut PlaceTable,
    element: &ElementMapping,
    strided: &StridedBox,
    decoded: &Decoded,
    target: DeviceMemory,
) -> Result<()> {
    let axes = axes(strided, element, |stride| stride as i64);
    let source = Side {
        address: decoded.address,
        length: decoded.length,
        offset: strided.chunk + element.offset - decoded.from,
        shuffled: decoded.shuffled,
    };
    table
        .push(source, whole(target, strided.memory), &axes)
        .map_err(internal)
}

/// Adds boxes that all get the element at `address`.
pub(crate) fn push_fill(
    table: &mut PlaceTable,
    element: &ElementMapping,
    strided: &StridedBox,
    address: CUdeviceptr,
    target: DeviceMemory,
) -> Result<()> {
    let axes = axes(strided, element, |_| 0);
    let source = Side {
        address,
        length: element.source,
        offset: element.offset,
        shuffled: 0,
    };
    table
        .push(source, whole(target, strided.memory), &axes)
        .map_err(internal)
}

fn whole(target: DeviceMemory, offset: u64) -> Side {
    Side {
        address: target.start,
        length: target.length,
        offset,
        shuffled: 0,
    }
}
