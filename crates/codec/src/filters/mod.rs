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

/// What one filter does to a chunk. `values` are the client data of the dataset.
pub trait Codec: Sync {
    fn name(&self) -> &'static str;

    /// Appends the decoded bytes to `output` (which is empty), at most `limit` of them.
    fn decode(
        &self,
        values: &[u32],
        input: &[u8],
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<()>;

    /// Decodes into memory of exactly the decoded size; another size is an error. By default
    /// through a buffer; filters that can write in place do.
    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let mut buffer = Vec::with_capacity(output.len());
        self.decode(values, input, &mut buffer, output.len())?;
        copy_exactly(self.name(), &buffer, output)
    }

    /// The decoded bytes where they stand in `input`, for a filter whose encoded form holds them
    /// unchanged; `None` for all others.
    fn decoded_within<'a>(&self, _values: &[u32], _input: &'a [u8]) -> Option<Result<&'a [u8]>> {
        None
    }

    /// The size of the encoded form of `decoded` bytes, for a filter where it depends on nothing
    /// else. It lets the filter below decode into memory of the right size.
    fn encoded_size(&self, _values: &[u32], _decoded: usize) -> Option<usize> {
        None
    }

    /// By how much at most a chunk can grow when it is decoded; `None` if there is no such limit
    /// worth the name.
    fn most_growth(&self) -> Option<u64> {
        None
    }

    /// Whether it is better left out than stored without a gain. HDF5 takes a chunk of the same size
    /// for one with the same mask, so a chunk with the filter must not be as long as one without.
    fn must_shrink(&self) -> bool {
        false
    }

    /// Appends the encoded bytes to `output` (which is empty). An error of an optional filter
    /// leaves the chunk as it was.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()>;
}

/// The codec of a registered filter number.
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

/// Copies a chunk that is decoded already.
pub(crate) fn copy_exactly(name: &'static str, decoded: &[u8], output: &mut [u8]) -> Result<()> {
    if decoded.len() != output.len() {
        return Err(wrong_size(name, decoded.len(), output.len()));
    }
    output.copy_from_slice(decoded);
    Ok(())
}

/// Appends `size` zero bytes to `output` and returns them, unless the caller allows fewer or there
/// is no memory: `size` may come from a file.
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

/// The first `size` bytes of a buffer that lives from chunk to chunk. What they hold is arbitrary.
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
