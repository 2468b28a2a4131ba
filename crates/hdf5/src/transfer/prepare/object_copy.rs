//! Prepares open datasets for H5Ocopy.
//!
//! H5Ocopy takes the elements of an open dataset from HDF5's buffers where it finds them there, and has
//! three defects (1.14.4, 2.0.0, 2.2.0):
//!
//! - It copies each cached chunk of a dataset with filters into a buffer that may have become shorter than
//!   a chunk when it encoded the chunk before, and writes past its end.
//! - Of cached chunks that are not stored, 1.14.4 copies wrong elements. If the index is an extensible
//!   array, 1.14.4 and 2.2.0 fail.
//! - It ignores the changes in the sieve buffer of a contiguous dataset, unless the buffer covers the whole
//!   part that it copies at a time.
//!
//! So neither buffer may hold changes or such chunks when H5Ocopy begins.
//!
//! An open virtual dataset keeps the sources that HDF5 has read through it open, with their buffers, but
//! without identifiers. HDF5 does not report which, so all its sources in the files concerned count as open.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::ffi::{CStr, CString, OsString, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::{H5O_INFO_BASIC, H5O_info2_t};
use penstock_sys::hdf5::{
    H5_INDEX_NAME, H5_ITER_NATIVE, H5D_VIRTUAL, H5F_OBJ_ALL, H5F_OBJ_DATASET, H5F_OBJ_FILE,
    H5O_COPY_EXPAND_EXT_LINK_FLAG, H5O_COPY_EXPAND_REFERENCE_FLAG, H5O_COPY_EXPAND_SOFT_LINK_FLAG,
    H5P_DEFAULT, Hdf5, herr_t, hid_t,
};

use crate::dataset::{
    DatasetInfo, Layout, creation_properties, is_shared, name_of_file, read_chunk_table, sieve,
};
use crate::library::{Id, Session};
use crate::transfer::hdf5_state::inside;
use crate::transfer::sinks::WrittenDataset;
use crate::virtual_dataset::numbered;

/// The number of an open file, and the token of an object in it.
type Key = (u64, [u8; 16]);

/// Flags with which a copy includes objects that links and references lead to, in any file.
const EXPANDS: c_uint =
    H5O_COPY_EXPAND_SOFT_LINK_FLAG | H5O_COPY_EXPAND_EXT_LINK_FLAG | H5O_COPY_EXPAND_REFERENCE_FLAG;

/// Largest number of places of chunks that are tried. Each takes HDF5 one or two microseconds.
const MOST_PLACES: u64 = 1 << 20;

/// Prepares the open datasets of the object `name` at `location` for a copy with this property list.
/// If there is no such object, H5Ocopy reports that.
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
        // The sources stay open until they are prepared.
        let (datasets, _sources) = copied(&session, location, name, list).unwrap_or_default();
        datasets
            .into_iter()
            .try_for_each(|dataset| prepare(&session, dataset))
    })
}

/// As [`prepare_for_copy`], of one open dataset.
///
/// # Errors
/// As for [`prepare_for_copy`].
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn prepare_dataset_for_copy(hdf5: &'static Hdf5, dataset: hid_t) -> Result<()> {
    // SAFETY: upheld by the caller.
    inside(hdf5, || prepare(&unsafe { Session::begin(hdf5) }, dataset))
}

/// Returns one identifier of each open dataset that may be copied: of the source and those below it, or of all
/// open datasets if the copy includes the targets of links and references. Also returns the identifiers that were
/// opened for this.
fn copied(
    session: &Session<'_>,
    location: hid_t,
    name: &CStr,
    list: hid_t,
) -> Result<(Vec<hid_t>, Vec<Id>)> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; the name is a C string.
    let source = unsafe { (hdf5.H5Oopen)(location, name.as_ptr(), H5P_DEFAULT) };
    let source = session.own(source, hdf5.H5Oclose, "open the source of a copy")?;
    let (mut options, mut below) = (0, None);
    let status = match list {
        H5P_DEFAULT => 0,
        // SAFETY: HDF5 checks the identifier; the options have a place.
        list => unsafe { (hdf5.H5Pget_copy_object)(list, &mut options) },
    };
    // SAFETY: takes an owned identifier and returns one.
    let file = unsafe { (hdf5.H5Iget_file_id)(source.get()) };
    let file = session.own(file, hdf5.H5Fclose, "get the file of the source")?;
    // Its processes make the same calls, of which some are collective, and HDF5 caches no chunks while it is written.
    if is_shared(hdf5, &file) {
        return Ok((Vec::new(), Vec::new()));
    }
    let expands = status < 0 || options & EXPANDS != 0;
    if !expands {
        below = with_all_below(session, source.get());
    }
    // It is not one of the open datasets.
    drop(source);
    let mut open = open_datasets(session);
    let files = if expands {
        open_identifiers(session, H5F_OBJ_FILE)
    } else {
        vec![file.get()]
    };
    let sources = add_sources(session, &files, &mut open);
    if !expands {
        let (number, _) = session.object(file.get())?;
        let is_copied = |key: &Key| below.as_ref().is_none_or(|below| below.contains(key));
        open.retain(|key, _| key.0 == number && is_copied(key));
    }
    Ok((open.into_values().collect(), sources))
}

/// Returns an object and all objects below it; `None` if HDF5 cannot visit all of them.
fn with_all_below(session: &Session<'_>, object: hid_t) -> Option<HashSet<Key>> {
    unsafe extern "C" fn note(
        _: hid_t,
        _: *const c_char,
        info: *const H5O_info2_t,
        found: *mut c_void,
    ) -> herr_t {
        // SAFETY: HDF5 passes the object's description, and the set of the visit, which nothing else uses.
        unsafe {
            let found = &mut *found.cast::<HashSet<Key>>();
            found.insert(((*info).fileno, (*info).token));
        }
        0
    }
    let mut found = HashSet::from([session.object(object).ok()?]);
    // SAFETY: takes an owned identifier; the set outlives the visit.
    let status = unsafe {
        (session.hdf5.H5Ovisit3)(
            object,
            H5_INDEX_NAME,
            H5_ITER_NATIVE,
            note,
            ptr::from_mut(&mut found).cast(),
            H5O_INFO_BASIC,
        )
    };
    (status >= 0).then_some(found)
}

/// Returns the identifiers of this type in all files.
fn open_identifiers(session: &Session<'_>, kind: c_uint) -> Vec<hid_t> {
    let (hdf5, all) = (session.hdf5, hid_t::from(H5F_OBJ_ALL));
    // SAFETY: the list has the given length.
    unsafe {
        let count = (hdf5.H5Fget_obj_count)(all, kind);
        let mut open = vec![0; usize::try_from(count).unwrap_or(0)];
        let found = (hdf5.H5Fget_obj_ids)(all, kind, open.len(), open.as_mut_ptr());
        open.truncate(usize::try_from(found).unwrap_or(0));
        open
    }
}

/// Returns the open datasets of all files. HDF5 has the same buffers for all identifiers of one.
fn open_datasets(session: &Session<'_>) -> HashMap<Key, hid_t> {
    let key = |id: hid_t| Some((session.object(id).ok()?, id));
    let open = open_identifiers(session, H5F_OBJ_DATASET);
    open.into_iter().filter_map(key).collect()
}

/// Adds the sources of open virtual datasets that lie in one of these files, and returns the identifiers that
/// it has opened for that. A source may be virtual itself.
fn add_sources(session: &Session<'_>, files: &[hid_t], open: &mut HashMap<Key, hid_t>) -> Vec<Id> {
    let hdf5 = session.hdf5;
    let (mut opened, mut by_number) = (Vec::new(), HashMap::new());
    for file in files {
        if let Ok((number, _)) = session.object(*file) {
            by_number.insert(
                number,
                (*file, name_of_file(session, *file).unwrap_or_default()),
            );
        }
    }
    let mut rest: Vec<(u64, hid_t)> = open.iter().map(|(key, id)| (key.0, *id)).collect();
    while let Some((own, dataset)) = rest.pop() {
        for (file, name) in sources(session, dataset).unwrap_or_default() {
            for (number, (id, path)) in &by_number {
                // HDF5 looks for a file in several folders, but always under the last part of its name.
                // Links to it that have other names are not recognized.
                let is_there = if file.as_os_str() == "." {
                    *number == own
                } else {
                    file.file_name() == path.file_name()
                };
                if !is_there {
                    continue;
                }
                // SAFETY: HDF5 checks the identifier; the name is a C string.
                let source = unsafe { (hdf5.H5Dopen2)(*id, name.as_ptr(), H5P_DEFAULT) };
                let Ok(source) = session.own(source, hdf5.H5Dclose, "open a source") else {
                    continue;
                };
                if let Ok(key) = session.object(source.get())
                    && let Entry::Vacant(place) = open.entry(key)
                {
                    place.insert(source.get());
                    rest.push((key.0, source.get()));
                    opened.push(source);
                }
            }
        }
    }
    opened
}

/// Returns the files and names of the sources of a dataset, none unless it is virtual. Names with running
/// numbers are left out: HDF5 may still crash where such sources are copied.
fn sources(session: &Session<'_>, dataset: hid_t) -> Result<HashSet<(PathBuf, CString)>> {
    let hdf5 = session.hdf5;
    let creation = creation_properties(session, dataset)?;
    let (list, mut count) = (creation.get(), 0);
    // SAFETY: takes an owned identifier; the count has a place of its type.
    unsafe {
        if (hdf5.H5Pget_layout)(list) == H5D_VIRTUAL {
            let status = (hdf5.H5Pget_virtual_count)(list, &mut count);
            session.check(status, "count the parts of the virtual dataset")?;
        }
    }
    let source = |at| {
        let file = session.text("get the file of a part", |to, size| {
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
            unsafe { (hdf5.H5Pget_virtual_filename)(list, at, to, size) }
        })?;
        let name = session.text("get the dataset of a part", |to, size| {
            // SAFETY: as above.
            unsafe { (hdf5.H5Pget_virtual_dsetname)(list, at, to, size) }
        })?;
        let (file, name) = (OsString::from_vec(file), OsString::from_vec(name));
        let ((file, many_files), (name, many)) = (numbered(&file, 0), numbered(&name, 0));
        let name = CString::new(name.into_os_string().into_vec()).ok();
        Ok(name
            .filter(|_| !many && !many_files)
            .map(|name| (file, name)))
    };
    (0..count).filter_map(|at| source(at).transpose()).collect()
}

fn prepare(session: &Session<'static>, dataset: hid_t) -> Result<()> {
    // H5Ocopy cannot read the header of such a dataset either.
    let Ok(info) = DatasetInfo::read(session, dataset) else {
        return Ok(());
    };
    let prepared = match &info.layout {
        Layout::Chunked { chunk, .. } => {
            let elements: u64 = chunk.iter().product();
            let bytes = elements.saturating_mul(info.element.size().0);
            if bytes <= cache_size(session, dataset)? {
                evict_chunks(session, dataset, &info)
            } else {
                Ok(())
            }
        }
        Layout::Contiguous { offset: Some(_) } if info.file.is_writable && info.bytes()? > 0 => {
            sieve::read_ends(session, dataset, &info.shape, H5P_DEFAULT)
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

/// Makes HDF5 write the changed chunks of its cache, and evict those that it would copy wrongly: all chunks with
/// filters, all chunks of an index by which HDF5 confuses chunks, and chunks that were read and are not stored. HDF5
/// does not report which chunks are cached, so all places of chunks are tried, or only the stored chunks if there are
/// too many places.
fn evict_chunks(session: &Session<'static>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let table = read_chunk_table(session, dataset, info)?;
    let grid = table.grid();
    let written = WrittenDataset::new(session, dataset, info);
    let forgets_all = !info.filters.is_empty() || written.may_confuse_chunks(session);
    let evict = |number: u64| {
        let at = grid.coordinates(number);
        let first: Vec<u64> = at
            .iter()
            .zip(grid.chunk())
            .map(|(at, side)| at * side)
            .collect();
        written.read_stored(session, &first).map(drop)
    };
    if grid.total() <= MOST_PLACES {
        let is_evicted = |number: &u64| forgets_all || matches!(table.find(*number), Ok(None));
        (0..grid.total()).filter(is_evicted).try_for_each(evict)?;
    } else if let Some(entries) = table.entries().filter(|_| forgets_all) {
        let number = |at: usize| entries.numbers.get(at).copied().unwrap_or(at as u64);
        (0..entries.addresses.len())
            .map(number)
            .try_for_each(evict)?;
    }
    Ok(())
}
