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

/// One filter. `values` are its client data, from the dataset creation property list.
///
/// A codec is stateless: any number of threads may call it.
pub trait Codec: Sync {
    /// The name of the filter, for errors.
    fn name(&self) -> &'static str;

    /// The decoded size of a chunk, for a filter that has it before it decodes. It may come from the
    /// chunk, which may be damaged.
    fn decoded_size(&self, _values: &[u32], _input: &[u8]) -> Result<usize> {
        let cause = "the chunk does not record its decoded size";
        Err(CodecError::new(self.name(), cause))
    }

    /// Decodes into memory of exactly the decoded size.
    ///
    /// # Errors
    /// Damaged input, or input that decodes to another size. The contents of `output` are then
    /// unspecified.
    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()>;

    /// Appends the decoded bytes to `output`, which must be empty.
    ///
    /// # Errors
    /// Damaged input, or input that decodes to more than `limit` bytes.
    fn decode(
        &self,
        values: &[u32],
        input: &[u8],
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<()> {
        let size = self.decoded_size(values, input)?;
        let output = append_zeros(self.name(), output, size, limit)?;
        self.decode_into(values, input, output)
    }

    /// The decoded bytes as a part of `input`, for a filter that stores them unchanged; `None` for
    /// other filters.
    fn decoded_within<'a>(&self, _values: &[u32], _input: &'a [u8]) -> Option<Result<&'a [u8]>> {
        None
    }

    /// The encoded size of `decoded` bytes, if it depends on nothing else. The pipeline then has
    /// the decoded size of the next filter and can call its [`Codec::decode_into`].
    fn encoded_size(&self, _values: &[u32], _decoded: usize) -> Option<usize> {
        None
    }

    /// Whether chunks of one size, here `decoded` bytes, can be encoded to several sizes.
    fn varies(&self, values: &[u32], decoded: usize) -> bool {
        self.encoded_size(values, decoded).is_none()
    }

    /// The largest factor by which decoding can grow a chunk; `None` if there is no useful bound.
    fn most_growth(&self) -> Option<u64> {
        None
    }

    /// Whether the filter is skipped for a chunk that it does not shrink, if it is optional and the
    /// only one whose output length depends on the data. A chunk that this crate wrote and that is
    /// as long as its source is then one that skipped the filter. A chunk of that length from HDF5
    /// may be encoded, also by LZF.
    fn must_shrink(&self) -> bool {
        false
    }

    /// Whether this crate decodes what the filter, with these client data, has encoded. If not, only
    /// HDF5 with a plugin may.
    fn decodes(&self, _values: &[u32]) -> bool {
        true
    }

    /// Whether this crate encodes with these client data. If not, only HDF5 with a plugin may.
    fn encodes(&self, values: &[u32]) -> bool {
        self.decodes(values)
    }

    /// Appends the encoded bytes to `output`, which must be empty.
    ///
    /// # Errors
    /// A chunk that the filter cannot encode, for which an optional filter is skipped, or exhausted
    /// memory.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()>;
}

/// The filters' identifiers, as registered with The HDF Group.
#[allow(missing_docs, reason = "each is named for its filter")]
pub mod id {
    pub const DEFLATE: u32 = 1;
    pub const SHUFFLE: u32 = 2;
    pub const FLETCHER32: u32 = 3;
    pub const SZIP: u32 = 4;
    pub const NBIT: u32 = 5;
    pub const SCALEOFFSET: u32 = 6;
    pub const LZF: u32 = 32000;
    pub const BLOSC: u32 = 32001;
    pub const LZ4: u32 = 32004;
    pub const BITSHUFFLE: u32 = 32008;
    pub const ZSTD: u32 = 32015;
    pub const BLOSC2: u32 = 32026;
}

/// The codec of a registered filter identifier; `None` for filters that this crate does not
/// implement.
pub fn codec(id: u32) -> Option<&'static dyn Codec> {
    Some(match id {
        id::DEFLATE => &deflate::Deflate,
        id::SHUFFLE => &shuffle::Shuffle,
        id::FLETCHER32 => &fletcher32::Fletcher32,
        id::SZIP => &szip::Szip,
        id::NBIT => &nbit::NBit,
        id::SCALEOFFSET => &scaleoffset::ScaleOffset,
        id::LZF => &lzf::Lzf,
        id::BLOSC => &blosc::Blosc,
        id::LZ4 => &lz4::Lz4,
        id::BITSHUFFLE => &bitshuffle::Bitshuffle,
        id::ZSTD => &zstd::Zstd,
        id::BLOSC2 => &blosc2::Blosc2,
        _ => return None,
    })
}

/// The error of a chunk whose decoded size is not that of its dataset's chunks.
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

/// Allocates room for `more` bytes after those in `output`.
fn reserve(name: &'static str, output: &mut Vec<u8>, more: usize) -> Result<()> {
    output
        .try_reserve(more)
        .map_err(|_| CodecError::no_memory(name, more))
}

/// Appends a copy of `bytes` to `output`.
pub(crate) fn append(name: &'static str, output: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    reserve(name, output, bytes.len())?;
    output.extend_from_slice(bytes);
    Ok(())
}

/// Returns `size` zero bytes.
fn zeros(name: &'static str, size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append_zeros(name, &mut bytes, size, size)?;
    Ok(bytes)
}

/// Appends `size` zero bytes to `output` and returns them. Fails if `size`, which may come from a
/// file, exceeds `limit` or if the allocation fails.
fn append_zeros<'a>(
    name: &'static str,
    output: &'a mut Vec<u8>,
    size: usize,
    limit: usize,
) -> Result<&'a mut [u8]> {
    if size > limit {
        return Err(CodecError::new(
            name,
            format!("the chunk decodes to {size} bytes; at most {limit} are valid"),
        ));
    }
    let start = output.len();
    reserve(name, output, size)?;
    output.resize(start + size, 0);
    Ok(&mut output[start..])
}

/// The first `size` bytes of a reused buffer. Their contents are unspecified.
pub(crate) fn sized<'a>(
    name: &'static str,
    buffer: &'a mut Vec<u8>,
    size: usize,
) -> Result<&'a mut [u8]> {
    if buffer.len() < size {
        let missing = size - buffer.len();
        append_zeros(name, buffer, missing, missing)?;
    }
    Ok(&mut buffer[..size])
}
