//! The dataset of a write in flight, as its sink needs it.

use std::path::PathBuf;

use penstock_array::{StoredSize, in_dataset};
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use crate::transfer::hdf5_state::{flush_and_sync, may_flush};

/// The dataset that is written, by its identifier in HDF5. The submitter keeps it open.
#[derive(Clone)]
pub(in crate::transfer) struct WrittenDataset {
    pub hdf5: &'static Hdf5,
    pub dataset: hid_t,
    /// Name of the dataset, for errors.
    pub name: String,
    /// Name of the file, for errors.
    pub path: PathBuf,
    pub shape: Vec<u64>,
    pub max_shape: Vec<Option<u64>>,
    /// Empty if the dataset is not chunked.
    pub chunk: Vec<u64>,
    pub element: StoredSize,
    pub has_filters: bool,
    /// Whether chunks may be stored without some of the filters.
    pub may_skip_filters: bool,
    /// Whether the file is flushed and synced at the end.
    pub is_durable: bool,
}

impl WrittenDataset {
    pub(in crate::transfer) fn new(
        session: &Session<'static>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> WrittenDataset {
        WrittenDataset {
            hdf5: session.hdf5,
            dataset,
            name: info.name.clone(),
            path: info.file.name.clone(),
            shape: info.shape.clone(),
            max_shape: info.max_shape.clone(),
            chunk: match &info.layout {
                Layout::Chunked { chunk, .. } => chunk.clone(),
                _ => Vec::new(),
            },
            element: info.element.size(),
            has_filters: !info.filters.is_empty(),
            may_skip_filters: info.filters.iter().any(|filter| filter.optional),
            is_durable: false,
        }
    }

    /// # Safety
    /// This thread may call HDF5 until the session is dropped.
    pub(in crate::transfer) unsafe fn session(&self) -> Session<'static> {
        // SAFETY: upheld by the caller.
        unsafe { Session::begin(self.hdf5) }
    }

    /// Returns whether this thread can end the write now.
    pub(in crate::transfer) fn may_finish(&self) -> bool {
        !self.is_durable || may_flush()
    }

    /// Ends a write in a submitter step, on whose thread the submitter guarantees that HDF5 may be
    /// called.
    pub(in crate::transfer) fn finish_in_step(&self) -> Result<()> {
        // SAFETY: the submitter guarantees that HDF5 may be called on the thread of the step.
        let session = unsafe { self.session() };
        self.make_durable(&session)
    }

    /// Flushes HDF5's buffers and syncs the file, if the write is durable.
    pub(in crate::transfer) fn make_durable(&self, session: &Session<'_>) -> Result<()> {
        if self.is_durable {
            flush_and_sync(session, self.dataset)
        } else {
            Ok(())
        }
    }

    pub(in crate::transfer) fn named(&self, error: Error) -> Error {
        in_dataset(error, &self.name).in_file(&self.path)
    }
}

impl std::fmt::Debug for WrittenDataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrittenDataset")
            .field("dataset", &self.dataset)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
