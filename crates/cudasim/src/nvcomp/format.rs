//! What the formats of nvCOMP are, by the CPU's codecs.

use libdeflater::{CompressionLvl, Compressor, Decompressor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Without zlib's or gzip's header and checksum.
    Deflate,
    /// One block.
    Lz4,
    /// One frame.
    Zstd,
}

impl Format {
    pub fn max_decodable(self) -> usize {
        match self {
            Format::Deflate | Format::Lz4 => u32::MAX as usize,
            Format::Zstd => i32::MAX as usize,
        }
    }

    pub fn max_encodable(self) -> usize {
        match self {
            Format::Deflate => 1 << 31,
            Format::Lz4 | Format::Zstd => 1 << 24,
        }
    }

    /// Room enough for each of the encoders below.
    pub fn max_encoded(self, decoded: usize) -> usize {
        (decoded + decoded / 4 + 64).next_multiple_of(super::ALIGNMENT)
    }

    /// The decoded size, or `None` for a chunk that is damaged or has no room.
    pub fn decode(self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        match self {
            Format::Deflate => Decompressor::new().deflate_decompress(input, output).ok(),
            Format::Lz4 => lz4_flex::block::decompress_into(input, output).ok(),
            Format::Zstd => zstd::bulk::decompress_to_buffer(input, output).ok(),
        }
    }

    pub fn encode(self, input: &[u8]) -> Option<Vec<u8>> {
        match self {
            Format::Deflate => {
                let mut output = vec![0; self.max_encoded(input.len())];
                let level = CompressionLvl::new(1).unwrap_or_default();
                let size = Compressor::new(level).deflate_compress(input, &mut output);
                output.truncate(size.ok()?);
                Some(output)
            }
            Format::Lz4 => Some(lz4_flex::block::compress(input)),
            Format::Zstd => zstd::bulk::compress(input, 1).ok(),
        }
    }
}
