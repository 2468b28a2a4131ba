//! The compiled kernels in a CUDA context.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use penstock_sys::cuda::{self, CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream, Cuda};

use super::checksum::ChecksumTable;
use super::deflate::{DeflateMemory, DeflateTable};
use super::inflate::InflateTable;
use super::place::PlaceTable;
use super::{GpuError, Plain};

/// Compiled by scripts/compile-kernels.py from the sources beside them; a test checks that they are up
/// to date.
const KERNELS: &str = include_str!("../../kernels/kernels.ptx");
const ENCODER: &str = include_str!("../../kernels/encoder.ptx");

const BLOCK: u32 = 256;
/// The number of blocks that fills a multiprocessor with threads.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 16;
/// Blocks of the encoder, whose shared memory leaves no room for more on today's GPUs.
const DEFLATE_BLOCKS_PER_MULTIPROCESSOR: u32 = 6;

/// The kernels, loaded into the context that was current then. Any thread may use them while that
/// context is current.
#[derive(Debug)]
pub struct Kernels {
    driver: Driver,
    place: CUfunction,
    checksum_sums: CUfunction,
    checksum_verdicts: CUfunction,
    inflate: CUfunction,
    /// Loaded by the first write that encodes on the GPU.
    encoder: OnceLock<Result<Encoder, GpuError>>,
    multiprocessors: u32,
}

/// The kernels that encode.
#[derive(Clone, Copy, Debug)]
struct Encoder {
    deflate: CUfunction,
    join: CUfunction,
}

// SAFETY: the functions may be used from any thread; the driver locks them itself.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

#[derive(Clone, Copy)]
struct Driver(&'static Cuda);

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.library_path().fmt(f)
    }
}

impl Driver {
    /// # Safety
    /// CUDA is initialised and a context is current.
    unsafe fn load(self, ptx: &str) -> Result<CUmodule, GpuError> {
        let text = CString::new(ptx).map_err(|_| GpuError {
            call: "cuModuleLoadData",
            code: cuda::CUDA_ERROR_INVALID_IMAGE,
        })?;
        let mut module = ptr::null_mut();
        // SAFETY: the image is PTX that ends with NUL, as the driver requires; the rest by contract.
        let code = unsafe { (self.0.cuModuleLoadData)(&mut module, text.as_ptr().cast()) };
        GpuError::check(code, "cuModuleLoadData").map(|()| module)
    }

    /// Returns a function of a module that is loaded.
    fn function(self, module: CUmodule, name: &CStr) -> Result<CUfunction, GpuError> {
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded; the pointers are valid for the call.
        let code = unsafe { (self.0.cuModuleGetFunction)(&mut function, module, name.as_ptr()) };
        GpuError::check(code, "cuModuleGetFunction").map(|()| function)
    }
}

impl Kernels {
    /// Compiles the kernels for the device of the current context, which takes some time unless the
    /// driver has cached the result. They stay loaded until the end of the context.
    ///
    /// # Safety
    /// CUDA is initialised and a context is current.
    pub unsafe fn load(cuda: &'static Cuda) -> Result<Kernels, GpuError> {
        let mut device = 0;
        // SAFETY: by contract a context is current; the pointer to `device` is valid for the call.
        let code = unsafe { (cuda.cuCtxGetDevice)(&mut device) };
        GpuError::check(code, "cuCtxGetDevice")?;
        let mut multiprocessors: c_int = 0;
        let attribute = cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: CUDA is initialised; the pointer is valid for the call.
        let code = unsafe { (cuda.cuDeviceGetAttribute)(&mut multiprocessors, attribute, device) };
        GpuError::check(code, "cuDeviceGetAttribute")?;
        let driver = Driver(cuda);
        // SAFETY: by contract of this function.
        let module = unsafe { driver.load(KERNELS)? };
        let function = |name| driver.function(module, name);
        Ok(Kernels {
            driver,
            place: function(c"penstock_place")?,
            checksum_sums: function(c"penstock_checksum_sums")?,
            checksum_verdicts: function(c"penstock_checksum_verdicts")?,
            inflate: function(c"penstock_inflate")?,
            encoder: OnceLock::new(),
            multiprocessors: multiprocessors.max(1) as u32,
        })
    }

    /// Queues the moves of a table that was uploaded to `at`, a multiple of 8.
    ///
    /// # Safety
    /// The context is current. The buffers of the table are memory that this GPU can reach, and
    /// stay so until the launch is done.
    pub unsafe fn place(
        &self,
        table: &PlaceTable,
        at: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let Some(launch) = table.launch(at) else {
            return Ok(());
        };
        // SAFETY: the kernel takes this struct; the rest by contract of this function.
        unsafe {
            self.launch(
                self.place,
                &launch,
                self.clamped(table.blocks()),
                BLOCK,
                stream,
            )
        }
    }

    /// Queues the checksums of a table that was uploaded to `at`, a multiple of 8. `work`, also a
    /// multiple of 8, is the address of [`ChecksumTable::work_size`] free bytes, which have the
    /// verdicts once the launch completes.
    ///
    /// # Safety
    /// As for [`Kernels::place`].
    pub unsafe fn checksum(
        &self,
        table: &ChecksumTable,
        at: CUdeviceptr,
        work: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let Some(launch) = table.launch(at, work) else {
            return Ok(());
        };
        // SAFETY: the sums lie at the beginning of the caller's work memory.
        let code = unsafe { (self.driver.0.cuMemsetD8Async)(work, 0, table.sums_size(), stream) };
        GpuError::check(code, "cuMemsetD8Async")?;
        // SAFETY: both kernels take this struct; the rest by contract of this function.
        unsafe {
            let blocks = self.clamped(table.blocks(BLOCK));
            self.launch(self.checksum_sums, &launch, blocks, BLOCK, stream)?;
            let blocks = self.clamped(u64::from(launch.count.div_ceil(BLOCK)));
            self.launch(self.checksum_verdicts, &launch, blocks, BLOCK, stream)
        }
    }

    /// Queues the decoding of the deflate streams of a table that was uploaded to `at`, a multiple of
    /// 8. `verdicts`, also a multiple of 8, is the address of [`InflateTable::verdicts_size`] free
    /// bytes, which have the verdicts once the launch completes.
    ///
    /// # Safety
    /// As for [`Kernels::place`].
    pub unsafe fn inflate(
        &self,
        table: &InflateTable,
        at: CUdeviceptr,
        verdicts: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let Some(launch) = table.launch(at, verdicts) else {
            return Ok(());
        };
        let (blocks, threads) = (table.blocks(), InflateTable::THREADS);
        // SAFETY: the kernel takes this struct; the rest by contract of this function.
        unsafe { self.launch(self.inflate, &launch, blocks, threads, stream) }
    }

    /// The bytes of device memory that [`Kernels::deflate`] needs besides the table and its results.
    pub fn deflate_work_size(&self, table: &DeflateTable) -> u64 {
        table.work_size(self.deflate_blocks(table))
    }

    /// Compiles the kernels that encode, once, which takes a second or two unless the driver has
    /// cached the result. The call may wait for streams that in turn wait for a request, so it
    /// precedes the requests that need the kernels.
    ///
    /// # Safety
    /// The context is current.
    pub unsafe fn load_encoder(&self) -> Result<(), GpuError> {
        // SAFETY: by contract of this function.
        unsafe { self.encoder() }.map(drop)
    }

    /// Queues the encoding of the chunks of a table, by kernels that [`Kernels::load_encoder`] loads.
    ///
    /// # Safety
    /// As for [`Kernels::place`]. The memory is as [`DeflateMemory`] describes it, and the checksums
    /// are computed by work that was queued on the stream before.
    pub unsafe fn deflate(
        &self,
        table: &DeflateTable,
        memory: &DeflateMemory,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let Some((launch, join)) = table.launch(memory) else {
            return Ok(());
        };
        let blocks = self.deflate_blocks(table);
        // SAFETY: by contract of this function.
        let encoder = unsafe { self.encoder()? };
        // SAFETY: each kernel takes its struct; the rest by contract of this function.
        unsafe {
            self.launch(
                encoder.deflate,
                &launch,
                blocks,
                DeflateTable::THREADS,
                stream,
            )?;
            let blocks = table.blocks(self.most_blocks());
            self.launch(encoder.join, &join, blocks, DeflateTable::THREADS, stream)
        }
    }

    /// # Safety
    /// The context is current.
    unsafe fn encoder(&self) -> Result<Encoder, GpuError> {
        *self.encoder.get_or_init(|| {
            // SAFETY: by contract of this function.
            let module = unsafe { self.driver.load(ENCODER)? };
            Ok(Encoder {
                deflate: self.driver.function(module, c"penstock_deflate")?,
                join: self.driver.function(module, c"penstock_deflate_join")?,
            })
        })
    }

    fn deflate_blocks(&self, table: &DeflateTable) -> u32 {
        table.blocks(self.multiprocessors * DEFLATE_BLOCKS_PER_MULTIPROCESSOR)
    }

    fn most_blocks(&self) -> u32 {
        self.multiprocessors * BLOCKS_PER_MULTIPROCESSOR
    }

    /// The number of blocks for kernels that loop until no work is left.
    fn clamped(&self, blocks: u64) -> u32 {
        blocks.clamp(1, u64::from(self.most_blocks())) as u32
    }

    /// # Safety
    /// The function takes one parameter, which is a `T`.
    unsafe fn launch<T: Plain>(
        &self,
        function: CUfunction,
        parameter: &T,
        blocks: c_uint,
        threads: c_uint,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let mut parameters = [ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        // SAFETY: the driver reads the parameter during the call; the rest by contract.
        let code: CUresult = unsafe {
            (self.driver.0.cuLaunchKernel)(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        GpuError::check(code, "cuLaunchKernel")
    }
}
