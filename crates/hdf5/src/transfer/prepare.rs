//! A transfer planned: what it takes to carry it out, or why only HDF5 can do it.

use penstock_array::execute::{Beforehand, PreparedTransfer, TransferKind};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;

use super::request::{DatasetTransfer, MemorySide};
use super::{read, through_hdf5, write};
use crate::dataset::DatasetInfo;
use crate::library::Session;

/// What only HDF5 can do, and why.
pub struct Refused(pub String);

/// A plan, unless only HDF5 can do it.
pub type Planned<T> = std::result::Result<T, Refused>;

/// Why planning has ended.
pub(super) enum Stop {
    Refused(Refused),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

pub(super) fn refused<T>(why: impl Into<String>) -> std::result::Result<T, Stop> {
    Err(Stop::Refused(Refused(why.into())))
}

/// Plans a transfer. `host` is the buffer if it is in host memory and, for a write, holds its final
/// contents; else null. HDF5 then reads or writes there what it must by itself; otherwise in memory of
/// its own. `before_hdf5` is called before HDF5 reads or writes.
///
/// # Safety
/// `host` is null or valid for what the transfer describes.
pub unsafe fn prepare(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    host: *mut u8,
    before_hdf5: &dyn Fn(),
) -> Result<PreparedTransfer> {
    let mut info = transfer.info(session)?;
    match plan(session, transfer, &mut info)? {
        Ok(prepared) => Ok(prepared),
        Err(Refused(why)) => {
            before_hdf5();
            // SAFETY: passed on.
            unsafe { through_hdf5::prepare(session, transfer, &info, host, why) }
        }
    }
}

/// Plans a transfer, or says why only HDF5 can do it.
pub fn prepare_or_refuse(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
) -> Result<Planned<PreparedTransfer>> {
    let mut info = transfer.info(session)?;
    if transfer.operation == Operation::Write
        && let Some(why) = write::filter_left_out(session, &info)
    {
        return Ok(Err(Refused(why)));
    }
    plan(session, transfer, &mut info)
}

/// `info` is what the dataset is, and is read again where HDF5 had to write some of it first.
fn plan(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
) -> Result<Planned<PreparedTransfer>> {
    let planned = match transfer.operation {
        Operation::Read => read::plan(session, transfer, info),
        Operation::Write => write::plan(session, transfer, info),
    };
    match planned {
        Ok(prepared) => Ok(Ok(prepared)),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(why)) => Ok(Err(why)),
    }
}

/// A transfer of which nothing was done while it was planned.
pub(super) fn prepared(
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
    memory: &MemorySide,
    kind: TransferKind,
) -> PreparedTransfer {
    PreparedTransfer {
        kind,
        direction: transfer.operation,
        low: memory.low,
        length: memory.layout.length,
        path: info.file.name.clone(),
        beforehand: Beforehand {
            moved: 0,
            by: Path::Hdf5,
            note: None,
        },
    }
}
