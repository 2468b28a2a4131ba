//! The common path of all transfers of datasets. Each transfer is planned and starts after those in
//! flight with which it conflicts, whichever interface submitted them.
//!
//! So transfers take effect in the order of their submission. What HDF5 does by itself when the
//! program calls it is not visible here: the program, or the connector, waits for pending transfers
//! first.

mod chunk_writer;
pub mod conflicts;
mod contiguous;
mod copied;
mod describe;
mod direct;
mod expressed;
mod held;
mod inside;
mod kept;
mod kept_sources;
pub mod many;
mod numbers;
mod prepare;
mod read;
mod request;
mod small;
mod still_open;
mod stored;
mod through_hdf5;
mod touched;
pub mod unfinished;
mod unresolved;
mod wait;
mod write;
mod written;

use penstock_array::execute::{PreparedTransfer, SubmitOptions, submit};
use penstock_array::{Selection, in_dataset};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_sys::hdf5::{H5S_ALL, Hdf5, hid_t};

use conflicts::{Access, AccessSet, Region, finish_before, key_of_object, number_of_file};
pub use copied::{prepare_dataset_for_copy, prepare_for_copy};
pub use describe::describe;
pub use held::Held;
pub use inside::{InCall, cannot_flush, inside, is_inside, may_flush};
pub use kept::{Described, open_file};
pub use prepare::{Planned, Refused, prepare, prepare_or_refuse};
pub use request::{DatasetTransfer, FileSelection, HostBuffer, MemoryShape};
pub use small::{Opened, PlannedRead, Reader, WorkerRead, small_read};
pub use stored::StoredDataset;
pub use touched::{is_cut_off, is_done, rewritten_blocks};
pub use unresolved::address as unresolved_count;
pub use wait::{
    make_durable, may_make_durable, nothing_is_pending, wait_for_dataset, wait_for_file,
    wait_for_path,
};

use crate::dataset::{DatasetInfo, FileInfo, Layout, dataspace, pointers};
use crate::library::Session;
use crate::open_files::identity_of;

/// The caller's memory.
pub struct Buffer {
    /// Address.
    pub address: usize,
    /// The kind of memory there, as the CUDA driver reports it.
    pub memory: Memory,
}

impl Buffer {
    /// Asks the driver what is at an address.
    pub fn at(address: usize) -> Result<Buffer> {
        let memory = Memory::at(address)?;
        Ok(Buffer { address, memory })
    }
}

/// Starts a transfer between a dataset and the caller's memory, after those with which it
/// conflicts.
///
/// # Safety
/// The buffer stays valid as the transfer describes it, and the dataset open, until the request has
/// finished. This thread and those that run submitter steps may call HDF5; if it is not
/// thread-safe, they hold the lock that guards it.
pub unsafe fn start(
    hdf5: &'static Hdf5,
    transfer: &DatasetTransfer<'_>,
    buffer: Buffer,
    with: SubmitOptions,
) -> Result<Held> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5, and no other thread comes between.
        let session = unsafe { Session::begin(hdf5) };
        if buffer.memory.context.is_some() {
            // SAFETY: as above.
            unsafe { pointers::refuse(hdf5, transfer.memory_type)? };
        }
        // HDF5 may access it now if the CPU can. After a stream it is neither there to be written yet,
        // nor may it be filled.
        let is_after = with.stream.is_some_and(|order| order.after);
        let host = match buffer.memory.context.is_none() && !is_after {
            true => buffer.address as *mut u8,
            false => std::ptr::null_mut(),
        };
        let host = HostBuffer::new(host, with.holes);
        // SAFETY: upheld by the caller.
        let (prepared, sets) = unsafe { prepare_in_order(&session, transfer, host)? };
        let writes_to = match transfer.operation {
            Operation::Write if !sets.is_empty() => {
                Some(number_of_file(&session, transfer.dataset)?)
            }
            Operation::Read | Operation::Write => None,
        };
        let memory = (prepared.low == 0).then_some(buffer.memory);
        // SAFETY: upheld by the caller.
        let request = unsafe { submit(prepared, buffer.address, memory, with)? };
        if writes_to.is_some() {
            numbers::are_kept(hdf5);
        }
        Ok(Held::new(request, hdf5, writes_to).entered(sets))
    })
}

/// Returns the selection of single elements of a dataset, each given by as many coordinates as the
/// dataset has dimensions.
///
/// # Errors
/// The numbers are not coordinates of elements of the dataset.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn points(
    hdf5: &'static Hdf5,
    dataset: hid_t,
    rank: usize,
    coordinates: &[u64],
) -> Result<Selection> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
        let space = unsafe { (hdf5.H5Dget_space)(dataset) };
        let space = session.own(space, hdf5.H5Sclose, "get the dataspace")?;
        let (shape, _) = dataspace::extent(&session, space.get())?;
        points_of(&shape, rank, coordinates)
    })
}

/// Returns what [`points`] does, for a dataset of this shape.
pub fn points_of(shape: &[u64], rank: usize, coordinates: &[u64]) -> Result<Selection> {
    if shape.len() != rank {
        return Err(Error::invalid(format!(
            "the selection has {rank} dimensions, but the dataset has {}",
            shape.len()
        )));
    }
    Selection::points(shape, coordinates)
}

/// Drops what is kept of the datasets of an object's file.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn forget(hdf5: &'static Hdf5, object: hid_t) -> Result<()> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let file = FileInfo::of(&session, object)?;
        if let Some(reader) = file.descriptor.and_then(identity_of) {
            kept_sources::forget(Some(reader));
        }
        kept::forget_file(&session, object)
    })
}

/// Plans a transfer after those with which it conflicts. Also returns what it touches, which is
/// empty if nothing is left to do.
///
/// # Safety
/// As for [`start`].
unsafe fn prepare_in_order(
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
        let sets = touched::sets(&prepared, set.as_ref(), &by_hdf5);
        // What HDF5 has read during planning was read before these waits, so its conflicts count as
        // well.
        let given = touched::has_been_given(&prepared).then(|| by_hdf5.clone());
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

/// Describes the dataset of a transfer. Only reads use what is kept: nothing is kept of a dataset
/// that can be written.
fn describe_for(session: &Session<'_>, transfer: &DatasetTransfer<'_>) -> Result<Described> {
    match transfer.operation {
        Operation::Read => Described::of(session, transfer.dataset),
        Operation::Write => DatasetInfo::read(session, transfer.dataset).map(Described::from),
    }
}

/// Returns what a transfer touches, as far as it is known before planning: `None` for a read of a
/// virtual dataset, whose sources are not known yet.
fn access_set(
    session: &Session<'_>,
    (dataset, selected): (hid_t, FileSelection<'_>),
    info: &DatasetInfo,
    access: Access,
) -> Result<Option<AccessSet>> {
    let chunk: &[u64] = match (&info.layout, access) {
        (Layout::Virtual(_), Access::Read) => return Ok(None),
        (Layout::Virtual(_) | Layout::External(_), Access::Write) => {
            return Ok(Some(AccessSet::All(access)));
        }
        (Layout::Chunked { chunk, .. }, _) => chunk,
        _ => &[],
    };
    let bounds = match selected {
        FileSelection::Space(H5S_ALL) => None,
        FileSelection::Space(space) => dataspace::bounds(session.hdf5, space),
        FileSelection::Elements(selection) => {
            selection.check(&info.shape)?;
            selection.bounds(&info.shape)
        }
    };
    let region = Region::between(bounds).of_chunks(chunk);
    Ok(Some(AccessSet::Elements {
        dataset: key_of_object(session, dataset, &info.file)?,
        region,
        access,
    }))
}

/// Names the dataset in an error that does not yet.
fn named(error: Error, name: &str) -> Error {
    match error.cause().starts_with("dataset ") {
        true => error,
        false => in_dataset(error, name),
    }
}

/// Returns what HDF5 touches if it carries the transfer out itself.
fn by_hdf5(set: Option<&AccessSet>, access: Access) -> AccessSet {
    match set {
        Some(set) => set.clone().by_hdf5(),
        None => AccessSet::All(access),
    }
}
