//! The kernel that places elements, and the conversion of a plan's boxes to its tables.

use std::sync::{Arc, Mutex};

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::{GpuError, Kernels, PlaceAxis, PlaceTable, Shuffles, Side};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::OwnContext;
use penstock_sys::cuda::CUdeviceptr;

use crate::execute::memory::DeviceMemory;
use crate::{ElementMapping, StridedBox};

/// Prepares a device for all later transfers: makes the engine's context and loads the kernels, which
/// takes some seconds the first time on a machine, until the driver has compiled them. No transfer
/// needs this call; the first ones take longer without it.
///
/// # Errors
/// Those of [`OwnContext::of`]; [`Kind::Gpu`] if the GPU does not load the kernels.
pub fn prepare(device: i32) -> Result<()> {
    let context = OwnContext::of(device)?;
    let kernels = kernels(&context)?;
    load_encoder(&context, &kernels)
}

/// Returns the kernels of a context, which the first call loads.
pub(crate) fn kernels(context: &Arc<OwnContext>) -> Result<Arc<Kernels>> {
    static KNOWN: Mutex<Vec<(Arc<OwnContext>, Arc<Kernels>)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().recover();
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

/// Returns whether the kernels that encode could be loaded.
pub(crate) fn has_encoder(context: &Arc<OwnContext>, kernels: &Kernels) -> bool {
    load_encoder(context, kernels).is_ok()
}

fn load_encoder(context: &OwnContext, kernels: &Kernels) -> Result<()> {
    let _entered = context.enter()?;
    // SAFETY: the context was just made current.
    unsafe { kernels.load_encoder() }.map_err(|e| gpu_error(context, &e))
}

pub(crate) fn gpu_error(context: &OwnContext, error: &GpuError) -> Error {
    Error::gpu(error.code, error.text(context.driver.cuda))
}

/// Returns the error of a failed call of nvCOMP.
pub(crate) fn gpu_failed(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Gpu, error.to_string())
        .remedy("read with decode=cpu, and check that nvCOMP supports the CUDA driver")
}

pub(crate) fn table(
    conversion: TypeConversion,
    element: &ElementMapping,
    shuffled: u32,
) -> Result<PlaceTable> {
    let shuffles = Shuffles {
        source: shuffled,
        target: 0,
    };
    PlaceTable::new(conversion, element.length, shuffles).map_err(internal)
}

/// Returns an internal error: a plan's numbers were checked when it was made.
pub(crate) fn internal(error: penstock_codec::CodecError) -> Error {
    Error::new(Kind::Internal, error.to_string())
}

/// The bytes of a decoded chunk on the GPU.
#[derive(Clone, Copy)]
pub(crate) struct Decoded {
    pub address: CUdeviceptr,
    pub length: u64,
    /// Offset in the chunk of the first byte there.
    pub from: u64,
    /// Number of shuffled elements.
    pub shuffled: u64,
}

/// Returns the axes of a box, the run of elements last. `source` turns a stride in the chunk into
/// one at the source.
fn axes(
    strided: &StridedBox,
    element: &ElementMapping,
    source: impl Fn(u64) -> i64,
) -> Vec<PlaceAxis> {
    let dims = strided.axes.iter().map(|dim| PlaceAxis {
        count: dim.count,
        source_stride: source(dim.chunk_stride),
        target_stride: dim.memory_stride,
    });
    let run = PlaceAxis {
        count: strided.run,
        source_stride: source(element.source),
        target_stride: element.target as i64,
    };
    dims.chain([run]).collect()
}

/// Adds a box of a job.
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

/// Adds a box whose elements all become the element at `address`.
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

/// Adds a box of a job whose elements go from the array to a chunk.
pub(crate) fn push_gathered(
    table: &mut PlaceTable,
    element: &ElementMapping,
    strided: &StridedBox,
    source: DeviceMemory,
    chunk: Side,
) -> Result<()> {
    let dims = strided.axes.iter().map(|dim| PlaceAxis {
        count: dim.count,
        source_stride: dim.memory_stride,
        target_stride: dim.chunk_stride as i64,
    });
    let run = PlaceAxis {
        count: strided.run,
        source_stride: element.source as i64,
        target_stride: element.target as i64,
    };
    let axes: Vec<PlaceAxis> = dims.chain([run]).collect();
    let source = whole(source, strided.memory + element.offset);
    let target = Side {
        offset: strided.chunk,
        ..chunk
    };
    table.push(source, target, &axes).map_err(internal)
}

fn whole(target: DeviceMemory, offset: u64) -> Side {
    Side {
        address: target.start,
        length: target.length,
        offset,
        shuffled: 0,
    }
}
