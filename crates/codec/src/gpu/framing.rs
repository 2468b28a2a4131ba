//! Finds the streams that the GPU decodes, within the bytes that a filter stored.
//!
//! A chunk that the GPU would decode differently from the CPU, or that looks damaged, is
//! [`NotForGpu`]. The CPU then decodes it, or reports exactly what is wrong with it.

use super::nvcomp::{ALIGNMENT, Method};

/// A part of a chunk that is decoded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the stored bytes, at any alignment. Its copy on the device must be aligned.
    pub offset: usize,
    /// The length of the stored bytes.
    pub length: usize,
    /// The offset in the decoded chunk, a multiple of [`ALIGNMENT`].
    pub decoded_offset: usize,
    /// The length of the decoded bytes.
    pub decoded_length: usize,
    /// Whether it is stored unencoded, and so copied instead of decoded.
    pub raw: bool,
}

/// The reason why a chunk is left to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotForGpu(pub &'static str);

type Result<T> = std::result::Result<T, NotForGpu>;

/// The smallest LZ4 block for the GPU: listing smaller ones takes longer than decoding them.
pub const SMALLEST_BLOCK: usize = 1 << 10;

/// Appends the pieces of one chunk of `decoded` bytes to `pieces`, in order and without gaps in the
/// decoded chunk, at most one for each [`SMALLEST_BLOCK`] bytes. Returns the Adler-32 checksum of
/// the decoded chunk, if the format has one.
///
/// # Errors
/// The reason why the CPU must decode the chunk. `pieces` is then unchanged.
pub fn split(
    method: Method,
    stored: &[u8],
    decoded: usize,
    pieces: &mut Vec<Piece>,
) -> Result<Option<u32>> {
    if decoded == 0 {
        return Err(NotForGpu("the chunk is empty"));
    }
    let limit = method.max_decodable();
    if decoded > limit || stored.len() > limit {
        return Err(NotForGpu("the chunk is too large for nvCOMP"));
    }
    let before = pieces.len();
    let result = match method {
        Method::Deflate => split_zlib(stored, decoded, pieces).map(Some),
        Method::Lz4 => split_lz4(stored, decoded, pieces).map(|()| None),
        Method::Zstd => split_zstd(stored, decoded, pieces).map(|()| None),
    };
    result.inspect_err(|_| pieces.truncate(before))
}

fn split_zlib(stored: &[u8], decoded: usize, pieces: &mut Vec<Piece>) -> Result<u32> {
    const DEFLATE: u8 = 8;
    const LARGEST_WINDOW: u8 = 7;
    const DICTIONARY: u8 = 0x20;
    let cut = NotForGpu("the zlib stream is truncated");
    let (&[method, flags], rest) = stored.split_first_chunk().ok_or(cut)?;
    let (deflate, &checksum) = rest.split_last_chunk().ok_or(cut)?;
    if deflate.is_empty() {
        return Err(cut);
    }
    if method & 0x0f != DEFLATE
        || method >> 4 > LARGEST_WINDOW
        || !u16::from_be_bytes([method, flags]).is_multiple_of(31)
    {
        return Err(NotForGpu("the chunk is not a zlib stream"));
    }
    if flags & DICTIONARY != 0 {
        return Err(NotForGpu("the zlib stream needs a dictionary"));
    }
    pieces.push(Piece {
        offset: 2,
        length: deflate.len(),
        decoded_offset: 0,
        decoded_length: decoded,
        raw: false,
    });
    Ok(u32::from_be_bytes(checksum))
}

fn split_lz4(stored: &[u8], decoded: usize, pieces: &mut Vec<Piece>) -> Result<()> {
    let cut = NotForGpu("the LZ4 chunk is truncated");
    let (&total, rest) = stored.split_first_chunk().ok_or(cut)?;
    let (&block_size, mut rest) = rest.split_first_chunk().ok_or(cut)?;
    let block_size = u32::from_be_bytes(block_size) as usize;
    if u64::from_be_bytes(total) != decoded as u64 {
        return Err(NotForGpu("the LZ4 chunk has another size"));
    }
    let single = block_size >= decoded;
    if !single && (block_size < SMALLEST_BLOCK || !block_size.is_multiple_of(ALIGNMENT)) {
        return Err(NotForGpu("the LZ4 blocks are small or unaligned"));
    }
    for decoded_offset in (0..decoded).step_by(block_size) {
        let (&length, after) = rest.split_first_chunk().ok_or(cut)?;
        let length = u32::from_be_bytes(length) as usize;
        let (_, behind) = after.split_at_checked(length).ok_or(cut)?;
        let decoded_length = block_size.min(decoded - decoded_offset);
        if length == 0 || length > decoded_length {
            return Err(NotForGpu("an LZ4 block has an invalid size"));
        }
        pieces.push(Piece {
            offset: stored.len() - after.len(),
            length,
            decoded_offset,
            decoded_length,
            raw: length == decoded_length,
        });
        rest = behind;
    }
    Ok(())
}

/// Checks that the chunk is one frame, which is neither truncated nor of another decoded size.
fn split_zstd(stored: &[u8], decoded: usize, pieces: &mut Vec<Piece>) -> Result<()> {
    const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
    const DICTIONARY: u8 = 0x03;
    const CHECKSUM: u8 = 0x04;
    const RESERVED: u8 = 0x08;
    const SINGLE_SEGMENT: u8 = 0x20;
    let cut = NotForGpu("the Zstd frame is truncated");
    let (&magic, rest) = stored.split_first_chunk().ok_or(cut)?;
    let (&flags, rest) = rest.split_first().ok_or(cut)?;
    if magic != MAGIC || flags & RESERVED != 0 {
        return Err(NotForGpu("the chunk is not a Zstd frame"));
    }
    if flags & (DICTIONARY | CHECKSUM) != 0 {
        return Err(NotForGpu("the Zstd frame has a dictionary or checksum"));
    }
    let single_segment = flags & SINGLE_SEGMENT != 0;
    let window_bytes = usize::from(!single_segment);
    let (_, rest) = rest.split_at_checked(window_bytes).ok_or(cut)?;
    let size_bytes = match flags >> 6 {
        0 => usize::from(single_segment),
        power => 1 << power,
    };
    let (size, mut rest) = rest.split_at_checked(size_bytes).ok_or(cut)?;
    if content_size(size) != Some(decoded as u64) {
        return Err(NotForGpu("the Zstd frame does not record the chunk's size"));
    }
    loop {
        let (&header, after) = rest.split_first_chunk::<3>().ok_or(cut)?;
        let (is_last, length) = zstd_block(header)?;
        (_, rest) = after.split_at_checked(length).ok_or(cut)?;
        if is_last {
            break;
        }
    }
    if !rest.is_empty() {
        return Err(NotForGpu("the chunk has more than one Zstd frame"));
    }
    pieces.push(Piece {
        offset: 0,
        length: stored.len(),
        decoded_offset: 0,
        decoded_length: decoded,
        raw: false,
    });
    Ok(())
}

/// The decoded size in a frame header, if the field is present.
fn content_size(field: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..field.len()].copy_from_slice(field);
    let size = u64::from_le_bytes(bytes);
    match field.len() {
        0 => None,
        2 => Some(size + 256),
        _ => Some(size),
    }
}

/// Whether a block is the last one, and how many bytes follow its header.
fn zstd_block(header: [u8; 3]) -> Result<(bool, usize)> {
    const RAW: u32 = 0;
    const RUN: u32 = 1;
    const COMPRESSED: u32 = 2;
    const LARGEST: u32 = 128 << 10;
    let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let size = header >> 3;
    let length = match header >> 1 & 3 {
        RAW | COMPRESSED if size <= LARGEST => size as usize,
        RUN if size <= LARGEST => 1,
        _ => return Err(NotForGpu("a Zstd block is damaged")),
    };
    Ok((header & 1 != 0, length))
}
