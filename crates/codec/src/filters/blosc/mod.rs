//! Blosc (filter 32001): a chunk in blocks, each shuffled and compressed by one of several
//! compressors.

mod blosclz;
pub(in crate::filters) mod chunk;
pub(in crate::filters) mod encode;
mod inner;

use self::chunk::{Chunk, Version};
use self::encode::{Settings, Shuffle};
use self::inner::Inner;
use super::Codec;
use crate::error::{CodecError, Result};

pub(crate) struct Blosc;

const NAME: &str = "blosc";

fn error(cause: impl Into<String>) -> CodecError {
    CodecError::new(NAME, cause)
}

/// The client data: filter version, format version, element size, chunk size, level, shuffle,
/// compressor. Missing values at the end have defaults.
pub(in crate::filters) fn settings(
    name: &'static str,
    version: Version,
    values: &[u32],
) -> Result<Settings> {
    let value = |index: usize, default| values.get(index).copied().unwrap_or(default);
    let compressor = value(COMPRESSOR, 0);
    Ok(Settings {
        version,
        typesize: value(2, 1),
        level: value(4, 5).min(9),
        shuffle: match (value(5, 1), version) {
            (0, _) => Shuffle::None,
            (1, _) => Shuffle::Bytes,
            (2, _) => Shuffle::Bits,
            (3, Version::Two) => Shuffle::Delta,
            (other, _) => {
                return Err(CodecError::new(
                    name,
                    format!("encoding with the inner filter {other} is not supported"),
                )
                .unsupported());
            }
        },
        inner: Inner::from_compressor(compressor).map_err(|which| {
            CodecError::new(
                name,
                format!("the {which} compressor {compressor} is not supported"),
            )
            .unsupported()
        })?,
        compressor: compressor as u8,
    })
}

/// The place of the compressor in the client data.
const COMPRESSOR: usize = 6;

/// Whether the client data name a compressor that is implemented here. Each chunk names its own, too.
pub(in crate::filters) fn has_known_compressor(values: &[u32]) -> bool {
    let compressor = values.get(COMPRESSOR).copied().unwrap_or(0);
    Inner::from_compressor(compressor).is_ok()
}

fn parse(input: &[u8]) -> Result<Chunk<'_>> {
    let chunk = Chunk::parse(NAME, input)?;
    if chunk.version() != Version::One {
        return Err(error("the chunk has the format of Blosc2"));
    }
    Ok(chunk)
}

impl Codec for Blosc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(parse(input)?.len())
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        parse(input)?.decode_into(output)
    }

    fn must_shrink(&self) -> bool {
        true
    }

    fn decodes(&self, values: &[u32]) -> bool {
        has_known_compressor(values)
    }

    fn encodes(&self, values: &[u32]) -> bool {
        settings(NAME, Version::One, values).is_ok()
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        encode::encode(NAME, &settings(NAME, Version::One, values)?, input, output)
    }
}
