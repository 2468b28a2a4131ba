//! Raw deflate streams as zlib writes and reads them.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libz_sys::z_stream;
pub use libz_sys::{Z_DEFAULT_STRATEGY, Z_FILTERED, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE};

/// What a negative number of window bits asks for: no header, no checksum.
const RAW: c_int = -15;

/// A stream that takes one buffer to another; null elsewhere, for zlib's own allocator.
fn stream(from: &[u8], to: &mut [u8]) -> MaybeUninit<z_stream> {
    let mut stream = MaybeUninit::<z_stream>::zeroed();
    let members = stream.as_mut_ptr();
    // SAFETY: the members lie inside of the stream; none is read.
    unsafe {
        (&raw mut (*members).next_in).write(from.as_ptr().cast_mut());
        (&raw mut (*members).avail_in).write(from.len() as u32);
        (&raw mut (*members).next_out).write(to.as_mut_ptr());
        (&raw mut (*members).avail_out).write(to.len() as u32);
    }
    stream
}

/// Encodes `data` in one go. `memory` is from 1 to 9; with less of it, blocks are shorter.
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

/// Decodes a raw stream that has exactly `length` bytes; `None` for any other and for a damaged one.
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
