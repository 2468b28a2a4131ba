//! Access sets of a transfer: an estimate before planning, and what the plan still accesses.

use penstock_array::execute::{BoundPlan, PlanFile, PreparedTransfer, Sink, TransferKind};
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use super::access::{Access, AccessSet, FileKey, Region};
use super::file_identities::{key_of_file, key_of_object};
use crate::dataset::{DatasetInfo, Layout, dataspace};
use crate::library::Session;
use crate::transfer::request::FileSelection;

/// Returns the access set of a transfer before planning: `None` for a read of a virtual dataset, whose
/// sources are not known yet.
pub(in crate::transfer) fn access_set(
    session: &Session<'_>,
    (dataset, selected): (hid_t, FileSelection<'_>),
    info: &DatasetInfo,
    access: Access,
) -> Result<Option<AccessSet>> {
    match (&info.layout, access) {
        (Layout::Virtual(_), Access::Read) => return Ok(None),
        (Layout::Virtual(_) | Layout::External(_), Access::Write) => {
            return Ok(Some(AccessSet::All(access)));
        }
        _ => {}
    }
    let bounds = match selected {
        FileSelection::Space(H5S_ALL) => None,
        FileSelection::Space(space) => dataspace::bounds(session.hdf5, space),
        FileSelection::Elements(selection) => {
            selection.check(&info.shape)?;
            selection.bounds(&info.shape)
        }
    };
    let region = Region::between(bounds).of_chunks(info.chunk());
    Ok(Some(AccessSet::Elements {
        dataset: key_of_object(session, dataset, &info.file)?,
        region,
        access,
    }))
}

/// Returns what HDF5 accesses if it carries out the transfer itself.
pub(in crate::transfer) fn by_hdf5(set: Option<&AccessSet>, access: Access) -> AccessSet {
    match set {
        Some(set) => set.clone().by_hdf5(),
        None => AccessSet::All(access),
    }
}

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

/// Returns whether HDF5 has read some elements during planning.
pub(in crate::transfer) fn is_partly_read(prepared: &PreparedTransfer) -> bool {
    match &prepared.kind {
        TransferKind::Read(plans) => plans.iter().any(|bound| bound.given.is_some()),
        _ => false,
    }
}

/// Returns the access sets of a planned transfer: `set` if that is known, or else that of HDF5 itself.
pub(in crate::transfer) fn sets_of_plan(
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

/// Returns the access sets of reads that are not carried out yet.
fn of_read(plans: &[BoundPlan], set: Option<&AccessSet>) -> Vec<AccessSet> {
    let files = plans.iter().flat_map(|bound| &bound.files);
    let files: Vec<FileKey> = files.filter_map(key_of).collect();
    if files.is_empty() {
        return Vec::new();
    }
    let mut sets: Vec<AccessSet> = set.cloned().into_iter().collect();
    // Files besides that of the dataset, for whose elements `set` is more precise.
    if set.is_none() || plans.iter().any(|bound| bound.plan.is_in_segments()) {
        sets.push(AccessSet::Sources(files));
    }
    sets
}

fn key_of(file: &PlanFile) -> Option<FileKey> {
    match file {
        PlanFile::Open(file) => key_of_file(file),
        PlanFile::OnDemand(file) => Some(FileKey::of_identity(Some(file.identity()))),
        PlanFile::Missing(_) => None,
    }
}
