//! The kind of memory at an address. The CUDA driver tells it; it is never guessed.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda::{self, CUcontext, Cuda};

use crate::error::Result;
use crate::gpu::{self, Context};

/// A kind of memory. The numbers are those of `penstock_memory` in `penstock.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum MemoryKind {
    /// Pageable host memory.
    Host = 0,
    /// Page-locked host memory that CUDA knows.
    Pinned = 1,
    /// Memory that migrates between host and GPU.
    Managed = 2,
    /// Memory of one GPU.
    Device = 3,
}

/// Stands for memory that the driver does not know; no type of the driver has this number.
const UNKNOWN: c_uint = 0;

/// A kind of memory and the context that it belongs to.
#[derive(Clone)]
pub struct Memory {
    /// The kind.
    pub kind: MemoryKind,
    /// The context for copies; `None` exactly for pageable and pinned memory, which the CPU reaches.
    pub context: Option<Arc<Context>>,
    /// The CUDA ordinal; -1 for pageable memory.
    pub device: i32,
    /// The addresses of the allocation, if CUDA knows it.
    pub range: Option<Range<usize>>,
}

impl Memory {
    /// Pageable host memory.
    pub const HOST: Memory = Memory {
        kind: MemoryKind::Host,
        context: None,
        device: -1,
        range: None,
    };

    /// Whether one lane of a route can serve both memories.
    pub fn same_place(&self, other: &Memory) -> bool {
        match (&self.context, &other.context) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Asks the driver about an address. The call neither loads nor initialises the driver: a process
    /// that has not done so has no GPU memory.
    ///
    /// # Errors
    /// The failed call of the driver.
    pub fn at(address: usize) -> Result<Memory> {
        let known = match loaded() {
            Some(cuda) => memory_type(cuda, address)?,
            None => UNKNOWN,
        };
        if known == UNKNOWN {
            return Ok(Memory::HOST);
        }
        let driver = gpu::driver()?;
        let mut kind: c_uint = 0;
        let mut managed: c_uint = 0;
        let mut device: c_int = -1;
        let mut context: CUcontext = ptr::null_mut();
        let mut start: u64 = 0;
        let mut bytes: usize = 0;
        let mut names = [
            cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            cuda::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            cuda::CU_POINTER_ATTRIBUTE_CONTEXT,
            cuda::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            cuda::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        ];
        let mut places: [*mut c_void; 6] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
            (&raw mut context).cast(),
            (&raw mut start).cast(),
            (&raw mut bytes).cast(),
        ];
        // SAFETY: each place has the size that its attribute takes; the address is only asked
        // about. For memory unknown to CUDA the call succeeds and leaves zeros.
        let code = unsafe {
            (driver.cuda.cuPointerGetAttributes)(
                names.len() as c_uint,
                names.as_mut_ptr(),
                places.as_mut_ptr(),
                address as u64,
            )
        };
        match code {
            cuda::CUDA_SUCCESS => {}
            // The process exits, or the memory was freed since.
            cuda::CUDA_ERROR_DEINITIALIZED | cuda::CUDA_ERROR_INVALID_VALUE => {
                return Ok(Memory::HOST);
            }
            // A device pointer taken for host memory would crash the process.
            _ => driver.check(code, "cuPointerGetAttributes")?,
        }
        if kind == 0 {
            return Ok(Memory::HOST);
        }
        let kind = match (kind, managed != 0) {
            (_, true) => MemoryKind::Managed,
            (cuda::CU_MEMORYTYPE_HOST, false) => MemoryKind::Pinned,
            _ => MemoryKind::Device,
        };
        let range = (bytes > 0).then(|| start as usize..start as usize + bytes);
        if kind == MemoryKind::Pinned {
            return Ok(Memory {
                kind,
                context: None,
                device,
                range,
            });
        }
        // Pool memory (cudaMallocAsync) belongs to a device, not to a context.
        let context = if context.is_null() {
            Context::primary(device.max(0))?
        } else {
            Context::of(context)?
        };
        Ok(Memory {
            kind,
            device: context.device,
            context: Some(context),
            range,
        })
    }
}

/// Whether the CPU may read and write at an address: true for pageable and page-locked memory, false
/// for managed memory, which the GPU may be using. Costs nanoseconds for pageable memory.
///
/// # Errors
/// The failed call of the driver.
pub fn is_on_host(address: usize) -> Result<bool> {
    are_on_host([address])
}

/// Whether [`is_on_host`] is true for every address.
///
/// # Errors
/// The failed call of the driver.
pub fn are_on_host<const COUNT: usize>(addresses: [usize; COUNT]) -> Result<bool> {
    let Some(cuda) = loaded() else {
        return Ok(true);
    };
    for address in addresses {
        let on_host = match memory_type(cuda, address)? {
            UNKNOWN => true,
            // The driver may say so of managed memory as well.
            cuda::CU_MEMORYTYPE_HOST => Memory::at(address)?.context.is_none(),
            _ => false,
        };
        if !on_host {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The driver, if this process has loaded it already.
fn loaded() -> Option<&'static Cuda> {
    if !cuda::cuda_is_loaded() {
        return None;
    }
    cuda::cuda().ok()
}

/// The driver's type of the memory at an address.
///
/// One attribute costs less than all of them, and is all there is to know of pageable memory. It is
/// asked as a list of one: the call for a single attribute fails for pageable memory, which takes the
/// driver five times as long.
///
/// Answers are not kept, since the allocation may be freed meanwhile. Its buffer ID would tell, but
/// costs as much to ask for, and pool allocations may lie inside one that keeps its ID.
fn memory_type(cuda: &Cuda, address: usize) -> Result<c_uint> {
    let mut kind = UNKNOWN;
    let mut name = cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut place: *mut c_void = (&raw mut kind).cast();
    // SAFETY: `kind` has the size that the attribute takes; the address is only asked about. For
    // memory unknown to CUDA the call succeeds and leaves a zero.
    let code = unsafe { (cuda.cuPointerGetAttributes)(1, &mut name, &mut place, address as u64) };
    match code {
        cuda::CUDA_SUCCESS => Ok(kind),
        // CUDA is not in use: nobody has initialised it in this process, which may have been forked
        // from one that had, or the process exits.
        cuda::CUDA_ERROR_INVALID_VALUE
        | cuda::CUDA_ERROR_NOT_INITIALIZED
        | cuda::CUDA_ERROR_DEINITIALIZED => Ok(UNKNOWN),
        // A device pointer taken for host memory would crash the process.
        _ => {
            gpu::driver()?.check(code, "cuPointerGetAttributes")?;
            Ok(kind)
        }
    }
}
