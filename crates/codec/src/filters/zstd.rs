//! Filter 32015, Zstandard: the library's frames.

use std::cell::RefCell;

use ::zstd::bulk::{Compressor, Decompressor};
use ::zstd::zstd_safe;

use super::{Codec, append_zeros, wrong_size};
use crate::error::{CodecError, Result};

const NAME: &str = "zstd";

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::new(Decompressor::default());
    static COMPRESSOR: RefCell<Compressor<'static>> = RefCell::new(Compressor::default());
}

pub(crate) struct Zstd;

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        // A block decodes to at most 128 KiB and, unless empty, takes at least 4 bytes.
        Some((128 << 10) / 4)
    }

    /// Like the registered filter, requires a frame that records its decoded size.
    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        zstd_safe::get_frame_content_size(input)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| CodecError::new(NAME, "the frame does not record its decoded size"))
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        decompress(NAME, input, output)
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        compress(NAME, level(values.first()), input, output)
    }
}

/// The level of a client value, which is a signed number, clamped to the library's range; its
/// default without a value.
pub(super) fn level(value: Option<&u32>) -> i32 {
    let range = ::zstd::compression_level_range();
    value.map_or(::zstd::DEFAULT_COMPRESSION_LEVEL, |value| {
        (value.cast_signed()).clamp(*range.start(), *range.end())
    })
}

/// Decodes frames, which must fill `output`. Errors carry the `name` of the calling filter.
pub(super) fn decompress(name: &'static str, input: &[u8], output: &mut [u8]) -> Result<()> {
    let decoded =
        DECOMPRESSOR.with_borrow_mut(|context| context.decompress_to_buffer(input, output));
    match decoded {
        Ok(size) if size == output.len() => Ok(()),
        Ok(size) => Err(wrong_size(name, size, output.len())),
        Err(e) => Err(CodecError::new(name, format!("damaged Zstd frame: {e}"))),
    }
}

/// Appends one frame.
pub(super) fn compress(
    name: &'static str,
    level: i32,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let start = output.len();
    let bound = zstd_safe::compress_bound(input.len());
    let memory = append_zeros(name, output, bound, bound)?;
    let size = COMPRESSOR
        .with_borrow_mut(|context| {
            context.set_compression_level(level)?;
            context.compress_to_buffer(input, memory)
        })
        .map_err(|e| CodecError::new(name, e.to_string()))?;
    output.truncate(start + size);
    Ok(())
}
