//! Filter 1, deflate: a zlib stream.

mod block;
mod codes;
mod fast;

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use block::Output;
use fast::Encoder;

use super::{Codec, append_zeros, wrong_size};
use crate::error::{CodecError, Result};

const NAME: &str = "deflate";

/// The smallest first guess at an unknown decoded size.
const FIRST_GUESS: usize = 1 << 12;

/// The level of [`Encoder`].
const FAST: u32 = 1;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
    static COMPRESSOR: RefCell<Option<(CompressionLvl, Compressor)>> = const { RefCell::new(None) };
}

pub(crate) struct Deflate;

impl Codec for Deflate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        // A match of 258 bytes takes at least two bits.
        Some(1032)
    }

    fn decode(
        &self,
        _values: &[u32],
        input: &[u8],
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<()> {
        // A zlib stream does not record its decoded size. A reused buffer has the capacity that the
        // last chunk needed, so the first attempt usually fits.
        let mut size = output
            .capacity()
            .max(input.len().saturating_mul(4))
            .max(FIRST_GUESS)
            .min(limit);
        loop {
            output.clear();
            match inflate(input, append_zeros(NAME, output, size, limit)?) {
                Ok(decoded) => {
                    output.truncate(decoded);
                    return Ok(());
                }
                Err(DecompressionError::InsufficientSpace) if size < limit => {
                    size = size.saturating_mul(2).min(limit);
                }
                Err(e) => return Err(failure(e, limit)),
            }
        }
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let expected = output.len();
        match inflate(input, output) {
            Ok(decoded) if decoded == expected => Ok(()),
            Ok(decoded) => Err(wrong_size(NAME, decoded, expected)),
            Err(e) => Err(failure(e, expected)),
        }
    }

    /// Fails, as HDF5 does, if encoding would lengthen the chunk by more than 0.1 % and 12 bytes.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let &[level] = values else {
            return Err(CodecError::new(
                NAME,
                "the client data are not one value, the level",
            ));
        };
        let bound = input.len() + input.len().div_ceil(1000) + 12;
        if level == FAST {
            let size = bound + Output::SLACK;
            let memory = append_zeros(NAME, output, size, size)?;
            let encoded = ENCODER.with_borrow_mut(|encoder| {
                let encoder = encoder.get_or_insert_with(Encoder::new);
                encoder.encode(input, memory)
            });
            let size = encoded.ok_or_else(too_long)?;
            output.truncate(size);
            return Ok(());
        }
        let level = i32::try_from(level)
            .ok()
            .filter(|level| (0..=9).contains(level))
            .and_then(|level| CompressionLvl::new(level).ok())
            .ok_or_else(|| CodecError::new(NAME, format!("there is no level {level}")))?;
        let memory = append_zeros(NAME, output, bound, bound)?;
        let encoded = COMPRESSOR.with_borrow_mut(|slot| {
            let held = slot.take().filter(|(at, _)| *at == level);
            let (_, compressor) =
                slot.insert(held.unwrap_or_else(|| (level, Compressor::new(level))));
            compressor.zlib_compress(input, memory)
        });
        output.truncate(encoded.map_err(|_| too_long())?);
        Ok(())
    }
}

fn too_long() -> CodecError {
    CodecError::new(NAME, "the chunk cannot be compressed")
}

fn inflate(input: &[u8], output: &mut [u8]) -> std::result::Result<usize, DecompressionError> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.zlib_decompress(input, output))
}

fn failure(error: DecompressionError, limit: usize) -> CodecError {
    match error {
        DecompressionError::BadData => {
            CodecError::new(NAME, "the zlib stream is damaged or truncated")
        }
        DecompressionError::InsufficientSpace => CodecError::new(
            NAME,
            format!("the chunk decodes to more than {limit} bytes"),
        ),
    }
}
