//! The filters, one file each.

use crate::error::{CodecError, Result};

mod bits;
mod bitshuffle;
mod blosc;
mod blosc2;
mod deflate;
mod fletcher32;
mod lanes;
mod lz4;
mod lzf;
mod nbit;
mod scaleoffset;
mod shuffle;
mod szip;
mod zstd;

/// One filter. `values` are the filter's client data, from the dataset's creation properties.
///
/// A codec has no state: any number of threads may call it.
pub trait Codec: Sync {
    /// The name of the filter, for errors.
    fn name(&self) -> &'static str;

    /// Appends the decoded bytes to `output`, which is empty.
    ///
    /// # Errors
    /// Damaged input, and input that decodes to more than `limit` bytes.
    fn decode(
        &self,
        values: &[u32],
        input: &[u8],
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<()>;

    /// Decodes into memory of exactly the decoded size.
    ///
    /// # Errors
    /// Damaged input, and input that decodes to another size. `output` then holds anything.
    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let mut buffer = Vec::with_capacity(output.len());
        self.decode(values, input, &mut buffer, output.len())?;
        copy_exactly(self.name(), &buffer, output)
    }

    /// The decoded bytes inside `input`, for a filter whose encoded form holds them unchanged; `None`
    /// for other filters.
    fn decoded_within<'a>(&self, _values: &[u32], _input: &'a [u8]) -> Option<Result<&'a [u8]>> {
        None
    }

    /// The bytes that `decoded` bytes become when encoded, if that depends on nothing else. The
    /// filter whose decoded form this is then gets memory of the right size.
    fn encoded_size(&self, _values: &[u32], _decoded: usize) -> Option<usize> {
        None
    }

    /// The greatest factor by which a chunk can grow when it is decoded; `None` if there is no useful
    /// limit.
    fn most_growth(&self) -> Option<u64> {
        None
    }

    /// Whether the filter is left out of a chunk that it does not make smaller. HDF5 assumes that
    /// chunks of the same size have the same filter mask, so an encoded chunk must not be as long
    /// as its source.
    fn must_shrink(&self) -> bool {
        false
    }

    /// Appends the encoded bytes to `output`, which is empty.
    ///
    /// # Errors
    /// A chunk that the filter cannot encode. If the filter is optional, it is then left out.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()>;
}

/// The codec of a registered filter number; `None` for filters that this crate does not know.
pub fn codec(id: u32) -> Option<&'static dyn Codec> {
    Some(match id {
        1 => &deflate::Deflate,
        2 => &shuffle::Shuffle,
        3 => &fletcher32::Fletcher32,
        4 => &szip::Szip,
        5 => &nbit::NBit,
        6 => &scaleoffset::ScaleOffset,
        32000 => &lzf::Lzf,
        32001 => &blosc::Blosc,
        32004 => &lz4::Lz4,
        32008 => &bitshuffle::Bitshuffle,
        32015 => &zstd::Zstd,
        32026 => &blosc2::Blosc2,
        _ => return None,
    })
}

/// The error of a chunk that decodes to another size than its dataset says.
fn wrong_size(name: &'static str, decoded: usize, expected: usize) -> CodecError {
    CodecError::new(
        name,
        format!("the chunk decodes to {decoded} bytes instead of {expected}"),
    )
}

/// Copies a decoded chunk to `output`, which must have its size.
pub(crate) fn copy_exactly(name: &'static str, decoded: &[u8], output: &mut [u8]) -> Result<()> {
    if decoded.len() != output.len() {
        return Err(wrong_size(name, decoded.len(), output.len()));
    }
    output.copy_from_slice(decoded);
    Ok(())
}

/// Appends `size` zero bytes to `output` and returns them. Since `size` may come from a file, it is
/// an error if it exceeds `limit` or if there is no memory.
fn room<'a>(
    name: &'static str,
    output: &'a mut Vec<u8>,
    size: usize,
    limit: usize,
) -> Result<&'a mut [u8]> {
    if size > limit {
        return Err(CodecError::new(
            name,
            format!("the chunk decodes to {size} bytes where at most {limit} can be right"),
        ));
    }
    let start = output.len();
    output
        .try_reserve(size)
        .map_err(|_| CodecError::new(name, format!("no memory for {size} bytes")))?;
    output.resize(start + size, 0);
    Ok(&mut output[start..])
}

/// The first `size` bytes of a buffer that is used for one chunk after another. They hold anything.
pub(crate) fn sized<'a>(
    name: &'static str,
    buffer: &'a mut Vec<u8>,
    size: usize,
) -> Result<&'a mut [u8]> {
    if buffer.len() < size {
        let missing = size - buffer.len();
        room(name, buffer, missing, missing)?;
    }
    Ok(&mut buffer[..size])
}
