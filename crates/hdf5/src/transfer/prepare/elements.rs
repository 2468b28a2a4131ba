//! The elements of a transfer: selection, memory and conversion.

use penstock_array::{MemorySide, Selection};
use penstock_engine::file::position::Operation;

use super::outcome::{OrStop, refused};
use crate::conversion::Conversion;
use crate::dataset::{DatasetInfo, MemoryType};
use crate::library::Session;
use crate::transfer::cache::CachedDataset;
use crate::transfer::request::DatasetTransfer;

/// Returns the elements that a transfer moves without HDF5. `cached` is the cache entry of the dataset of a
/// read, if it has one.
pub(in crate::transfer) fn elements(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
    cached: Option<&CachedDataset>,
) -> OrStop<(Selection, MemorySide, Conversion)> {
    let (dataset, memory_type) = (transfer.dataset, transfer.memory_type);
    let (stored, operation) = ((dataset, &info.element), transfer.operation);
    let conversion = match (transfer.decode, cached, operation) {
        (Some(rules), ..) => {
            let wanted = MemoryType::read(session, memory_type)?;
            let decoded = Conversion::decoded(&info.element, &wanted, rules);
            Ok(decoded.map_err(|error| info.name_in(error))?)
        }
        (None, Some(cached), _) => cached.conversion(session, dataset, memory_type)?,
        (None, None, Operation::Read) => Conversion::from_dataset(session, stored, memory_type)?,
        (None, None, Operation::Write) => Conversion::to_dataset(session, stored, memory_type)?,
    };
    let conversion = conversion.or_else(refused)?;
    if transfer.is_of_another_shape(session, info)? {
        return refused("the shape of the dataspace differs from that of the dataset");
    }
    let element = conversion.element.memory(operation);
    let (selection, memory) = transfer.selections(session, info, element)?;
    Ok((selection, memory, conversion))
}
