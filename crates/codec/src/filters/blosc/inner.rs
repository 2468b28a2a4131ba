//! The compressors that Blosc wraps.

use super::blosclz;
use crate::error::{CodecError, Fault, Result};
use crate::filters::{Codec, append, deflate::Deflate, lz4, reserve, zstd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    BloscLz,
    /// Also decodes LZ4HC.
    Lz4,
    Zlib,
    Zstd,
}

impl Inner {
    /// The compressor with this format number in a chunk's header, which compressors can share; or
    /// the name of one that is not supported.
    pub(super) fn from_format(format: u8) -> std::result::Result<Self, &'static str> {
        match format {
            0 => Ok(Inner::BloscLz),
            1 => Ok(Inner::Lz4),
            2 => Err("Snappy"),
            3 => Ok(Inner::Zlib),
            4 => Ok(Inner::Zstd),
            6 => Err("user-defined"),
            _ => Err("reserved"),
        }
    }

    pub(super) fn format(self) -> u8 {
        match self {
            Inner::BloscLz => 0,
            Inner::Lz4 => 1,
            Inner::Zlib => 3,
            Inner::Zstd => 4,
        }
    }

    /// The compressor with this number in the client data, or the name of one that is not supported.
    pub(super) fn from_compressor(number: u32) -> std::result::Result<Self, &'static str> {
        match number {
            0 => Ok(Inner::BloscLz),
            1 | 2 => Ok(Inner::Lz4),
            3 => Err("Snappy"),
            4 => Ok(Inner::Zlib),
            5 => Ok(Inner::Zstd),
            _ => Err("unknown"),
        }
    }

    /// Fills `output` exactly. Errors carry the `name` of the calling filter.
    pub(super) fn decompress(
        self,
        name: &'static str,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        match self {
            Inner::BloscLz => blosclz::decompress(input, output)
                .ok_or_else(|| CodecError::new(name, "damaged BloscLZ stream")),
            Inner::Lz4 => lz4::decompress(name, input, output),
            Inner::Zlib => Deflate
                .decode_into(&[], input, output)
                .map_err(|e| CodecError::new(name, e.cause)),
            Inner::Zstd => zstd::decompress(name, input, output),
        }
    }

    /// Appends the stored size (four bytes, little-endian) and `input`, compressed if that is
    /// shorter. `level` is Blosc's, 1 to 9.
    pub(super) fn compress(
        self,
        name: &'static str,
        level: u32,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let start = output.len();
        let body = start + 4;
        match self {
            Inner::BloscLz => {
                append(name, output, &[0; 4])?;
                reserve(name, output, blosclz::most_encoded(input.len()))?;
                blosclz::compress(input, output);
            }
            Inner::Lz4 => lz4::compress_prefixed(name, input, output)?,
            Inner::Zlib => {
                append(name, output, &[0; 4])?;
                let mut packed = Vec::new();
                match Deflate.encode(&[level], input, &mut packed) {
                    Ok(()) => append(name, output, &packed)?,
                    Err(error) if error.kind == Fault::Memory => return Err(error),
                    // The stream would grow.
                    Err(_) => {}
                }
            }
            Inner::Zstd => {
                append(name, output, &[0; 4])?;
                // Maps Blosc's levels to those of Zstd that need no huge tables.
                zstd::compress(name, level.cast_signed() * 2 - 1, input, output)?;
            }
        }
        if output.len() == body || output.len() - body >= input.len() {
            output.truncate(body);
            append(name, output, input)?;
        }
        let size = (output.len() - body) as u32;
        output[start..body].copy_from_slice(&size.to_le_bytes());
        Ok(())
    }
}
