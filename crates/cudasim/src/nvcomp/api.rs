//! The entry points of nvCOMP 6. Each has the contract of the function of the same name in NVIDIA's
//! headers.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_void;

use penstock_sys::nvcomp::{
    NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE, NVCOMP_ERROR_INVALID_VALUE, NvcompAlignmentRequirements,
    NvcompDecompressOpts, NvcompProperties, NvcompStatus,
};

use super::batch::{self, Batch};
use super::format::Format;
use super::{ALIGNMENT, Result, cuda, status};
use crate::device;

/// # Safety
/// `place` is null or valid for a `T`.
unsafe fn store<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(NVCOMP_ERROR_INVALID_VALUE);
    }
    // SAFETY: by contract of this function.
    unsafe { place.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvcompGetProperties(properties: *mut NvcompProperties) -> NvcompStatus {
    let value = NvcompProperties {
        version: 6000,
        cudart_version: 13000,
    };
    // SAFETY: the client's pointer is null or valid.
    status(unsafe { store(properties, value) })
}

/// Stores the strictest requirements of all formats.
///
/// # Safety
/// `place` is null or valid.
unsafe fn alignments(place: *mut NvcompAlignmentRequirements) -> NvcompStatus {
    let value = NvcompAlignmentRequirements {
        input: ALIGNMENT,
        output: ALIGNMENT,
        temp: ALIGNMENT,
    };
    // SAFETY: the client's pointer is null or valid.
    status(unsafe { store(place, value) })
}

/// # Safety
/// `place` is null or valid.
unsafe fn temp_size(
    (chunks, max_decoded, total_decoded): (usize, usize, usize),
    limit: usize,
    place: *mut usize,
) -> NvcompStatus {
    status(device::current().map_err(cuda).and_then(|_| {
        if max_decoded > limit {
            return Err(NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE);
        }
        let size = batch::temp_size(chunks, max_decoded, total_decoded)?;
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(place, size) }
    }))
}

macro_rules! entry_points {
    ($($format:ident {
        $decompress_alignments:ident $decompress_temp_size:ident $decompress:ident
    })*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $decompress_alignments(
            _opts: NvcompDecompressOpts,
            requirements: *mut NvcompAlignmentRequirements,
        ) -> NvcompStatus {
            // SAFETY: by contract of this function.
            unsafe { alignments(requirements) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $decompress_temp_size(
            chunks: usize,
            max_decoded: usize,
            _opts: NvcompDecompressOpts,
            temp_bytes: *mut usize,
            total_decoded: usize,
            _stream: *mut c_void,
        ) -> NvcompStatus {
            let (sizes, limit) =
                ((chunks, max_decoded, total_decoded), Format::$format.max_decodable());
            // SAFETY: by contract of this function.
            unsafe { temp_size(sizes, limit, temp_bytes) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $decompress(
            inputs: u64,
            input_sizes: u64,
            rooms: u64,
            output_sizes: u64,
            chunks: usize,
            temp: u64,
            temp_bytes: usize,
            outputs: u64,
            _opts: NvcompDecompressOpts,
            statuses: u64,
            stream: *mut c_void,
        ) -> NvcompStatus {
            let batch = Batch {
                inputs, input_sizes, outputs, rooms, output_sizes, statuses, chunks, temp, temp_bytes,
            };
            status(batch::submit(Format::$format, batch, stream))
        }
    )* };
}

entry_points! {
    Deflate {
        nvcompBatchedDeflateDecompressGetRequiredAlignments
        nvcompBatchedDeflateDecompressGetTempSize
        nvcompBatchedDeflateDecompressAsync
    }
    Lz4 {
        nvcompBatchedLZ4DecompressGetRequiredAlignments
        nvcompBatchedLZ4DecompressGetTempSize
        nvcompBatchedLZ4DecompressAsync
    }
    Zstd {
        nvcompBatchedZstdDecompressGetRequiredAlignments
        nvcompBatchedZstdDecompressGetTempSize
        nvcompBatchedZstdDecompressAsync
    }
}
