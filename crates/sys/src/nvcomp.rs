//! nvCOMP, NVIDIA's codecs for batches of chunks in GPU memory: its low-level C interface.
//!
//! The functions use the context that is current on the calling thread, which must be that of the
//! stream. Only functions named `Async` queue work, and none of them waits for it.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cuda::{CUdeviceptr, CUstream};
use crate::library::{Absent, Library, Search, vendor_folders};

pub type NvcompStatus = c_int;

macro_rules! statuses {
    ($($name:ident = $code:literal $text:literal;)*) => {
        $(pub const $name: NvcompStatus = $code;)*

        /// The header's name for a status; `None` for a status that it does not list.
        pub fn status_name(status: NvcompStatus) -> Option<&'static str> {
            match status {
                $($name => Some($text),)*
                _ => None,
            }
        }
    };
}

statuses! {
    NVCOMP_SUCCESS = 0 "nvcompSuccess";
    NVCOMP_ERROR_INVALID_VALUE = 10 "nvcompErrorInvalidValue";
    NVCOMP_ERROR_NOT_SUPPORTED = 11 "nvcompErrorNotSupported";
    NVCOMP_ERROR_CANNOT_DECOMPRESS = 12 "nvcompErrorCannotDecompress";
    NVCOMP_ERROR_BAD_CHECKSUM = 13 "nvcompErrorBadChecksum";
    NVCOMP_ERROR_CANNOT_VERIFY_CHECKSUMS = 14 "nvcompErrorCannotVerifyChecksums";
    NVCOMP_ERROR_OUTPUT_BUFFER_TOO_SMALL = 15 "nvcompErrorOutputBufferTooSmall";
    NVCOMP_ERROR_WRONG_HEADER_LENGTH = 16 "nvcompErrorWrongHeaderLength";
    NVCOMP_ERROR_ALIGNMENT = 17 "nvcompErrorAlignment";
    NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE = 18 "nvcompErrorChunkSizeTooLarge";
    NVCOMP_ERROR_CANNOT_COMPRESS = 19 "nvcompErrorCannotCompress";
    NVCOMP_ERROR_WRONG_INPUT_LENGTH = 20 "nvcompErrorWrongInputLength";
    NVCOMP_ERROR_BATCH_SIZE_TOO_LARGE = 21 "nvcompErrorBatchSizeTooLarge";
    NVCOMP_ERROR_CUDA = 1000 "nvcompErrorCudaError";
    NVCOMP_ERROR_INTERNAL = 10000 "nvcompErrorInternal";
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NvcompProperties {
    /// 1000 x major + 100 x minor + patch.
    pub version: u32,
    pub cudart_version: u32,
}

/// The alignments in bytes of the addresses of chunks and of the temporary memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvcompAlignmentRequirements {
    pub input: usize,
    pub output: usize,
    pub temp: usize,
}

/// Decodes by kernels. The decompression engine, which some GPUs have, accepts only small chunks in
/// memory that was allocated for it.
pub const NVCOMP_DECOMPRESS_BACKEND_CUDA: c_int = 2;

/// The options of all decoders. nvCOMP has a struct for each, all of the same size and with common
/// members at the same offsets. Zero is the default of each member.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NvcompDecompressOpts {
    pub backend: c_int,
    pub reserved: [c_int; 15],
}

impl NvcompDecompressOpts {
    pub fn new(backend: c_int) -> Self {
        Self {
            backend,
            reserved: [0; 15],
        }
    }
}

pub type NvcompDecompressGetRequiredAlignments = unsafe extern "C" fn(
    opts: NvcompDecompressOpts,
    requirements: *mut NvcompAlignmentRequirements,
) -> NvcompStatus;

/// Every array has one entry per chunk: sizes and addresses of 8 bytes, statuses of 4. The arrays and
/// the memory to which they refer must stay accessible to the GPU until the queued work completes.
pub type NvcompDecompressAsync = unsafe extern "C" fn(
    encoded: CUdeviceptr,
    encoded_sizes: CUdeviceptr,
    decoded_rooms: CUdeviceptr,
    decoded_sizes: CUdeviceptr,
    chunks: usize,
    temp: CUdeviceptr,
    temp_bytes: usize,
    decoded: CUdeviceptr,
    opts: NvcompDecompressOpts,
    statuses: CUdeviceptr,
    stream: CUstream,
) -> NvcompStatus;

type GetProperties = unsafe extern "C" fn(properties: *mut NvcompProperties) -> NvcompStatus;

/// A function that computes the temporary memory of a batch. Version 6 renamed it and added the
/// stream.
enum GetTempSize {
    Until5(
        unsafe extern "C" fn(usize, usize, NvcompDecompressOpts, *mut usize, usize) -> NvcompStatus,
    ),
    Since6(
        unsafe extern "C" fn(
            usize,
            usize,
            NvcompDecompressOpts,
            *mut usize,
            usize,
            CUstream,
        ) -> NvcompStatus,
    ),
}

impl GetTempSize {
    /// `function` is its name in version 6.
    fn open(library: &Library, function: &str) -> Result<Self, Absent> {
        // SAFETY: the signature is that of version 6's header.
        if let Some(found) = unsafe { library.optional(&[function]) } {
            return Ok(Self::Since6(found));
        }
        // SAFETY: the signature is that of the headers of versions 5.1 to 5.3.
        unsafe { library.required(&[&format!("{function}Async")]) }.map(Self::Until5)
    }
}

/// The functions of one format. Several threads may call them concurrently.
pub struct Batched {
    decompress_temp_size: GetTempSize,
    pub decompress_alignments: NvcompDecompressGetRequiredAlignments,
    pub decompress: NvcompDecompressAsync,
}

impl Batched {
    /// `format` is the part of the functions' names that names the format.
    fn open(library: &Library, format: &str) -> Result<Self, Absent> {
        let name = |function: &str| format!("nvcompBatched{format}{function}");
        Ok(Self {
            decompress_temp_size: GetTempSize::open(library, &name("DecompressGetTempSize"))?,
            // SAFETY: the signature is that of the headers of versions 5.1 to 6.0.
            decompress_alignments: unsafe {
                library.required(&[&name("DecompressGetRequiredAlignments")])?
            },
            // SAFETY: as above.
            decompress: unsafe { library.required(&[&name("DecompressAsync")])? },
        })
    }

    /// Writes the bytes of temporary memory for decoding `chunks` chunks of at most `max_decoded`
    /// bytes, `total_decoded` in total.
    ///
    /// # Safety
    /// The current context is that of the GPU that will decode, and `stream` belongs to it.
    pub unsafe fn decompress_temp_size(
        &self,
        chunks: usize,
        max_decoded: usize,
        opts: NvcompDecompressOpts,
        temp_bytes: &mut usize,
        total_decoded: usize,
        stream: CUstream,
    ) -> NvcompStatus {
        // SAFETY: by contract of this function.
        unsafe {
            match self.decompress_temp_size {
                GetTempSize::Until5(function) => {
                    function(chunks, max_decoded, opts, temp_bytes, total_decoded)
                }
                GetTempSize::Since6(function) => {
                    function(chunks, max_decoded, opts, temp_bytes, total_decoded, stream)
                }
            }
        }
    }
}

/// nvCOMP, for the formats that Penstock decodes with it.
pub struct Nvcomp {
    pub lz4: Batched,
    pub zstd: Batched,
    properties: NvcompProperties,
    path: PathBuf,
}

impl Nvcomp {
    fn open(library: &Library) -> Result<Self, Absent> {
        let properties = known_version(library)?;
        Ok(Self {
            lz4: Batched::open(library, "LZ4")?,
            zstd: Batched::open(library, "Zstd")?,
            properties,
            path: library.path().to_owned(),
        })
    }

    /// Major, minor and patch number.
    pub fn version(&self) -> [u32; 3] {
        split(self.properties.version)
    }

    /// The name or path by which the library was opened.
    pub fn library_path(&self) -> &Path {
        &self.path
    }
}

fn split(version: u32) -> [u32; 3] {
    [version / 1000, version % 1000 / 100, version % 100]
}

/// The properties of a library whose version is known. The signatures here are those of the headers
/// of 5.1, 5.2, 5.3 and 6.0; version 4 has other signatures under the same names.
fn known_version(library: &Library) -> Result<NvcompProperties, Absent> {
    let path = library.path().display();
    // SAFETY: the function has had this signature in every version.
    let get: GetProperties = unsafe { library.required(&["nvcompGetProperties"])? };
    let mut properties = NvcompProperties::default();
    // SAFETY: the pointer is valid for the call.
    let status = unsafe { get(&mut properties) };
    if status != NVCOMP_SUCCESS {
        let what = format!("{path}: opened, but nvcompGetProperties fails with {status}");
        return Err(Absent { what });
    }
    let [major, minor, patch] = split(properties.version);
    if !matches!((major, minor), (5, 1..) | (6, _)) {
        let what = format!("{path}: version {major}.{minor}.{patch}, where 5.1 to 6 are needed");
        return Err(Absent { what });
    }
    Ok(properties)
}

const LIBRARY: Search = Search {
    title: "nvCOMP library",
    variable: "PENSTOCK_NVCOMP_LIBRARY",
    names: &["libnvcomp.so.6", "libnvcomp.so.5"],
    folders: || vendor_folders(&["nvidia/libnvcomp/lib64"]),
};

/// nvCOMP, opened on the first call. `PENSTOCK_NVCOMP_LIBRARY` names another library. Opening it does
/// not use a GPU.
pub fn nvcomp() -> Result<&'static Nvcomp, Absent> {
    static NVCOMP: OnceLock<Result<Nvcomp, Absent>> = OnceLock::new();
    NVCOMP
        .get_or_init(|| Nvcomp::open(&LIBRARY.open(LIBRARY.override_path().as_deref())?))
        .as_ref()
        .map_err(Absent::clone)
}

// The layout of the structs of nvcomp.h 5.1 to 6.0 on 64-bit Linux.
const _: () = {
    assert!(size_of::<NvcompProperties>() == 8);
    assert!(size_of::<NvcompAlignmentRequirements>() == 24);
    assert!(size_of::<NvcompDecompressOpts>() == 64);
};

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_version_has_a_major_minor_and_patch_number() {
        assert_eq!(split(5100), [5, 1, 0]);
        assert_eq!(split(6012), [6, 0, 12]);
    }

    #[test]
    fn a_library_that_is_not_nvcomp_is_absent_with_the_missing_function() {
        let library = LIBRARY.open(Some(OsStr::new("libm.so.6"))).unwrap();
        let absent = Nvcomp::open(&library).err().expect("libm is not nvCOMP");
        assert_eq!(
            absent.what,
            "libm.so.6: opened, but it does not export nvcompGetProperties"
        );
    }
}
