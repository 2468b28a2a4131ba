//! What the processes that share a file agree on in a collective transfer.
//! [`shared_io`](super::shared_io) says when.

use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;

use super::dataset_call::DatasetCall;
use super::pending::conflicting_with;
use crate::agreement::of_another;
use crate::shared_file::{Alone, Before, Facts, SharedFile};
use crate::under::Under;
use penstock_hdf5::transfer::conflicts::{AccessSet, Pending};

/// A collective transfer, for which the processes wait for each other.
pub(super) struct Step {
    operation: Operation,
    /// The shared files of the call, in the order of its datasets.
    pub(super) files: Vec<Arc<SharedFile>>,
    /// The tokens of the datasets that this process has described.
    datasets: Vec<[u8; 16]>,
}

impl Step {
    pub(super) fn of(call: &DatasetCall<'_>) -> Step {
        let access = call.datasets.iter().map(|it| it.known_dataset_access());
        let datasets: Vec<[u8; 16]> = access.flatten().map(|access| access.key.token).collect();
        Step {
            operation: call.operation,
            files: shared_files(call),
            datasets,
        }
    }

    /// Finishes the transfers of this process that a transfer of any process may conflict with.
    pub(super) fn finish_conflicting(&self, call: &DatasetCall<'_>) -> Before {
        let files = self.files.iter();
        let before = files.map(|file| file.conflicts_before(self.operation, &self.datasets));
        let before = before.max().unwrap_or(Before::Nothing);
        if before != Before::Nothing {
            finish_conflicting(call, before == Before::File);
        }
        before
    }

    /// Waits until all processes have called this. Returns what holds in any of them.
    ///
    /// # Errors
    /// The call fails in all processes, because another process cannot take part.
    pub(super) fn agree(&self, own: Facts, before: Before) -> Result<Facts> {
        let mut agreed = own;
        for file in &self.files {
            agreed = file.agree(agreed);
        }
        if agreed.failed {
            return Err(of_another());
        }
        if agreed.together && agreed.alone {
            return Err(
                Error::invalid("the processes found different storage of the dataset")
                    .remedy("close the dataset in all processes and open it again"),
            );
        }
        for file in &self.files {
            file.has_met(before, &self.datasets);
        }
        Ok(agreed)
    }

    /// Returns what follows the transfer, on which the processes have agreed.
    pub(super) fn end(&self, agreed: Facts) -> End {
        if !agreed.continues {
            return End::meeting(&self.files);
        }
        for file in &self.files {
            file.continues(self.operation, &self.datasets);
        }
        End::default()
    }
}

/// What remains to be done when a collective transfer is over in this process. An error of this process
/// does not keep the others waiting: dropping the value does the same.
#[derive(Default)]
pub(crate) struct End {
    agreement: Option<(Step, Facts)>,
    /// The processes meet when it is dropped.
    _meetings: Vec<Alone>,
}

impl End {
    pub(super) fn meeting(files: &[Arc<SharedFile>]) -> End {
        End {
            agreement: None,
            _meetings: files.iter().map(Alone::at_end).collect(),
        }
    }

    pub(super) fn agreement(step: Step, own: Facts) -> End {
        End {
            agreement: Some((step, own)),
            _meetings: Vec::new(),
        }
    }

    /// # Errors
    /// Another process could not take part.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.agree()
    }

    fn agree(&mut self) -> Result<()> {
        let Some((step, own)) = self.agreement.take() else {
            return Ok(());
        };
        let agreed = step.agree(own, Before::Nothing)?;
        if agreed.continues {
            drop(step.end(agreed));
        }
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.agree();
    }
}

/// Returns the shared files of a call, in the order of its datasets.
fn shared_files(call: &DatasetCall<'_>) -> Vec<Arc<SharedFile>> {
    let mut files: Vec<Arc<SharedFile>> = Vec::new();
    let shared = |under: &'_ Under| under.container.shared.get().cloned();
    for file in call.unders.iter().filter_map(shared) {
        if !files.iter().any(|other| Arc::ptr_eq(other, &file)) {
            files.push(file);
        }
    }
    files
}

/// Finishes this process's transfers that conflict with the call, in its datasets or in their
/// files.
pub(super) fn finish_conflicting(call: &DatasetCall<'_>, in_files: bool) {
    for (dataset, under) in call.datasets.iter().zip(call.unders) {
        let set = match (dataset.known_dataset_access(), under.container.shared.get()) {
            (Some(access), _) if in_files => AccessSet::File(access.key.file),
            (Some(access), _) => access.by_hdf5(call.kind_of_access()),
            (None, Some(shared)) => AccessSet::File(shared.key),
            (None, None) => continue,
        };
        conflicting_with(under, &set)
            .into_iter()
            .for_each(Pending::finish);
    }
}
