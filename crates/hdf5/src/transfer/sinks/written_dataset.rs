//! The dataset of a write in flight, as its sink needs it.

use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::dataset::DatasetInfo;
use crate::library::Session;
use crate::transfer::hdf5_state::{flush_and_sync, may_flush};

/// The dataset that is written, by its identifier in HDF5. The submitter keeps it open.
#[derive(Clone)]
pub(in crate::transfer) struct WrittenDataset {
    pub hdf5: &'static Hdf5,
    pub dataset: hid_t,
    pub info: Arc<DatasetInfo>,
    /// Whether the file is flushed and synced at the end.
    pub is_durable: bool,
}

impl WrittenDataset {
    pub(in crate::transfer) fn new(
        session: &Session<'static>,
        dataset: hid_t,
        info: Arc<DatasetInfo>,
    ) -> WrittenDataset {
        WrittenDataset {
            hdf5: session.hdf5,
            dataset,
            info,
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
        if !self.is_durable {
            return Ok(());
        }
        flush_and_sync(session, self.dataset)
    }

    pub(in crate::transfer) fn named(&self, error: Error) -> Error {
        self.info.name_in(error).in_file(&self.info.file.name)
    }
}
