//! Where writes end: the chunks or the contiguous storage of a dataset that HDF5 has open.

mod chunks;
mod contiguous;
mod written_dataset;

pub(super) use chunks::{ChunkWriter, StoredChunks};
pub(super) use contiguous::ContiguousStorage;
pub(super) use written_dataset::WrittenDataset;
