//! Blosc2 (filter 32026): a contiguous frame that holds one Blosc2 chunk, or, for datasets of
//! several dimensions, a `b2nd` array whose blocks are boxes of elements.

mod frame;
mod ndim;

use super::blosc::chunk::{Chunk, Version};
use super::blosc::{encode, has_known_compressor, settings};
use super::{Codec, reserve, wrong_size};
use crate::error::{CodecError, Result};

use self::frame::Frame;
use self::ndim::Array;

pub(crate) struct Blosc2;

const NAME: &str = "blosc2";

fn error(cause: impl Into<String>) -> CodecError {
    CodecError::new(NAME, cause)
}

/// The contents of a frame.
enum Content<'a> {
    Plain(Chunk<'a>),
    Array(Array, Frame<'a>),
}

impl<'a> Content<'a> {
    fn parse(input: &'a [u8]) -> Result<Self> {
        let frame = Frame::parse(input)?;
        if let Some(metadata) = frame.metadata("b2nd")?.or(frame.metadata("caterva")?) {
            return Ok(Content::Array(
                Array::parse(metadata, frame.typesize())?,
                frame,
            ));
        }
        // HDF5's filter reads only the first chunk.
        let [offset] = frame.offsets(1)?[..] else {
            return Err(error("the frame does not have exactly one chunk"));
        };
        Ok(Content::Plain(frame.chunk(offset)?))
    }

    fn bytes(&self) -> Result<usize> {
        match self {
            Content::Plain(chunk) => Ok(chunk.len()),
            Content::Array(array, _) => array.bytes(),
        }
    }

    fn decode_into(&self, output: &mut [u8]) -> Result<()> {
        match self {
            Content::Plain(chunk) => chunk.decode_into(output),
            Content::Array(array, frame) => array.decode_into(frame, output),
        }
    }
}

impl Codec for Blosc2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Content::parse(input)?.bytes()
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let content = Content::parse(input)?;
        if content.bytes()? != output.len() {
            return Err(wrong_size(NAME, content.bytes()?, output.len()));
        }
        content.decode_into(output)
    }

    fn must_shrink(&self) -> bool {
        true
    }

    fn decodes(&self, values: &[u32]) -> bool {
        has_known_compressor(values)
    }

    fn encodes(&self, values: &[u32]) -> bool {
        settings(NAME, Version::Two, values).is_ok()
    }

    /// Writes a plain frame, which readers accept for any number of dimensions.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        if input.is_empty() {
            return Err(error("an empty chunk has no frame"));
        }
        let settings = settings(NAME, Version::Two, values)?;
        let mut chunk = Vec::new();
        encode::encode(NAME, &settings, input, &mut chunk)?;
        reserve(NAME, output, chunk.len() + frame::OVERHEAD)?;
        frame::write(&settings, input.len(), &chunk, output);
        Ok(())
    }
}
