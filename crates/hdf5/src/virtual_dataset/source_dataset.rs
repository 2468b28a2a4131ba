//! A source dataset while it is resolved, its cache entry, and the place of its bytes.

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use penstock_array::{ArrayChunks, ChunkTable};
use penstock_engine::file::unchanged::Status;
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, TouchedChunks};
use crate::open_files::{Identity, SourceFile};

/// The reason why a read of a few chunks is left to HDF5.
pub(crate) const FEW_OF_MANY_CHUNKS: &str =
    "few chunks of a large index: HDF5 looks them up faster";

/// A source dataset while HDF5 has it open.
pub struct SourceDataset<'a> {
    /// Identifier of the dataset.
    pub dataset: hid_t,
    /// Identifier of its file.
    pub file: hid_t,
    /// Description of the dataset.
    pub info: &'a DatasetInfo,
    /// The path by which the source file was found; `None` for the file of the virtual dataset.
    pub path: Option<&'a Path>,
    /// The file there. The dataset is in another one if HDF5 has reached it by an external link.
    pub found: Identity,
    /// Its name there.
    pub name: &'a CStr,
    /// Identity of the file of the virtual dataset that is read.
    pub reader: Identity,
}

/// The cache entry of a source.
pub trait CachedSource: Send + Sync {
    /// Returns the chunk table, if it is known.
    fn table(&self) -> Option<Arc<ChunkTable>>;
    /// Adds the chunk table.
    fn add_table(&self, table: &Arc<ChunkTable>);
    /// Returns whether HDF5 reads the touched chunks faster than it lists the index. Counts the request.
    fn is_for_hdf5(&self, touched: TouchedChunks) -> bool;
    /// Returns the cache of the dataset's decoded chunks.
    fn decoded(&self) -> Option<Arc<ArrayChunks>>;
    /// Keeps what a later read needs in place of HDF5's dataset: its description, and its file.
    fn keep(&self, info: &Arc<DatasetInfo>, file: &Arc<SourceFile>);
}

/// A source that need not be opened by HDF5.
pub struct KeptSource {
    /// Description of the dataset.
    pub info: Arc<DatasetInfo>,
    /// Its file.
    pub file: Arc<SourceFile>,
    /// Its cache entry, which has the chunk table.
    pub cached: Arc<dyn CachedSource>,
}

/// The cache of the sources of virtual datasets.
pub trait SourceCache {
    /// Returns the cache entry of a source; `None` if the source may not be cached.
    fn entry(&self, source: &SourceDataset<'_>) -> Option<Arc<dyn CachedSource>>;
    /// Returns the source of this name in a file of this settled status, if it is kept and cannot have changed.
    fn kept(&self, status: &Status, name: &CStr) -> Option<KeptSource>;
}

/// The place of the stored bytes of a part.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this file, or in the files of an external layout.
    File(Arc<SourceFile>),
    /// In memory: all elements, as a plan of `Source::Memory` requires.
    Memory(Arc<Vec<u8>>),
    /// Nowhere: the plan only fills.
    None,
}
