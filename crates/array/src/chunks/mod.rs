//! Chunks: how an array is cut into them, and where they lie in the file.

mod grid;
mod table;

pub use grid::{ChunkGrid, MAX_RANK};
pub use table::{ChunkTable, NO_STORAGE, StoredChunk, TableBuilder};
