//! The kind of memory at an address. The CUDA driver reports it; it is never guessed.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, OnceLock};

use penstock_sys::cuda::{self, CUcontext, Cuda};

use crate::error::Result;
use crate::gpu::{self, Context};
use crate::reach;

/// A kind of memory. The numbers are those of `penstock_memory` in `penstock.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum MemoryKind {
    /// Pageable host memory.
    Host = 0,
    /// Page-locked host memory of CUDA.
    Pinned = 1,
    /// Memory that migrates between host and GPU.
    Managed = 2,
    /// Memory of one GPU.
    Device = 3,
}

/// The number for memory that the driver does not know. No type of the driver has this number.
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
    /// The addresses of the allocation, if CUDA has allocated or registered it.
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

    /// Queries the driver about an address. The call neither loads nor initialises the driver: a
    /// process that has not done so has no GPU memory.
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
        // SAFETY: each place has the size that its attribute takes; the address is not
        // dereferenced. For memory unknown to CUDA the call succeeds and leaves zeros.
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
            // The process exits, or the memory was freed in the meantime.
            cuda::CUDA_ERROR_DEINITIALIZED | cuda::CUDA_ERROR_INVALID_VALUE => {
                return Ok(Memory::HOST);
            }
            // A device pointer that is taken for host memory would crash the process.
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
pub fn is_on_host(address: usize) -> Result<bool> {
    are_on_host([address])
}

/// Whether [`is_on_host`] is true for every address.
pub fn are_on_host<const COUNT: usize>(addresses: [usize; COUNT]) -> Result<bool> {
    if addresses.iter().all(|address| is_never_on_gpu(*address)) {
        return Ok(true);
    }
    let Some(cuda) = loaded() else {
        return Ok(true);
    };
    for address in addresses {
        if is_never_on_gpu(address) {
            continue;
        }
        let on_host = match memory_type(cuda, address)? {
            UNKNOWN => true,
            // The driver may report this type for managed memory as well.
            cuda::CU_MEMORYTYPE_HOST => Memory::at(address)?.context.is_none(),
            _ => false,
        };
        if !on_host {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the CUDA driver cannot have placed memory at an address. This holds for the heap of
/// brk(2), in which malloc puts small blocks, and for the image of the program: both belong to the
/// kernel and the program for the life of the process. CUDA may have page-locked them, but the CPU
/// reaches them all the same.
#[inline]
fn is_never_on_gpu(address: usize) -> bool {
    static FIXED: OnceLock<Fixed> = OnceLock::new();
    let fixed = FIXED.get_or_init(Fixed::find);
    fixed.image.contains(&address) || (address >= fixed.heap && address < end_of_heap())
}

fn end_of_heap() -> usize {
    // SAFETY: an increment of zero changes nothing.
    match unsafe { libc::sbrk(0) } as usize {
        // It failed.
        usize::MAX => 0,
        end => end,
    }
}

/// The regions that stay at the same place for the life of the process.
struct Fixed {
    /// The program's segments and what is between them.
    image: Range<usize>,
    /// The start of the heap; the largest address if it is unknown.
    heap: usize,
}

impl Fixed {
    fn find() -> Fixed {
        Fixed {
            image: image(),
            heap: start_of_heap().unwrap_or(usize::MAX),
        }
    }
}

/// The addresses of the segments of the program itself, which the loader lists first.
fn image() -> Range<usize> {
    unsafe extern "C" fn first_only(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid `info` with as many headers as it says, and `found` is
        // the range given below.
        unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let segments = headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD)
                .map(|header| {
                    let start = info.dlpi_addr as usize + header.p_vaddr as usize;
                    start..start + header.p_memsz as usize
                });
            *found.cast::<Range<usize>>() = segments
                .reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
                .unwrap_or(0..0);
        }
        1
    }
    let mut found = 0..0_usize;
    // SAFETY: the callback has the expected signature and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first_only), (&raw mut found).cast()) };
    found
}

/// The address at which the kernel has begun the heap: the field start_brk of proc(5), the 45th after
/// the name of the program in parentheses.
fn start_of_heap() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let start = fields.split_whitespace().nth(44)?.parse().ok()?;
    (start != 0).then_some(start)
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
/// One attribute costs less than all of them, and is all that exists for pageable memory. It is
/// queried as a list of one: the call for a single attribute fails for pageable memory, which takes
/// the driver five times as long.
///
/// Results are not kept, since the allocation may be freed meanwhile. Its buffer ID would show
/// that, but costs as much to query, and pool allocations may lie inside one that keeps its ID.
fn memory_type(cuda: &Cuda, address: usize) -> Result<c_uint> {
    let mut kind = UNKNOWN;
    let mut name = cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut place: *mut c_void = (&raw mut kind).cast();
    // SAFETY: `kind` has the size that the attribute takes; the address is not dereferenced. For
    // memory unknown to CUDA the call succeeds and leaves a zero.
    let code = unsafe { (cuda.cuPointerGetAttributes)(1, &mut name, &mut place, address as u64) };
    match code {
        cuda::CUDA_SUCCESS => Ok(kind),
        // CUDA is not in use: it was not initialised, or the process exits.
        cuda::CUDA_ERROR_INVALID_VALUE | cuda::CUDA_ERROR_DEINITIALIZED => Ok(UNKNOWN),
        // CUDA is not in use, or the process was forked from one that had initialised it. Memory
        // that the CPU cannot read may then be memory of a GPU, which is out of reach here;
        // starting the driver reports that.
        cuda::CUDA_ERROR_NOT_INITIALIZED => {
            if !reach::is_readable(address) {
                gpu::driver()?;
            }
            Ok(UNKNOWN)
        }
        // A device pointer that is taken for host memory would crash the process.
        _ => {
            gpu::driver()?.check(code, "cuPointerGetAttributes")?;
            Ok(kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OF_THE_PROGRAM: [u8; 64] = [1; 64];

    #[test]
    fn the_programs_own_data_and_its_heap_are_never_on_a_gpu() {
        assert!(is_never_on_gpu(OF_THE_PROGRAM.as_ptr() as usize));
        let heap = start_of_heap().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[heap]")).unwrap();
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        assert_eq!(usize::from_str_radix(start, 16).unwrap(), heap);
        assert!(is_never_on_gpu(heap));
        assert!(!is_never_on_gpu(
            usize::from_str_radix(end, 16).unwrap() + (1 << 40)
        ));
    }

    #[test]
    fn mapped_memory_may_be_on_a_gpu() {
        let large = vec![1_u8; 256 << 20];
        assert!(!is_never_on_gpu(large.as_ptr() as usize));
    }
}
