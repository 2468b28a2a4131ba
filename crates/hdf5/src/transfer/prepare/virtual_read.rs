//! Plans a read of a virtual dataset as reads of its sources.

use std::cell::Cell;
use std::sync::Arc;

use penstock_array::execute::{BoundPlan, InMemory};
use penstock_array::{MemoryLayout, Selection};
use penstock_codec::convert::TypeConversion;
use penstock_engine::error::Error;

use super::files::files;
use super::hdf5_only::{known_filters, refuse_cut_off};
use super::outcome::{OrStop, Stop, refused};
use crate::conversion::{Conversion, byte_order};
use crate::dataset::{DatasetInfo, FileType, Layout, MemoryType};
use crate::library::Session;
use crate::transfer::cache::VirtualSources;
use crate::transfer::request::{DatasetTransfer, bound};
use crate::virtual_dataset::{Mapping, Resolution, SourceCache, Store, resolve};

/// Plans reads of the datasets that a virtual dataset consists of.
pub(in crate::transfer) fn virtual_parts(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    memory: &MemoryLayout,
    conversion: &Conversion,
) -> OrStop<Vec<BoundPlan>> {
    let memory_type = MemoryType::read(session, transfer.memory_type)?;
    // Conversions from other types than that of the virtual dataset were not tried with this HDF5,
    // so only those that keep the numbers unchanged are used.
    let is_unsound = Cell::new(false);
    let conversion_of = |element: &FileType| {
        if *element == info.element {
            return Some(*conversion);
        }
        if let Some(rules) = transfer.decode {
            // HDF5 converts the numbers of another type before they can be decoded.
            let same = Conversion::same_numbers(element, &info.element);
            let decoded = same.then(|| Conversion::decoded(element, &memory_type, rules));
            return decoded?.ok();
        }
        is_unsound.set(is_unsound.get() || byte_order::is_unsound(&memory_type, element));
        let found = Conversion::between(element, &memory_type).ok()?;
        (!matches!(found.values, TypeConversion::Convert { .. })).then_some(found)
    };
    let mapping = |element: &FileType| conversion_of(element).map(|found| found.element);
    let sources = VirtualSources::of(session);
    let with = (&mapping as Mapping<'_>, &sources as &dyn SourceCache);
    let parts = match resolve(session, transfer.dataset, info, selection, memory, with)? {
        Resolution::Parts(parts) => parts,
        Resolution::Hdf5(_) if is_unsound.get() => return Err(Stop::Failed(unsound(info))),
        Resolution::Hdf5(why) => return refused(why),
    };
    let mut plans = Vec::with_capacity(parts.len());
    for part in parts {
        known_filters(&part.info)?;
        let (files, given) = match &part.store {
            Store::None => (Vec::new(), None),
            Store::Memory(elements) => {
                let bytes = Arc::clone(elements);
                let path = penstock_engine::report::Path::Hdf5;
                (Vec::new(), Some(InMemory { bytes, path }))
            }
            Store::File(_) if matches!(part.info.layout, Layout::External(_)) => {
                (files(&part.info)?, None)
            }
            Store::File(source) => (vec![source.of_plan()], None),
        };
        let conversion =
            conversion_of(&part.info.element).map_or(TypeConversion::Copy, |found| found.values);
        let mut bound = BoundPlan {
            given,
            ..bound(part.plan, files, conversion, &transfer.options)
        };
        if let Some(cache) = part.decoded {
            bound.keep_in(cache);
        }
        refuse_cut_off(&bound, &part.info)?;
        plans.push(bound);
    }
    Ok(plans)
}

fn unsound(info: &DatasetInfo) -> Error {
    let cause = "HDF5 converts integers with fewer bits than their bytes wrongly to the other byte \
                 order, and a source of this virtual dataset has such elements";
    let error = Error::invalid(cause);
    info.name_in(error.remedy("read the sources, or give the virtual dataset their type"))
}
