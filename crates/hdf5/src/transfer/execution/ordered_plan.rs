//! Plans a transfer after the pending operations with which it conflicts.

use penstock_array::execute::PreparedTransfer;
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;

use crate::dataset::DatasetInfo;
use crate::library::Session;
use crate::transfer::cache::TransferDescription;
use crate::transfer::conflicts::{
    Access, AccessSet, access_set, by_hdf5, finish_before, is_partly_read, sets_of_plan,
};
use crate::transfer::prepare::prepare;
use crate::transfer::request::{DatasetTransfer, HostBuffer};

/// Plans a transfer after the pending operations with which it conflicts. Also returns its access sets,
/// which are empty if nothing is left to do.
///
/// # Safety
/// As for [`start`](super::start).
pub(in crate::transfer) unsafe fn prepare_in_order(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    host: HostBuffer,
) -> Result<(PreparedTransfer, Vec<AccessSet>)> {
    let hdf5 = session.hdf5;
    let access = match transfer.operation {
        Operation::Read => Access::Read,
        Operation::Write => Access::Write,
    };
    let mut described = describe_for(session, transfer)?;
    let set = access_set(
        session,
        (transfer.dataset, transfer.file_selection),
        &described.info,
        access,
    )?;
    if set.as_ref().is_some_and(|set| finish_before(hdf5, set) > 0) {
        // A pending operation may have allocated the storage.
        described = describe_for(session, transfer)?;
    }
    let by_hdf5 = by_hdf5(set.as_ref(), access);
    let before_hdf5 = || {
        finish_before(hdf5, &by_hdf5);
    };
    loop {
        // SAFETY: upheld by the caller.
        let prepared = unsafe { prepare(session, transfer, described, host, &before_hdf5)? };
        let sets = sets_of_plan(&prepared, set.as_ref(), &by_hdf5);
        // What HDF5 has read during planning was read before these waits, so its conflicts count as
        // well.
        let given = is_partly_read(&prepared).then(|| by_hdf5.clone());
        let first = given.iter().chain(&sets);
        let waited: usize = first.map(|set| finish_before(hdf5, set)).sum();
        // The sources of a virtual dataset are known only after planning, so they may have changed
        // meanwhile.
        if waited == 0 || set.is_some() {
            return Ok((prepared, sets));
        }
        described = describe_for(session, transfer)?;
    }
}

/// Describes the dataset of a transfer. Only reads use the cache, which has no dataset that can be
/// written.
fn describe_for(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
) -> Result<TransferDescription> {
    match transfer.operation {
        Operation::Read => TransferDescription::of(session, transfer.dataset),
        Operation::Write => {
            DatasetInfo::read(session, transfer.dataset).map(TransferDescription::from)
        }
    }
}
