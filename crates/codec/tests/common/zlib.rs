//! Raw deflate streams as zlib writes and reads them.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libz_sys::z_stream;
// Each program of tests uses some of them.
#[allow(unused_imports)]
pub use libz_sys::{Z_DEFAULT_STRATEGY, Z_FILTERED, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE};

/// Negative window bits select raw deflate: no header, no checksum.
const RAW: c_int = -15;

/// A stream from one buffer to another; otherwise null, which selects zlib's own allocator.
fn stream(from: &[u8], to: &mut [u8]) -> MaybeUninit<z_stream> {
    let mut stream = MaybeUninit::<z_stream>::zeroed();
    let members = stream.as_mut_ptr();
    // SAFETY: the members lie inside the stream; none is read.
    unsafe {
        (&raw mut (*members).next_in).write(from.as_ptr().cast_mut());
        (&raw mut (*members).avail_in).write(from.len() as u32);
        (&raw mut (*members).next_out).write(to.as_mut_ptr());
        (&raw mut (*members).avail_out).write(to.len() as u32);
    }
    stream
}

/// Encodes `data`. `memory` is zlib's memLevel, 1 to 9; a lower one makes shorter blocks.
pub fn deflate(data: &[u8], level: i32, strategy: c_int, memory: c_int) -> Vec<u8> {
    let mut encoded = vec![0; data.len() + data.len() / 100 + 4096];
    let mut stream = stream(data, &mut encoded);
    let stream = stream.as_mut_ptr();
    // SAFETY: the stream's buffers live until `deflateEnd`.
    unsafe {
        let (size, version) = (size_of::<z_stream>() as c_int, libz_sys::zlibVersion());
        let method = libz_sys::Z_DEFLATED;
        let done =
            libz_sys::deflateInit2_(stream, level, method, RAW, memory, strategy, version, size);
        assert_eq!(done, libz_sys::Z_OK);
        let done = libz_sys::deflate(stream, libz_sys::Z_FINISH);
        assert_eq!(done, libz_sys::Z_STREAM_END);
        let length = (*stream).total_out as usize;
        assert_eq!(libz_sys::deflateEnd(stream), libz_sys::Z_OK);
        encoded.truncate(length);
    }
    encoded
}

/// Decodes a raw stream to exactly `length` bytes; `None` for a damaged stream or another length.
#[allow(dead_code, reason = "not every user decodes")]
pub fn inflate(encoded: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut decoded = vec![0; length + 1];
    let mut stream = stream(encoded, &mut decoded);
    let stream = stream.as_mut_ptr();
    // SAFETY: as above, until `inflateEnd`.
    let (ended, found) = unsafe {
        let (size, version) = (size_of::<z_stream>() as c_int, libz_sys::zlibVersion());
        let done = libz_sys::inflateInit2_(stream, RAW, version, size);
        assert_eq!(done, libz_sys::Z_OK);
        let ended = libz_sys::inflate(stream, libz_sys::Z_FINISH);
        let found = (*stream).total_out as usize;
        assert_eq!(libz_sys::inflateEnd(stream), libz_sys::Z_OK);
        (ended, found)
    };
    decoded.truncate(length);
    (ended == libz_sys::Z_STREAM_END && found == length).then_some(decoded)
}
