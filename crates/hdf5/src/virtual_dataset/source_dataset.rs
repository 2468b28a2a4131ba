//! A source dataset while it is resolved, what is cached of it, and where its bytes are.

use std::sync::Arc;

use penstock_array::{ChunkCache, ChunkTable};
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, TouchedChunks};
use crate::open_files::{Identity, SourceFile};

/// Why a read of a few chunks is left to HDF5.
pub(crate) const FEW_OF_MANY_CHUNKS: &str =
    "few chunks of a large index: HDF5 looks them up faster";

/// A source dataset while HDF5 has it open.
pub struct SourceDataset<'a> {
    /// The dataset.
    pub dataset: hid_t,
    /// Its file.
    pub file: hid_t,
    /// Its description.
    pub info: &'a DatasetInfo,
    /// Whether it is in the file of the virtual dataset.
    pub is_same_file: bool,
    /// The file of the virtual dataset that is read.
    pub reader: Identity,
}

/// What is kept of a source from one read to the next.
pub trait KeptSource: Send + Sync {
    /// Returns the chunk table, if it is known.
    fn table(&self) -> Option<Arc<ChunkTable>>;
    /// Keeps the chunk table.
    fn keep(&self, table: &Arc<ChunkTable>);
    /// Returns whether HDF5 reads this many chunks faster, and counts the request.
    fn is_for_hdf5(&self, touched: TouchedChunks) -> bool;
    /// Returns where decoded chunks are kept, and the number of the array there.
    fn decoded(&self) -> Option<(Arc<ChunkCache>, u64)>;
}

/// Returns what is kept of a source, if anything may be.
pub type Keeper<'a> = &'a dyn Fn(&SourceDataset<'_>) -> Option<Arc<dyn KeptSource>>;

/// Where the stored bytes of a part are.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this file, or in the files of an external layout.
    File(Arc<SourceFile>),
    /// In memory: all elements, as a plan of `Source::Memory` requires.
    Memory(Arc<Vec<u8>>),
    /// Nowhere: the plan only fills.
    None,
}
