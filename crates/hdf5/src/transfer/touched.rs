//! What a prepared transfer has yet to touch.

use penstock_array::execute::{BoundPlan, PlanFile, PreparedTransfer, Sink, TransferKind};
use penstock_engine::error::Result;

use super::conflicts::{AccessSet, FileKey, key_of_file};

/// Returns whether nothing is left to do.
pub fn is_done(prepared: &PreparedTransfer) -> bool {
    matches!(prepared.kind, TransferKind::Nothing)
}

/// Returns the sides of the blocks of which unchanged elements are read and written back, if there
/// are any. Nothing else may write to a touched block while the write is in flight.
pub fn rewritten_blocks(prepared: &PreparedTransfer) -> Option<&[u64]> {
    match &prepared.kind {
        TransferKind::Write(bound, Sink::Blocks(_)) => bound.plan.rewritten(),
        _ => None,
    }
}

/// Returns whether the file of a dataset that is not virtual ends before the data to read.
pub fn is_cut_off(prepared: &PreparedTransfer) -> Result<bool> {
    match plans(prepared) {
        [bound] if bound.plan.end() != 0 && !bound.plan.is_in_segments() => {
            let size = bound.file(0)?.size()?;
            Ok(bound.plan.end() > size && bound.reaches_beyond(size)?)
        }
        _ => Ok(false),
    }
}

/// Returns whether HDF5 has read some elements during planning.
pub(super) fn has_been_given(prepared: &PreparedTransfer) -> bool {
    plans(prepared).iter().any(|bound| bound.given.is_some())
}

/// Returns what the transfer touches: `set` if that is known, else what HDF5 touches when it does
/// the transfer.
pub(super) fn sets(
    prepared: &PreparedTransfer,
    set: Option<&AccessSet>,
    by_hdf5: &AccessSet,
) -> Vec<AccessSet> {
    match &prepared.kind {
        TransferKind::Nothing => Vec::new(),
        TransferKind::Read(plans) => of_read(plans, set),
        TransferKind::Write(_, Sink::Dense(..)) => vec![by_hdf5.clone()],
        TransferKind::Plain { .. } | TransferKind::Write(..) => {
            let own = set.unwrap_or(by_hdf5).clone();
            vec![match rewritten_blocks(prepared) {
                Some(block) => own.of_blocks(block),
                None => own,
            }]
        }
    }
}

/// Returns what is still to be read.
fn of_read(plans: &[BoundPlan], set: Option<&AccessSet>) -> Vec<AccessSet> {
    let files: Vec<FileKey> = plans
        .iter()
        .flat_map(|bound| &bound.files)
        .filter_map(key_of)
        .collect();
    if files.is_empty() {
        return Vec::new();
    }
    let mut sets: Vec<AccessSet> = set.cloned().into_iter().collect();
    // Files other than the dataset's own, whose elements are more specific.
    if set.is_none() || plans.iter().any(|bound| bound.plan.is_in_segments()) {
        sets.push(AccessSet::Sources(files));
    }
    sets
}

fn key_of(file: &PlanFile) -> Option<FileKey> {
    match file {
        PlanFile::Open(file) => key_of_file(file),
        PlanFile::OnDemand(file) => Some(FileKey {
            number: None,
            identity: Some(file.identity()),
        }),
        PlanFile::Missing(_) => None,
    }
}

fn plans(prepared: &PreparedTransfer) -> &[BoundPlan] {
    match &prepared.kind {
        TransferKind::Read(plans) => plans,
        _ => &[],
    }
}
