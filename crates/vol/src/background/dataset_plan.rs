//! The plan of a read or write of one dataset, which needs no more answers of HDF5.

use std::ops::Range;

use penstock_engine::error::Result;
use penstock_engine::options::Options;
use penstock_sys::hdf5::hid_t;

use super::dataset_io::DatasetCall;
use crate::access_sets::bounds;
use crate::calling_library::CallingLibrary;
use crate::host_buffers::refuse_pointers;
use crate::temporary_id::TemporaryId;
use crate::under::Under;
use penstock_array::execute::PreparedTransfer;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::plain_files::options_of;
use penstock_hdf5::transfer::{
    DatasetTransfer, MemoryShape, Planned, Refused, is_cut_off, prepare_or_refuse,
};

/// The plan of a transfer of one dataset.
pub(crate) struct DatasetPlan {
    /// An identifier of the dataset, by which submitter steps call HDF5.
    pub(crate) id: TemporaryId,
    pub(crate) prepared: PreparedTransfer,
    pub(crate) options: Options,
    pub(crate) buffer: usize,
    pub(crate) is_on_host: bool,
    /// The bytes that the transfer touches, as offsets in the buffer.
    pub(crate) touched: Range<u64>,
}

/// Plans the transfer of dataset `at`. Returns the reason if only HDF5 can carry it out.
///
/// # Safety
/// As for [`read_or_write`](super::dataset_io::read_or_write).
pub(crate) unsafe fn plan(
    call: &DatasetCall<'_>,
    at: usize,
    id: TemporaryId,
) -> Result<Planned<DatasetPlan>> {
    let under = &call.unders[at];
    let library = under.container.below.library;
    // SAFETY: the caller guarantees this.
    let is_on_host = unsafe { call.is_on_host(at)? };
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(library.hdf5) };
    let info = call.datasets[at].info(&session, &id)?;
    // The options of the driver apply where the connector's settings have none.
    let of_driver = info.file.descriptor.map(options_of).unwrap_or_default();
    let options = call.policy().options().or(of_driver);
    let access = call.datasets[at].known_dataset_access();
    let file = match access {
        Some(access) => match under.container.open_file(access.key.file, &info.file) {
            Ok(file) => file,
            // Nothing has been transferred yet, and HDF5 has a descriptor of its own.
            Err(error) => return Ok(Err(Refused(error.to_string()))),
        },
        None => None,
    };
    let mut transfer = DatasetTransfer {
        operation: call.operation,
        dataset: id.get(),
        memory_type: call.memory_types[at],
        shape: MemoryShape::Space(call.memory_spaces[at]),
        file_space: call.file_spaces[at],
        transfer_list: call.list,
        options,
        file: file.as_ref(),
    };
    let element = transfer.memory_size(&session)?;
    let mut buffer = call.buffers[at];
    let space = call.memory_space(at);
    // SAFETY: the caller guarantees this.
    let mut touched = unsafe { touched_bytes(under, space, element) };
    let mut moved = None;
    if !is_on_host {
        // SAFETY: the caller guarantees this.
        unsafe { refuse_pointers(library, transfer.memory_type)? };
    }
    // Memory before the first element may not exist, or be of another kind, and a copy does not include
    // it.
    if !is_on_host || (call.continues() && call.is_copied()) {
        // SAFETY: the caller guarantees this.
        moved = unsafe { shifted_to_first(under, space) };
        match (&moved, &touched) {
            (Some(space), Some(range)) => {
                transfer.shape = MemoryShape::Space(space.id);
                buffer = buffer.wrapping_add(range.start as usize);
                touched = Some(0..range.end - range.start);
            }
            _ => touched = touched.map(|range| 0..range.end),
        }
    }
    let planned = prepare_or_refuse(&session, &transfer, info)?;
    drop(moved);
    let prepared = match planned {
        Ok(prepared) => prepared,
        Err(refused) => return Ok(Err(refused)),
    };
    // HDF5 reads zeros behind the end of a file, even if the file was truncated while it was open.
    if is_cut_off(&prepared)? {
        let why = "the file ends before what is read: HDF5 reads zeros there";
        return Ok(Err(Refused(why.to_owned())));
    }
    let touched = touched.unwrap_or(0..prepared.length);
    Ok(Ok(DatasetPlan {
        id,
        prepared,
        options,
        buffer,
        is_on_host,
        touched,
    }))
}

/// A dataspace that this connector has made, and closes.
struct OwnedSpace {
    library: CallingLibrary,
    id: hid_t,
}

impl Drop for OwnedSpace {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, and nothing uses it later.
        self.library
            .keeping_errors(|| unsafe { (self.library.hdf5.H5Sclose)(self.id) });
    }
}

/// Copies a dataspace, and moves the selection to the first element. The address of the first selected
/// element is then the address of the buffer. `None` if the selection is there already.
///
/// # Safety
/// As for [`bounds`].
unsafe fn shifted_to_first(under: &Under, space: hid_t) -> Option<OwnedSpace> {
    let library = under.container.below.library;
    // SAFETY: the caller guarantees this.
    let (low, _) = unsafe { bounds(under, space)? };
    let offset: Option<Vec<i64>> = low.iter().map(|at| i64::try_from(*at).ok()).collect();
    let offset = offset.filter(|offset| offset.iter().any(|at| *at != 0))?;
    // SAFETY: HDF5 checks the identifier, and `offset` has a number for each dimension.
    unsafe {
        let id = (library.hdf5.H5Scopy)(space);
        if id < 0 {
            return None;
        }
        let space = OwnedSpace { library, id };
        ((library.calls.H5Sselect_adjust)(id, offset.as_ptr()) >= 0).then_some(space)
    }
}

/// The range from the first to the last byte that a selection in memory touches.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn touched_bytes(
    under: &Under,
    space: hid_t,
    element: u64,
) -> Option<Range<u64>> {
    // SAFETY: the caller guarantees this.
    let (low, high) = unsafe { bounds(under, space)? };
    let hdf5 = under.container.below.library.hdf5;
    let mut sizes = vec![0u64; low.len()];
    // SAFETY: `sizes` has a number for each dimension.
    let rank = unsafe {
        (hdf5.H5Sget_simple_extent_dims)(space, sizes.as_mut_ptr(), std::ptr::null_mut())
    };
    if usize::try_from(rank) != Ok(low.len()) {
        return None;
    }
    let offset = |corner: &[u64]| {
        let sides = corner.iter().zip(&sizes);
        sides.fold(0u64, |sum, (at, size)| {
            sum.wrapping_mul(*size).wrapping_add(*at)
        })
    };
    let (first, last) = (offset(&low), offset(&high));
    Some(first.checked_mul(element)?..last.checked_add(1)?.checked_mul(element)?)
}
