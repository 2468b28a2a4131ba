//! A read or write of one dataset, planned: what HDF5 had to be asked for it is known.

use std::ops::Range;

use penstock_engine::error::Result;
use penstock_engine::options::Options;
use penstock_sys::hdf5::hid_t;

use super::about::bounds;
use super::lend::Loan;
use super::transfer::{Call, Kind};
use crate::host::Host;
use crate::staging::refuse_pointers;
use crate::wrapped::Under;
use penstock_array::execute::PreparedTransfer;
use penstock_engine::file::position::Operation;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::plain_files::options_of;
use penstock_hdf5::transfer::{
    DatasetTransfer, Known, MemoryShape, Planned, Refused, is_cut_off, prepare_or_refuse,
};

/// A transfer of one dataset that is planned.
pub struct Part {
    pub loan: Loan,
    pub prepared: PreparedTransfer,
    pub options: Options,
    pub buffer: usize,
    pub is_on_host: bool,
    /// The bytes of the memory that it touches.
    pub touched: Range<u64>,
}

/// Plans the transfer of one dataset, or says why only HDF5 can do it.
///
/// # Safety
/// As for [`transfer`](super::transfer::transfer).
pub unsafe fn prepare(call: &Call<'_>, at: usize, loan: Loan) -> Result<Planned<Part>> {
    let under = &call.unders[at];
    let host = under.container.below.host;
    // SAFETY: passed on.
    let is_on_host = unsafe { call.is_on_host(at)? };
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(host.hdf5) };
    let info = call.datasets[at].info(&session, &loan)?;
    // The driver's own options count where it is asked for nothing.
    let of_driver = info.file.descriptor.map(options_of).unwrap_or_default();
    let options = call.policy().options().or(of_driver);
    let about = call.datasets[at].about_known();
    let file = match about {
        Some(about) => match under.container.opened(about.key.file, &info.file) {
            Ok(file) => file,
            // Nothing is touched yet, and HDF5 has a descriptor of its own.
            Err(error) => return Ok(Err(Refused(error.to_string()))),
        },
        None => None,
    };
    let mut transfer = DatasetTransfer {
        operation: match call.kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write,
        },
        dataset: loan.id(),
        memory_type: call.memory_types[at],
        shape: MemoryShape::Space(call.memory_spaces[at]),
        file_space: call.file_spaces[at],
        transfer_list: call.list,
        options,
        known: Known {
            info: Some(&info),
            file: file.as_ref(),
        },
    };
    let element = transfer.memory_size(&session)?;
    let mut buffer = call.buffers[at];
    let space = call.memory_space(at);
    // SAFETY: passed on.
    let mut touched = unsafe { touched(under, space, element) };
    let mut moved = None;
    if !is_on_host {
        // SAFETY: passed on.
        unsafe { refuse_pointers(host, transfer.memory_type)? };
    }
    // In front of the first element there may be none of the GPU's memory, or another kind; and a
    // copy need not have room for it.
    if !is_on_host || (call.goes_on() && call.is_copied()) {
        // SAFETY: passed on.
        moved = unsafe { to_first(under, space) };
        match (&moved, &touched) {
            (Some(space), Some(range)) => {
                transfer.shape = MemoryShape::Space(space.id);
                buffer = buffer.wrapping_add(range.start as usize);
                touched = Some(0..range.end - range.start);
            }
            _ => touched = touched.map(|range| 0..range.end),
        }
    }
    let planned = prepare_or_refuse(&session, &transfer)?;
    drop(moved);
    let prepared = match planned {
        Ok(prepared) => prepared,
        Err(refused) => return Ok(Err(refused)),
    };
    // For a program of HDF5's that is no error, also where the file was cut off while it was open.
    if is_cut_off(&prepared)? {
        let why = "the file ends before what is read: HDF5 reads zeros there";
        return Ok(Err(Refused(why.to_owned())));
    }
    let touched = touched.unwrap_or(0..prepared.length);
    Ok(Ok(Part {
        loan,
        prepared,
        options,
        buffer,
        is_on_host,
        touched,
    }))
}

/// A dataspace of our own.
struct Space {
    host: Host,
    id: hid_t,
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, and used no more.
        self.host
            .keeping_errors(|| unsafe { (self.host.hdf5.H5Sclose)(self.id) });
    }
}

/// The dataspace with its selection moved to the first element, so that the address of that is the
/// address of the memory.
///
/// # Safety
/// As for [`bounds`].
unsafe fn to_first(under: &Under, space: hid_t) -> Option<Space> {
    let host = under.container.below.host;
    // SAFETY: passed on.
    let (low, _) = unsafe { bounds(under, space)? };
    let offset: Option<Vec<i64>> = low.iter().map(|at| i64::try_from(*at).ok()).collect();
    let offset = offset.filter(|offset| offset.iter().any(|at| *at != 0))?;
    // SAFETY: HDF5 checks the identifier; there is a number for each dimension.
    unsafe {
        let id = (host.hdf5.H5Scopy)(space);
        if id < 0 {
            return None;
        }
        let space = Space { host, id };
        ((host.calls.H5Sselect_adjust)(id, offset.as_ptr()) >= 0).then_some(space)
    }
}

/// From the first byte to the last that a selection in memory touches.
///
/// # Safety
/// As for [`bounds`].
pub unsafe fn touched(under: &Under, space: hid_t, element: u64) -> Option<Range<u64>> {
    // SAFETY: passed on.
    let (low, high) = unsafe { bounds(under, space)? };
    let hdf5 = under.container.below.host.hdf5;
    let mut sizes = vec![0u64; low.len()];
    // SAFETY: there is room for as many numbers as the space has dimensions.
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
