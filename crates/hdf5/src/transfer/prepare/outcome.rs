//! The outcome of planning: a transfer, or the reason why only HDF5 can carry it out.

use penstock_array::MemorySide;
use penstock_array::execute::{Beforehand, PreparedTransfer, TransferKind};
use penstock_engine::error::{Error, Result};

use crate::dataset::DatasetInfo;
use crate::transfer::request::DatasetTransfer;

/// The reason why only HDF5 can carry out a transfer.
pub struct Refused(pub String);

/// A plan, or the reason why only HDF5 can carry out the transfer.
pub type Planned<T> = std::result::Result<T, Refused>;

pub(in crate::transfer) enum Stop {
    Refused(Refused),
    Failed(Error),
}

pub(in crate::transfer) type OrStop<T> = std::result::Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Refuses a transfer whose file could not be opened because no descriptor is left. HDF5 can carry it out
/// by its own descriptor.
pub(in crate::transfer) fn or_hdf5<T>(file: Result<T>) -> OrStop<T> {
    file.or_else(|error| {
        if error.is_out_of_descriptors() {
            refused("no file descriptor is left")
        } else {
            Err(Stop::Failed(error))
        }
    })
}

pub(in crate::transfer) fn refused<T>(why: impl Into<String>) -> OrStop<T> {
    Err(Stop::Refused(Refused(why.into())))
}

/// Makes a prepared transfer of a plan, if there is one.
pub(in crate::transfer) fn finished(
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
    planned: OrStop<(TransferKind, MemorySide)>,
) -> Result<Planned<PreparedTransfer>> {
    match planned {
        Ok((kind, memory)) => Ok(Ok(prepared(
            transfer,
            info,
            kind,
            &memory,
            Beforehand::default(),
        ))),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(why)) => Ok(Err(why)),
    }
}

pub(in crate::transfer) fn prepared(
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
    kind: TransferKind,
    memory: &MemorySide,
    beforehand: Beforehand,
) -> PreparedTransfer {
    PreparedTransfer {
        kind,
        direction: transfer.operation,
        low: memory.low,
        length: memory.layout.length,
        path: info.file.name.clone(),
        beforehand,
    }
}
