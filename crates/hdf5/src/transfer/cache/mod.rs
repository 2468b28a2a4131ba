//! Cache of datasets that cannot change: descriptions, chunk tables, decoded chunks, and open files.

mod cached_dataset;
mod chunk_tables;
mod dataset_key;
mod descriptions;
mod eligibility;
mod files;
mod forget;
mod idle_files;
mod lingering;
mod virtual_fits;
mod virtual_sources;

pub(super) use cached_dataset::CachedDataset;
pub(super) use chunk_tables::ChunkTables;
pub use descriptions::TransferDescription;
pub use forget::forget;
pub use idle_files::open_file;
pub use virtual_fits::{is_read_alike, refuse_misread};
pub(super) use virtual_sources::VirtualSources;
