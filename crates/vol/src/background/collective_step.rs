//! Carries out what [`protocol`](crate::protocol) plans: what a process finishes, and when it waits for the
//! others.

use std::iter;
use std::sync::Arc;

use penstock_engine::error::Result;

use super::closing::{finish_in_shared_file, pending_in_shared_file};
use super::dataset_call::DatasetCall;
use super::pending::conflicting_with;
use crate::protocol::{After, Call, Finish, Plan, plan};
use crate::shared_file::{Facts, SharedFile};
use crate::under::Under;
use penstock_hdf5::transfer::conflicts::{AccessSet, Pending, Shared};

/// Makes a call of HDF5 other than a transfer, as planned if processes share the file. They then make the
/// call together. `lengths` returns what the call may change: the end of the file, or an extent.
pub(crate) fn in_step<T>(
    under: &Under,
    call: Call,
    lengths: impl Fn() -> Option<Vec<u64>>,
    make: impl FnOnce() -> T,
) -> T {
    let Some(shared) = under.container.shared.get() else {
        return make();
    };
    let plan = plan(call, shared.state());
    if plan.finishes == Finish::File {
        finish_in_shared_file(under);
    }
    if plan.meets_before {
        shared.meet();
    }
    let changed: Option<fn(&u64, &u64) -> bool> = match plan.after {
        After::IfAllocated => Some(u64::lt),
        After::IfShrunk => Some(u64::gt),
        After::Never | After::UnlessContinues | After::Always => None,
    };
    let before = changed.and_then(|_| lengths());
    let made = make();
    let has_changed = || {
        let (changed, old, new) = (changed?, before?, lengths()?);
        Some(iter::zip(&old, &new).any(|(old, new)| changed(old, new)))
    };
    if plan.after == After::Always || has_changed() == Some(true) {
        shared.meet();
    }
    made
}

/// What remains to be done when a transfer is over in this process. An error of this process does not keep the
/// others waiting: dropping the value does the same.
#[derive(Default)]
pub(crate) struct End(Option<(Arc<SharedFile>, Meeting)>);

enum Meeting {
    Barrier,
    Agreement(Facts),
}

impl End {
    /// Agrees before a transfer, as planned. This process has finished what the plan names.
    ///
    /// # Errors
    /// As for [`SharedFile::agree`].
    pub(super) fn begin(
        under: &Under,
        shared: &Arc<SharedFile>,
        plan: Plan,
        own: Facts,
    ) -> Result<End> {
        let at_end = |meeting| Ok(End(Some((Arc::clone(shared), meeting))));
        let may_agree_last = plan.after == After::UnlessContinues;
        if !plan.meets_before {
            if !may_agree_last {
                return Ok(End::default());
            }
            // A process that continues has no end to agree at.
            if !own.has(Facts::CONTINUES) {
                return at_end(Meeting::Agreement(own));
            }
        }
        let is_left = |operation: &Shared| !operation.has_ended();
        let has_left = || pending_in_shared_file(under).iter().any(is_left);
        let has_left = shared.state().is_unfinished && has_left();
        let agreed = shared.agree(own.add_if(has_left, Facts::PENDING))?;
        let continues = agreed.has(Facts::CONTINUES);
        if plan.after == After::Always || may_agree_last && !continues {
            return at_end(Meeting::Barrier);
        }
        Ok(End::default())
    }

    /// # Errors
    /// Another process could not take part.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.reach()
    }

    fn reach(&mut self) -> Result<()> {
        match self.0.take() {
            None => {}
            // MPI-IO does not wait for the other processes at the end of a collective write.
            Some((shared, Meeting::Barrier)) => shared.meet(),
            Some((shared, Meeting::Agreement(own))) => drop(shared.agree(own)?),
        }
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.reach();
    }
}

/// Finishes this process's transfers, as planned for a call.
pub(super) fn finish(call: &DatasetCall<'_>, finishes: Finish) {
    if finishes == Finish::Nothing {
        return;
    }
    for (dataset, under) in call.datasets.iter().zip(call.unders) {
        let set = match (dataset.known_dataset_access(), under.container.shared.get()) {
            (Some(access), _) if finishes == Finish::File => AccessSet::File(access.key.file),
            (Some(access), _) => access.by_hdf5(call.kind_of_access()),
            (None, Some(shared)) => AccessSet::File(shared.key),
            (None, None) => continue,
        };
        conflicting_with(under, &set)
            .into_iter()
            .for_each(Pending::finish);
    }
}
