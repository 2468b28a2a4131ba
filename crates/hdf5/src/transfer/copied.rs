//! Datasets that H5Ocopy is about to copy.
//!
//! H5Ocopy takes the elements of an open dataset from HDF5's buffers where it finds them there, and has
//! two defects (1.14.4, 2.0.0, 2.2.0). It copies each cached chunk of a dataset with filters into a
//! buffer that may have become shorter than a chunk when it encoded the chunk before, and writes past
//! its end. It ignores the changes in the sieve buffer of a contiguous dataset, unless the buffer covers the
//! whole part that it copies at a time. So neither buffer holds anything that matters when H5Ocopy begins.

use std::ffi::{CStr, c_uint};

use penstock_engine::error::Result;
use penstock_sys::hdf5::{
    H5F_OBJ_ALL, H5F_OBJ_DATASET, H5O_COPY_EXPAND_EXT_LINK_FLAG, H5O_COPY_EXPAND_REFERENCE_FLAG,
    H5O_COPY_EXPAND_SOFT_LINK_FLAG, H5P_DEFAULT, Hdf5, hid_t,
};

use super::inside::inside;
use super::written::WrittenDataset;
use crate::dataset::{DatasetInfo, Layout, read_chunk_table, sieve};
use crate::library::Session;

/// With one of these, a copy includes objects that links and references lead to, in any file.
const EXPANDS: c_uint =
    H5O_COPY_EXPAND_SOFT_LINK_FLAG | H5O_COPY_EXPAND_EXT_LINK_FLAG | H5O_COPY_EXPAND_REFERENCE_FLAG;

/// Prepares the open datasets of the object `name` at `location` for a copy with this property list.
/// If there is no such object, that is for H5Ocopy to report.
///
/// # Errors
/// HDF5 cannot write or read a dataset that may be copied. H5Ocopy would then copy old elements, or
/// write past the end of its memory, so the copy must not begin.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn prepare_for_copy(
    hdf5: &'static Hdf5,
    location: hid_t,
    name: &CStr,
    list: hid_t,
) -> Result<()> {
    inside(hdf5, || {
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(hdf5) };
        copied(&session, location, name, list)
            .unwrap_or_default()
            .into_iter()
            .try_for_each(|dataset| prepare(&session, dataset))
    })
}

/// Returns the open datasets that may be copied: those that are the source, all of its file if it is no
/// dataset, or all of all files if the copy includes what links and references lead to.
fn copied(session: &Session<'_>, location: hid_t, name: &CStr, list: hid_t) -> Result<Vec<hid_t>> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; the name is a C string.
    let source = unsafe { (hdf5.H5Oopen)(location, name.as_ptr(), H5P_DEFAULT) };
    let source = session.own(source, hdf5.H5Oclose, "open the source of a copy")?;
    let key = session.object(source.get())?;
    let is_dataset = DatasetInfo::read(session, source.get()).is_ok();
    // SAFETY: takes an owned identifier and returns one.
    let file = unsafe { (hdf5.H5Iget_file_id)(source.get()) };
    let file = session.own(file, hdf5.H5Fclose, "get the file of the source")?;
    drop(source);
    let mut options = 0;
    // SAFETY: HDF5 checks the identifier; the options have a place.
    let status = unsafe { (hdf5.H5Pget_copy_object)(list, &mut options) };
    if status < 0 || options & EXPANDS != 0 {
        return Ok(open_datasets(session, hid_t::from(H5F_OBJ_ALL)));
    }
    let mut open = open_datasets(session, file.get());
    if is_dataset {
        open.retain(|dataset| session.object(*dataset).is_ok_and(|other| other == key));
    }
    Ok(open)
}

fn open_datasets(session: &Session<'_>, file: hid_t) -> Vec<hid_t> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier, and the list has the given length.
    unsafe {
        let count = (hdf5.H5Fget_obj_count)(file, H5F_OBJ_DATASET);
        let mut open = vec![0; usize::try_from(count).unwrap_or(0)];
        let found = (hdf5.H5Fget_obj_ids)(file, H5F_OBJ_DATASET, open.len(), open.as_mut_ptr());
        open.truncate(usize::try_from(found).unwrap_or(0));
        open
    }
}

fn prepare(session: &Session<'static>, dataset: hid_t) -> Result<()> {
    // H5Ocopy cannot read the header of such a dataset either.
    let Ok(info) = DatasetInfo::read(session, dataset) else {
        return Ok(());
    };
    let prepared = match &info.layout {
        Layout::Chunked { chunk, .. } if !info.filters.is_empty() => {
            let elements: u64 = chunk.iter().product();
            let bytes = elements.saturating_mul(info.element.size().0);
            match bytes <= cache_size(session, dataset)? {
                true => evict_chunks(session, dataset, &info),
                false => Ok(()),
            }
        }
        // An element that owns memory of HDF5 cannot be read here.
        Layout::Contiguous { offset: Some(_) }
            if info.file.is_writable && info.bytes()? > 0 && info.element.only_hdf5().is_none() =>
        {
            let size = (&*info.shape, info.element.size().0 as usize);
            sieve::read_ends(session, dataset, size, H5P_DEFAULT)
        }
        _ => Ok(()),
    };
    prepared.map_err(|error| info.name_in(error))
}

/// Returns how many bytes of chunks HDF5 caches for a dataset.
fn cache_size(session: &Session<'_>, dataset: hid_t) -> Result<u64> {
    let hdf5 = session.hdf5;
    let action = "get the size of the chunk cache";
    let (mut slots, mut bytes, mut weight) = (0, 0, 0.0);
    // SAFETY: HDF5 checks the identifiers; the results have places of their types.
    unsafe {
        let list = (hdf5.H5Dget_access_plist)(dataset);
        let list = session.own(list, hdf5.H5Pclose, action)?;
        let status = (hdf5.H5Pget_chunk_cache)(list.get(), &mut slots, &mut bytes, &mut weight);
        session.check(status, action)?;
    }
    Ok(bytes as u64)
}

/// Makes HDF5 write the changed chunks of its cache, and forget all.
fn evict_chunks(session: &Session<'static>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let table = read_chunk_table(session, dataset, info)?;
    let Some(entries) = table.entries() else {
        return Ok(());
    };
    let written = WrittenDataset::new(session, dataset, info);
    for at in 0..entries.addresses.len() {
        let number = entries.numbers.get(at).copied().unwrap_or(at as u64);
        let coordinates = table.grid().coordinates(number);
        let sides = table.grid().chunk();
        let first: Vec<u64> = coordinates
            .iter()
            .zip(sides)
            .map(|(at, side)| at * side)
            .collect();
        written.read_stored(session, &first);
    }
    Ok(())
}
