//! A call that reads or writes datasets, and properties derived from its arguments.

use std::ffi::CStr;
use std::sync::Arc;

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::reach::Use;
use penstock_sys::cuda::cuda_is_loaded;
use penstock_sys::hdf5::connector::{H5I_DATASET, Req};
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use crate::dataspace::touched_bytes;
use crate::log::Execution;
use crate::policy::Policy;
use crate::temporary_id::TemporaryId;
use crate::under::Under;
use crate::wrapped::Wrapped;
use penstock_hdf5::transfer::conflicts::{Access, AccessSet};
use penstock_hdf5::transfer::{Planned, StoredDataset};

/// The arguments of a callback that reads or writes. Each slice has an entry for each dataset. Only
/// `unders` may be empty, for [`goes_below_at_once`](super::goes_below_at_once), which seldom needs
/// it.
pub(crate) struct DatasetCall<'a> {
    pub(crate) operation: Operation,
    pub(crate) datasets: &'a [&'a Wrapped],
    pub(crate) unders: &'a [Under],
    pub(crate) memory_types: &'a [hid_t],
    pub(crate) memory_spaces: &'a [hid_t],
    pub(crate) file_spaces: &'a [hid_t],
    pub(crate) list: hid_t,
    pub(crate) buffers: &'a [usize],
    pub(crate) req: Req,
    /// The descriptions of the datasets of a shared file; otherwise empty.
    pub(crate) stored: &'a [Arc<Planned<StoredDataset>>],
}

impl DatasetCall<'_> {
    pub(crate) fn name(&self) -> &'static CStr {
        match (self.operation, self.req.is_null()) {
            (Operation::Read, true) => c"H5Dread",
            (Operation::Read, false) => c"H5Dread_async",
            (Operation::Write, true) => c"H5Dwrite",
            (Operation::Write, false) => c"H5Dwrite_async",
        }
    }

    pub(crate) fn kind_of_access(&self) -> Access {
        match self.operation {
            Operation::Read => Access::Read,
            Operation::Write => Access::Write,
        }
    }

    /// Returns how the CPU uses the application's memory.
    pub(crate) fn use_of_memory(&self) -> Use {
        match self.operation {
            Operation::Read => Use::Write,
            Operation::Write => Use::Read,
        }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.datasets[0].container().policy
    }

    /// Returns whether the operation may continue after the call has returned.
    pub(crate) fn continues(&self) -> bool {
        !self.req.is_null()
            || (self.policy().settings.implicit && self.operation == Operation::Write)
    }

    /// Returns the failure of an earlier write without a request. A read may depend on that write,
    /// as may what the program does after a plain write. The event set of another write reports
    /// only that write.
    pub(crate) fn take_failures(&self) -> Result<()> {
        if self.req.is_null() || self.operation == Operation::Read {
            self.policy().failures.take()
        } else {
            Ok(())
        }
    }

    /// Returns whether a write that continues copies its buffer. Without a request, the application
    /// cannot know when it may reuse the buffer.
    pub(crate) fn is_copied(&self) -> bool {
        self.operation == Operation::Write
            && (!self.policy().settings.in_place || self.req.is_null())
    }

    /// Returns the dataspace of the memory. For H5S_ALL it is the dataspace of the file.
    pub(crate) fn memory_space(&self, at: usize) -> hid_t {
        match self.memory_spaces[at] {
            H5S_ALL => self.file_spaces[at],
            own => own,
        }
    }

    /// Returns the memory of each buffer. The result is empty if the process has not loaded CUDA,
    /// because all memory is then host memory.
    ///
    /// # Safety
    /// As for [`read_or_write`](super::read_or_write).
    pub(crate) unsafe fn memories(&self) -> Result<Vec<Memory>> {
        if cuda_is_loaded() {
            // SAFETY: the caller guarantees this.
            (0..self.buffers.len())
                .map(|at| unsafe { self.memory(at) })
                .collect()
        } else {
            Ok(Vec::new())
        }
    }

    /// Returns the memory that contains the elements of dataset `at`. The buffer's own address may
    /// be invalid, because only the selected elements must exist.
    ///
    /// # Safety
    /// As for [`read_or_write`](super::read_or_write).
    unsafe fn memory(&self, at: usize) -> Result<Memory> {
        let (dataset, space) = (self.datasets[at], self.memory_space(at));
        let (library, kind) = (dataset.library(), self.memory_types[at]);
        // SAFETY: the caller guarantees this; HDF5 checks the identifiers, and would print errors.
        let touched = library.keeping_errors(|| unsafe {
            if !dataset.last_ids.is_dataspace(library, space) {
                return None;
            }
            dataset.last_ids.size(library, kind)?;
            // The program may have changed the size since an earlier transfer.
            let element = (library.hdf5.H5Tget_size)(kind) as u64;
            touched_bytes(library, space, element)
        });
        let first = touched.map_or(0, |range| range.start as usize);
        Memory::at(self.buffers[at].wrapping_add(first))
    }

    pub(crate) fn log(&self, execution: Execution, bytes: u64, why: &str) {
        self.policy().log(self.name(), execution, bytes, why);
    }

    /// Makes an identifier and the access set of each dataset.
    ///
    /// # Safety
    /// As for [`read_or_write`](super::read_or_write).
    pub(crate) unsafe fn access_sets(&self) -> Result<Vec<(TemporaryId, AccessSet)>> {
        let set = |at: usize| {
            let under = &self.unders[at];
            // SAFETY: the caller guarantees this.
            unsafe {
                let id = TemporaryId::of(under, H5I_DATASET)?;
                let access = self.datasets[at].dataset_access(under, &id)?;
                let set = access.access_set(under, self.file_spaces[at], self.kind_of_access());
                Ok((id, set))
            }
        };
        (0..self.unders.len()).map(set).collect()
    }
}
