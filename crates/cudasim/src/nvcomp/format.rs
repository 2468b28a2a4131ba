//! The formats of nvCOMP, implemented by codecs on the CPU.

use libdeflater::Decompressor;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A raw stream, without the header and checksum of zlib or gzip. Benchmarks decode it.
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

    /// Decodes a chunk and returns its decoded size; `None` if it is damaged or does not fit.
    pub fn decode(self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        match self {
            Format::Deflate => Decompressor::new().deflate_decompress(input, output).ok(),
            Format::Lz4 => lz4_flex::block::decompress_into(input, output).ok(),
            Format::Zstd => zstd::bulk::decompress_to_buffer(input, output).ok(),
        }
    }
}
