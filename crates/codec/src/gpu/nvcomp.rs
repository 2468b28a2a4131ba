//! Batches of chunks that nvCOMP decodes.
//!
//! nvCOMP's formats are blocks of LZ4 and frames of Zstd; [`framing`](super::framing) finds them in
//! what HDF5's filters store. Calls queue work on a stream and never wait for it. The context of
//! that stream must be current on the calling thread.

use std::fmt;

use penstock_sys::Absent;
use penstock_sys::cuda::{CUdeviceptr, CUstream};
use penstock_sys::nvcomp::{
    self as sys, Batched, NVCOMP_DECOMPRESS_BACKEND_CUDA, NVCOMP_SUCCESS,
    NvcompAlignmentRequirements, NvcompDecompressOpts, NvcompStatus,
};

use crate::error::{CodecError, Result};
use crate::filters::id;

/// A compression method of a filter of HDF5 that the GPU decodes: deflate by Penstock's own kernel,
/// the other methods by nvCOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Deflate.
    Deflate,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// The alignment in bytes of every address for nvCOMP: inputs, outputs, temporary memory and
/// arrays. It suffices for all formats and all supported versions.
pub const ALIGNMENT: usize = 8;

/// The status of a chunk that was decoded without an error.
pub const SUCCESS: NvcompStatus = NVCOMP_SUCCESS;

/// The arrays of one call, in device memory or pinned host memory, with one entry per chunk.
/// Addresses and sizes are `u64`, statuses `i32`.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The address of each chunk's bytes.
    pub inputs: CUdeviceptr,
    /// The size of each input in bytes.
    pub input_sizes: CUdeviceptr,
    /// The address of each result.
    pub outputs: CUdeviceptr,
    /// The bytes of memory at each output.
    pub output_rooms: CUdeviceptr,
    /// Written by the call: the size of each result in bytes.
    pub output_sizes: CUdeviceptr,
    /// Written by the call: [`SUCCESS`], or the failure of the chunk.
    pub statuses: CUdeviceptr,
    /// The number of chunks.
    pub chunks: usize,
    /// The largest decoded size of a chunk in bytes.
    pub max_decoded: usize,
    /// Temporary memory for nvCOMP; may be 0 if `temp_bytes` is 0.
    pub temp: CUdeviceptr,
    /// The bytes of the temporary memory.
    pub temp_bytes: usize,
}

/// The nvCOMP library, loaded and of a known version.
#[derive(Clone, Copy)]
pub struct Nvcomp(&'static sys::Nvcomp);

impl Method {
    /// Every method.
    pub const ALL: [Method; 3] = [Method::Deflate, Method::Lz4, Method::Zstd];

    /// The method of a registered filter, if the GPU decodes it.
    pub fn of_filter(filter: u32) -> Option<Method> {
        Some(match filter {
            id::DEFLATE => Method::Deflate,
            id::LZ4 => Method::Lz4,
            id::ZSTD => Method::Zstd,
            _ => return None,
        })
    }

    /// The registered identifier of the filter.
    pub fn filter(self) -> u32 {
        match self {
            Method::Deflate => id::DEFLATE,
            Method::Lz4 => id::LZ4,
            Method::Zstd => id::ZSTD,
        }
    }

    /// Whether nvCOMP decodes the method, and not a kernel of Penstock's own.
    pub fn uses_nvcomp(self) -> bool {
        match self {
            Method::Deflate => false,
            Method::Lz4 | Method::Zstd => true,
        }
    }

    /// The largest chunk or block, in decoded bytes, that the GPU decodes.
    pub fn max_decodable(self) -> usize {
        match self {
            Method::Deflate | Method::Lz4 => u32::MAX as usize,
            Method::Zstd => i32::MAX as usize,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Method::Deflate => "deflate",
            Method::Lz4 => "lz4",
            Method::Zstd => "zstd",
        }
    }
}

fn opts() -> NvcompDecompressOpts {
    NvcompDecompressOpts::new(NVCOMP_DECOMPRESS_BACKEND_CUDA)
}

impl Nvcomp {
    /// Opens nvCOMP. The error has the reason why it cannot be used.
    pub fn open() -> std::result::Result<Nvcomp, Absent> {
        let library = Nvcomp(sys::nvcomp()?);
        library.check_alignments(&library.0.lz4, Method::Lz4.name())?;
        library.check_alignments(&library.0.zstd, Method::Zstd.name())?;
        Ok(library)
    }

    /// Major, minor and patch number of the library.
    pub fn version(&self) -> [u32; 3] {
        self.0.version()
    }

    /// The temporary memory that [`Nvcomp::decode`] needs for `chunks` chunks of at most
    /// `max_decoded` bytes, `total_decoded` together.
    ///
    /// # Safety
    /// `stream` is a stream of the current context.
    pub unsafe fn decode_temp_bytes(
        &self,
        method: Method,
        chunks: usize,
        max_decoded: usize,
        total_decoded: usize,
        stream: CUstream,
    ) -> Result<usize> {
        let mut temp_bytes = 0;
        let functions = self.functions(method)?;
        // SAFETY: by contract of this function.
        let status = unsafe {
            functions.decompress_temp_size(
                chunks,
                max_decoded,
                opts(),
                &mut temp_bytes,
                total_decoded,
                stream,
            )
        };
        check(method, "temporary memory for decoding", status)?;
        Ok(temp_bytes)
    }

    /// Queues the decoding of a batch. A chunk is valid only if its status is [`SUCCESS`] and its
    /// size is the expected one. The caller verifies its checksum, if it has one.
    ///
    /// nvCOMP checks the bounds of outputs, but little else of its input, and guarantees nothing
    /// for damaged chunks.
    ///
    /// # Errors
    /// A batch that nvCOMP rejects. The statuses report failures of chunks.
    ///
    /// # Safety
    /// `stream` is a stream of the current context. The GPU reaches all memory that `batch` names,
    /// directly and in its arrays. That memory is aligned to [`ALIGNMENT`], stays valid, and is not
    /// otherwise accessed until the queued work completes.
    pub unsafe fn decode(&self, method: Method, batch: &Batch, stream: CUstream) -> Result<()> {
        if batch.chunks == 0 {
            return Ok(());
        }
        batch.check(method)?;
        let decompress = self.functions(method)?.decompress;
        // SAFETY: by contract of this function.
        let status = unsafe {
            decompress(
                batch.inputs,
                batch.input_sizes,
                batch.output_rooms,
                batch.output_sizes,
                batch.chunks,
                batch.temp,
                batch.temp_bytes,
                batch.outputs,
                opts(),
                batch.statuses,
                stream,
            )
        };
        check(method, "decoding", status)
    }

    fn functions(&self, method: Method) -> Result<&'static Batched> {
        match method {
            Method::Deflate => Err(error(method, "Penstock has a kernel for it")),
            Method::Lz4 => Ok(&self.0.lz4),
            Method::Zstd => Ok(&self.0.zstd),
        }
    }

    /// Fails unless [`ALIGNMENT`] suffices for this version.
    fn check_alignments(&self, functions: &Batched, name: &str) -> std::result::Result<(), Absent> {
        let mut needs = NvcompAlignmentRequirements::default();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.decompress_alignments)(opts(), &mut needs) };
        let enough = |need: usize| need != 0 && ALIGNMENT.is_multiple_of(need);
        if status == SUCCESS && enough(needs.input) && enough(needs.output) && enough(needs.temp) {
            return Ok(());
        }
        Err(Absent {
            what: format!(
                "{}: requires other alignments than {ALIGNMENT} bytes for {name}: {needs:?}, \
                 status {status}",
                self.0.library_path().display(),
            ),
        })
    }
}

impl fmt::Debug for Nvcomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version();
        write!(f, "nvCOMP {major}.{minor}.{patch}")
    }
}

impl Batch {
    fn check(&self, method: Method) -> Result<()> {
        let limit = method.max_decodable();
        if self.max_decoded > limit {
            let what = format!("nvCOMP accepts chunks of at most {limit} bytes");
            return Err(error(method, what));
        }
        let addresses = [
            self.inputs,
            self.input_sizes,
            self.outputs,
            self.output_rooms,
            self.output_sizes,
            self.temp,
        ];
        let aligned = addresses
            .iter()
            .all(|address| address.is_multiple_of(ALIGNMENT as u64));
        if !aligned
            || !self
                .statuses
                .is_multiple_of(size_of::<NvcompStatus>() as u64)
        {
            return Err(error(method, "an array for nvCOMP is not aligned"));
        }
        Ok(())
    }
}

fn error(method: Method, cause: impl Into<String>) -> CodecError {
    CodecError::new(method.name(), cause)
}

fn check(method: Method, what: &str, status: NvcompStatus) -> Result<()> {
    if status == SUCCESS {
        return Ok(());
    }
    let name = sys::status_name(status).unwrap_or("unknown");
    let cause = format!("nvCOMP failed: {what}: {name} ({status})");
    Err(error(method, cause))
}
