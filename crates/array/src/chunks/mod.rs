//! Chunks: how an array is cut into them, where they lie in the file, and caches of decoded ones.

mod array_chunks;
mod cache;
mod grid;
mod table;

pub use array_chunks::ArrayChunks;
pub use cache::ChunkCache;
pub use grid::{ChunkGrid, MAX_RANK};
pub use table::{ChunkTable, Entries, NO_STORAGE, StoredChunk, TableBuilder};
