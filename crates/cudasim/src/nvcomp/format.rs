//! The formats of nvCOMP, implemented by codecs on the CPU.

use libdeflater::{CompressionLvl, Compressor, Decompressor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A raw stream, without the header and checksum of zlib or gzip.
    Deflate,
    /// A single block.
    Lz4,
    /// A single frame.
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

    /// An upper bound on the encoded size, for all of the encoders below.
    pub fn max_encoded(self, decoded: usize) -> usize {
        (decoded + decoded / 4 + 64).next_multiple_of(super::ALIGNMENT)
    }

    /// Decodes a chunk and returns its decoded size; `None` if it is damaged or does not fit.
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
