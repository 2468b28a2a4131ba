//! Plans a transfer without HDF5 if that is possible, and through HDF5 otherwise.

use std::sync::Arc;

use penstock_array::execute::{Beforehand, PreparedTransfer};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;

use super::outcome::{OrStop, Planned, Refused, Stop, finished, prepared};
use super::{read, through_hdf5, write};
use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use crate::transfer::cache::TransferDescription;
use crate::transfer::request::{DatasetTransfer, HostBuffer};
use crate::virtual_dataset::refuse_misfits;

/// Plans a transfer of a described dataset. If only HDF5 can carry it out, HDF5 accesses `host` directly,
/// or temporary memory if it must not access the buffer. `before_hdf5` is called before HDF5 reads or
/// writes.
///
/// # Safety
/// `host` is valid for what the transfer describes.
pub unsafe fn prepare(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    described: impl Into<TransferDescription>,
    host: HostBuffer,
    before_hdf5: &dyn Fn(),
) -> Result<PreparedTransfer> {
    let mut described = described.into();
    match plan(session, transfer, &mut described)? {
        Ok(prepared) => Ok(prepared),
        Err(Refused(why)) => {
            before_hdf5();
            let info = Arc::new(described.info);
            // SAFETY: upheld by the caller.
            let (kind, memory, moved) =
                unsafe { through_hdf5::prepare(session, transfer, &info, host)? };
            let beforehand = Beforehand {
                moved,
                by: Path::Hdf5,
                note: Some(format!("through HDF5 in host memory: {why}")),
            };
            Ok(prepared(transfer, &info, kind, &memory, beforehand))
        }
    }
}

/// Plans a transfer of the dataset that `info` describes, or returns why only HDF5 can carry it out.
pub fn prepare_or_refuse(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: DatasetInfo,
) -> Result<Planned<PreparedTransfer>> {
    if transfer.operation == Operation::Write
        && let Some(why) = write::filter_left_out(session, &info)
    {
        return Ok(Err(Refused(why)));
    }
    plan(session, transfer, &mut info.into())
}

/// Plans a transfer. The description is updated where HDF5 had to flush changes first.
fn plan(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    described: &mut TransferDescription,
) -> Result<Planned<PreparedTransfer>> {
    let planned = match transfer.operation {
        Operation::Read => read::plan(session, transfer, described)
            .or_else(|stop| before_hdf5_reads(session, transfer, &described.info, stop)),
        Operation::Write => write::plan(session, transfer, &mut described.info),
    };
    finished(transfer, &described.info, planned)
}

/// Refuses a read that is left to HDF5 if HDF5 would read other elements.
fn before_hdf5_reads<T>(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
    stop: Stop,
) -> OrStop<T> {
    if let (Stop::Refused(_), Layout::Virtual(_)) = (&stop, &info.layout)
        && let Ok(selection) = transfer.file_selection(session, info)
    {
        refuse_misfits(
            session,
            transfer.dataset,
            &Arc::new(info.clone()),
            &selection,
        )?;
    }
    Err(stop)
}
