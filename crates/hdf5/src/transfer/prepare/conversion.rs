//! The conversion of the elements of a transfer.

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;

use crate::conversion::Conversion;
use crate::dataset::DatasetInfo;
use crate::library::Session;
use crate::transfer::cache::CachedDataset;
use crate::transfer::request::DatasetTransfer;

/// Returns the conversion of the elements, or why HDF5 must convert them. `cached` is the cache
/// entry of the dataset of a read, if it has one.
pub(in crate::transfer) fn conversion_of(
    transfer: &DatasetTransfer<'_>,
    session: &Session<'_>,
    info: &DatasetInfo,
    cached: Option<&CachedDataset>,
) -> Result<std::result::Result<Conversion, String>> {
    let (dataset, memory_type) = (transfer.dataset, transfer.memory_type);
    let stored = (dataset, &info.element);
    match (cached, transfer.operation) {
        (Some(cached), _) => cached.conversion(session, dataset, memory_type),
        (None, Operation::Read) => Conversion::from_dataset(session, stored, memory_type),
        (None, Operation::Write) => Conversion::to_dataset(session, stored, memory_type),
    }
}
