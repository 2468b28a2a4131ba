//! Chunks: how an array is cut into them, where they lie in the file, and a cache of decoded ones.

mod cache;
mod grid;
mod table;

pub use cache::{ChunkCache, ChunkKey};
pub use grid::{ChunkGrid, MAX_RANK};
pub use table::{ChunkTable, Entries, NO_STORAGE, StoredChunk, TableBuilder};
