//! Batches of chunks that nvCOMP decodes or encodes.
//!
//! nvCOMP's formats are raw deflate (without zlib's header and checksum), blocks of LZ4, and frames
//! of Zstd; [`framing`](super::framing) finds them in what HDF5's filters store. Calls queue work
//! on a stream and never wait for it. The context of that stream must be current on the calling
//! thread.

use std::fmt;

use penstock_sys::Absent;
use penstock_sys::cuda::{CUdeviceptr, CUstream};
use penstock_sys::nvcomp::{
    self as sys, Batched, NVCOMP_DECOMPRESS_BACKEND_CUDA, NVCOMP_SUCCESS,
    NvcompAlignmentRequirements, NvcompCompressOpts, NvcompDecompressOpts, NvcompStatus,
};

use crate::error::{CodecError, Result};

/// A compression method that both nvCOMP and a filter of HDF5 have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Deflate: filter 1.
    Deflate,
    /// LZ4: filter 32004.
    Lz4,
    /// Zstandard: filter 32015.
    Zstd,
}

/// The alignment in bytes of every address for nvCOMP: inputs, outputs, temporary memory and
/// arrays. It suffices for all formats, both directions and all supported versions.
pub const ALIGNMENT: usize = 8;

/// The status of a chunk that was decoded or encoded without an error.
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
    /// The bytes of memory at each output. Encoding ignores it: each output then has
    /// [`Nvcomp::max_encoded`] bytes.
    pub output_rooms: CUdeviceptr,
    /// Written by the call: the size of each result in bytes.
    pub output_sizes: CUdeviceptr,
    /// Written by the call: [`SUCCESS`], or what went wrong.
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

    /// The method of a registered filter, if nvCOMP has one.
    pub fn of_filter(id: u32) -> Option<Method> {
        Some(match id {
            1 => Method::Deflate,
            32004 => Method::Lz4,
            32015 => Method::Zstd,
            _ => return None,
        })
    }

    /// The registered identifier of the filter.
    pub fn filter(self) -> u32 {
        match self {
            Method::Deflate => 1,
            Method::Lz4 => 32004,
            Method::Zstd => 32015,
        }
    }

    /// The largest chunk or block, in decoded bytes, that nvCOMP decodes.
    pub fn max_decodable(self) -> usize {
        match self {
            Method::Deflate | Method::Lz4 => u32::MAX as usize,
            Method::Zstd => i32::MAX as usize,
        }
    }

    /// The largest chunk or block, in bytes, that nvCOMP encodes.
    pub fn max_encodable(self) -> usize {
        match self {
            Method::Deflate => 1 << 31,
            Method::Lz4 | Method::Zstd => 1 << 24,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Method::Deflate => "deflate",
            Method::Lz4 => "lz4",
            Method::Zstd => "zstd",
        }
    }

    fn decompress_opts(self) -> NvcompDecompressOpts {
        NvcompDecompressOpts::new(NVCOMP_DECOMPRESS_BACKEND_CUDA)
    }

    /// nvCOMP's Deflate algorithms 1, 2 and 4 need 9, 10 and 33 times the decoded size as temporary
    /// memory; the last two compress better than zlib's levels 1 and 6.
    fn compress_opts(self, values: &[u32]) -> NvcompCompressOpts {
        NvcompCompressOpts::new(match (self, values.first()) {
            (Method::Deflate, Some(0..=1)) => 1,
            (Method::Deflate, Some(2..=5)) => 2,
            (Method::Deflate, _) => 4,
            _ => 0,
        })
    }
}

impl Nvcomp {
    /// Opens nvCOMP. The error says why it cannot be used.
    pub fn open() -> std::result::Result<Nvcomp, Absent> {
        let library = Nvcomp(sys::nvcomp()?);
        for method in Method::ALL {
            library.check_alignments(method)?;
        }
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
        let (opts, mut temp_bytes) = (method.decompress_opts(), 0);
        let functions = self.functions(method);
        // SAFETY: by contract of this function.
        let status = unsafe {
            functions.decompress_temp_size(
                chunks,
                max_decoded,
                opts,
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
    /// nvCOMP checks the bounds of outputs, but little else of its input, and promises nothing for
    /// damaged chunks.
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
        batch.check(method, method.max_decodable())?;
        let decompress = self.functions(method).decompress;
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
                method.decompress_opts(),
                batch.statuses,
                stream,
            )
        };
        check(method, "decoding", status)
    }

    /// The temporary memory that [`Nvcomp::encode`] needs. `values` are the filter's client values.
    ///
    /// # Safety
    /// `stream` is a stream of the current context.
    pub unsafe fn encode_temp_bytes(
        &self,
        method: Method,
        values: &[u32],
        chunks: usize,
        max_decoded: usize,
        total_decoded: usize,
        stream: CUstream,
    ) -> Result<usize> {
        let (opts, mut temp_bytes) = (method.compress_opts(values), 0);
        let functions = self.functions(method);
        // SAFETY: by contract of this function.
        let status = unsafe {
            functions.compress_temp_size(
                chunks,
                max_decoded,
                opts,
                &mut temp_bytes,
                total_decoded,
                stream,
            )
        };
        check(method, "temporary memory for encoding", status)?;
        Ok(temp_bytes)
    }

    /// The largest encoded size of a chunk of `decoded` bytes, which is the memory that each output
    /// needs.
    ///
    /// # Errors
    /// The status that nvCOMP returns.
    pub fn max_encoded(&self, method: Method, values: &[u32], decoded: usize) -> Result<usize> {
        let (opts, mut max_encoded) = (method.compress_opts(values), 0);
        let max_output = self.functions(method).compress_max_output;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { max_output(decoded, opts, &mut max_encoded) };
        check(method, "size of encoded chunks", status)?;
        Ok(max_encoded)
    }

    /// Queues the encoding of a batch.
    ///
    /// # Errors
    /// As for [`Nvcomp::decode`].
    ///
    /// # Safety
    /// As for [`Nvcomp::decode`]. Each output has [`Nvcomp::max_encoded`] bytes for `max_decoded`.
    pub unsafe fn encode(
        &self,
        method: Method,
        values: &[u32],
        batch: &Batch,
        stream: CUstream,
    ) -> Result<()> {
        if batch.chunks == 0 {
            return Ok(());
        }
        batch.check(method, method.max_encodable())?;
        let compress = self.functions(method).compress;
        // SAFETY: by contract of this function.
        let status = unsafe {
            compress(
                batch.inputs,
                batch.input_sizes,
                batch.max_decoded,
                batch.chunks,
                batch.temp,
                batch.temp_bytes,
                batch.outputs,
                batch.output_sizes,
                method.compress_opts(values),
                batch.statuses,
                stream,
            )
        };
        check(method, "encoding", status)
    }

    fn functions(&self, method: Method) -> &'static Batched {
        match method {
            Method::Deflate => &self.0.deflate,
            Method::Lz4 => &self.0.lz4,
            Method::Zstd => &self.0.zstd,
        }
    }

    /// Fails unless [`ALIGNMENT`] suffices for this version.
    fn check_alignments(&self, method: Method) -> std::result::Result<(), Absent> {
        let functions = self.functions(method);
        let mut needs = [NvcompAlignmentRequirements::default(); 2];
        // SAFETY: the pointer is valid for the call.
        let decoding =
            unsafe { (functions.decompress_alignments)(method.decompress_opts(), &mut needs[0]) };
        // SAFETY: the pointer is valid for the call.
        let encoding =
            unsafe { (functions.compress_alignments)(method.compress_opts(&[]), &mut needs[1]) };
        let enough = |need: usize| need != 0 && ALIGNMENT.is_multiple_of(need);
        let all_enough = needs
            .iter()
            .all(|need| enough(need.input) && enough(need.output) && enough(need.temp));
        if (decoding, encoding) == (SUCCESS, SUCCESS) && all_enough {
            return Ok(());
        }
        Err(Absent {
            what: format!(
                "{}: requires other alignments than {ALIGNMENT} bytes for {}: {needs:?}, \
                 status {decoding} and {encoding}",
                self.0.library_path().display(),
                method.name(),
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
    fn check(&self, method: Method, limit: usize) -> Result<()> {
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
