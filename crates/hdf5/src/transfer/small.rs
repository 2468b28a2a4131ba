//! Small reads of datasets that cannot change: planned, and carried out by the calling thread.

use std::sync::Arc;

use penstock_array::execute::{BoundPlan, SmallRead, SmallReadOrder, SubmitOptions};
use penstock_array::{Plan, Selection, StoredArray};
use penstock_codec::Pipeline;
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::Direct;
use penstock_engine::merged_options;
use penstock_engine::request::MOST_AT_ONCE;
use penstock_sys::hdf5::{H5S_ALL, Hdf5, hid_t};

use super::conflicts::{Access, AccessSet, Region, before_or};
use super::kept::Kept;
use super::request::{DatasetTransfer, FileSelection, MemoryShape, MemorySide};
use super::{Buffer, inside, unresolved};
use crate::conversion::Conversion;
use crate::dataset::Layout;
use crate::library::Session;

/// Plans small reads of one dataset that cannot change, without calling HDF5.
pub struct Reader {
    hdf5: &'static Hdf5,
    kept: Arc<Kept>,
    conversion: Conversion,
}

impl Reader {
    /// Returns a reader of elements of type `memory_type`; `None` if the dataset can change, if only
    /// HDF5 can read it, or if something is wrong with it, which [`start`](super::start) tells.
    ///
    /// # Safety
    /// This thread may call HDF5.
    pub unsafe fn open(hdf5: &'static Hdf5, dataset: hid_t, memory_type: hid_t) -> Option<Reader> {
        inside(hdf5, || {
            // SAFETY: the caller may call HDF5, and no other thread comes between.
            let session = unsafe { Session::begin(hdf5) };
            let kept = Kept::of(&session, dataset)?;
            let filters = kept.info.filters.clone();
            if (Pipeline { filters }).unknown().is_some() {
                return None;
            }
            let conversion = kept.conversion(&session, dataset, memory_type).ok()?.ok()?;
            // Reads the chunk table.
            kept.array(&session, dataset).ok()?;
            Some(Reader {
                hdf5,
                kept,
                conversion,
            })
        })
    }

    /// Returns the shape of the dataset.
    pub fn shape(&self) -> &[u64] {
        &self.kept.info.shape
    }

    /// Plans a read that the calling thread carries out sooner than workers would; `None` for all
    /// others. `selection` is `None` for all elements. The read may come after HDF5 has closed the
    /// dataset.
    pub fn plan(
        &self,
        selection: Option<&Selection>,
        (shape, strides): (&[u64], Option<&[i64]>),
        buffer: &Buffer,
        with: &SubmitOptions,
    ) -> Option<SmallRead> {
        let after = match with.stream {
            Some(order) if order.before => return None,
            Some(order) => Some(order.stream),
            None => None,
        };
        if self.kept.is_forgotten() {
            return None;
        }
        let options = merged_options(with.options).ok()?;
        let info = &self.kept.info;
        let selection = match selection {
            None => Selection::all(&info.shape),
            Some(some) => {
                some.check(&info.shape).ok()?;
                some.clone()
            }
        };
        if !unresolved::is_none() && self.is_late(&selection) {
            return None;
        }
        let element = self.conversion.element;
        let memory = MemorySide::of_array(&selection, shape, strides, element.target).ok()?;
        // What memory is at the address is known of the lowest byte alone.
        let is_known = buffer.address != 0 && memory.low == 0;
        if !is_known || memory.layout.length > MOST_AT_ONCE {
            return None;
        }
        let is_dense = memory.has_no_gaps(&selection, element.target);
        let array: &StoredArray = self.kept.known_array()?;
        let plan = Plan::new(array, selection, &memory.layout, element, Operation::Read).ok()?;
        SmallRead::prepare(SmallReadOrder {
            bound: BoundPlan {
                plan: Arc::new(plan),
                files: vec![Ok(self.kept.file_for_small_read().ok()?)],
                conversion: self.conversion.values,
                direct: Direct::Never,
                given: None,
            },
            address: buffer.address,
            length: memory.layout.length,
            is_dense,
            memory: buffer.memory.clone(),
            options,
            after,
            cache: Some((Arc::clone(&self.kept.chunks), self.kept.number)),
        })
    }

    /// Returns whether a pending operation comes before a read of these elements: of a write through
    /// another copy of HDF5, for instance.
    fn is_late(&self, selection: &Selection) -> bool {
        let chunk: &[u64] = match &self.kept.info.layout {
            Layout::Chunked { chunk, .. } => chunk,
            _ => &[],
        };
        let set = AccessSet::Elements {
            dataset: self.kept.key,
            region: Region::between(selection.bounds(&self.kept.info.shape)).of_chunks(chunk),
            access: Access::Read,
        };
        !before_or(self.hdf5, &set, |_| false).is_empty()
    }
}

/// Plans a read that the calling thread carries out sooner than workers would. `None` for all other
/// transfers: [`start`](super::start) then carries them out, or tells what is wrong.
///
/// # Safety
/// This thread may call HDF5. The dataset is open.
pub unsafe fn small_read(
    hdf5: &'static Hdf5,
    transfer: &DatasetTransfer<'_>,
    buffer: &Buffer,
    with: &SubmitOptions,
) -> Option<SmallRead> {
    let MemoryShape::Array { shape, strides } = transfer.shape else {
        return None;
    };
    let selection = match transfer.file_selection {
        FileSelection::Space(H5S_ALL) => None,
        FileSelection::Space(_) => return None,
        FileSelection::Elements(selection) => Some(selection),
    };
    let is_read = transfer.operation == Operation::Read && with.owner.is_none();
    if !is_read || transfer.transfer_list != 0 {
        return None;
    }
    // SAFETY: upheld by the caller.
    let reader = unsafe { Reader::open(hdf5, transfer.dataset, transfer.memory_type)? };
    reader.plan(selection, (shape, strides), buffer, with)
}
