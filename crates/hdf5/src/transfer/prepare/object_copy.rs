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
//! without identifiers. HDF5 does not report which, so all its sources in open files count as open.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::{H5O_INFO_BASIC, H5O_info2_t};
use penstock_sys::hdf5::{
    H5_INDEX_NAME, H5_ITER_NATIVE, H5D_VIRTUAL, H5F_OBJ_DATASET, H5F_OBJ_FILE,
    H5O_COPY_EXPAND_EXT_LINK_FLAG, H5O_COPY_EXPAND_REFERENCE_FLAG, H5O_COPY_EXPAND_SOFT_LINK_FLAG,
    H5P_DEFAULT, Hdf5, herr_t, hid_t,
};

use crate::dataset::{
    DatasetInfo, Layout, creation_properties, is_shared, name_of_file, read_chunk_table, sieve,
};
use crate::library::{Id, Session};
use crate::transfer::hdf5_state::{inside, open_ids};
use crate::transfer::sinks::{StoredChunks, WrittenDataset};
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
        let copied = copied(&session, location, name, list).unwrap_or(Some(HashSet::new()));
        if copied.as_ref().is_some_and(HashSet::is_empty) {
            return Ok(());
        }
        // The sources stay open until they are prepared.
        let (copied, _sources) = open_copied(&session, copied.as_ref());
        let mut copied = copied.iter();
        copied.try_for_each(|(dataset, info)| prepare(&session, *dataset, info))
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
    inside(hdf5, || {
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(hdf5) };
        let info = DatasetInfo::read(&session, dataset);
        // H5Ocopy cannot read the header of such a dataset either.
        info.map_or(Ok(()), |info| prepare(&session, dataset, &info))
    })
}

/// Returns the keys of the objects that are copied: the source and those below it. `None` if any object may be,
/// because the copy includes the targets of links and references, or because HDF5 cannot visit all objects.
fn copied(
    session: &Session<'_>,
    location: hid_t,
    name: &CStr,
    list: hid_t,
) -> Result<Option<HashSet<Key>>> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; the name is a C string.
    let source = unsafe { (hdf5.H5Oopen)(location, name.as_ptr(), H5P_DEFAULT) };
    let source = session.own(source, hdf5.H5Oclose, "open the source of a copy")?;
    // Its processes make the same calls, of which some are collective, and HDF5 caches no chunks while it is written.
    if is_shared(hdf5, &session.file_of(source.get())?) {
        return Ok(Some(HashSet::new()));
    }
    let mut options = 0;
    // SAFETY: HDF5 checks the identifier; the options have a place.
    let is_known =
        list == H5P_DEFAULT || unsafe { (hdf5.H5Pget_copy_object)(list, &mut options) } >= 0;
    let is_limited = is_known && options & EXPANDS == 0;
    Ok(is_limited
        .then(|| with_all_below(session, source.get()))
        .flatten())
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

/// Returns an identifier and the description of each open dataset that is copied, and the identifiers that were
/// opened to find sources of virtual datasets. HDF5 has the same buffers for all identifiers of a dataset. Datasets
/// that cannot be described are left out: H5Ocopy cannot read their headers either.
fn open_copied(
    session: &Session<'_>,
    copied: Option<&HashSet<Key>>,
) -> (Vec<(hid_t, DatasetInfo)>, Vec<Id>) {
    let keyed = |dataset| Some((session.object(dataset).ok()?, dataset));
    let datasets = open_ids(session, H5F_OBJ_DATASET).unwrap_or_default();
    let mut open: HashMap<Key, hid_t> = datasets.into_iter().filter_map(keyed).collect();
    let has_all = copied.is_some_and(|copied| copied.iter().all(|key| open.contains_key(key)));
    let files = LazyCell::new(|| open_files(session));
    let mut rest: Vec<(Key, hid_t)> = open.iter().map(|(key, id)| (*key, *id)).collect();
    let (mut described, mut opened) = (Vec::new(), Vec::new());
    while let Some((key, dataset)) = rest.pop() {
        let is_copied = copied.is_none_or(|copied| copied.contains(&key));
        // A description takes much longer than the layout.
        if !is_copied && (has_all || !is_virtual(session, dataset)) {
            continue;
        }
        let Ok(info) = DatasetInfo::read(session, dataset) else {
            continue;
        };
        // A source may be virtual itself.
        for source in open_sources(session, &files, key.0, &info) {
            if let Some((key, id)) = keyed(source.get())
                && let Entry::Vacant(place) = open.entry(key)
            {
                rest.push((key, *place.insert(id)));
                opened.push(source);
            }
        }
        if is_copied {
            described.push((dataset, info));
        }
    }
    (described, opened)
}

/// Returns whether a dataset is virtual; false if HDF5 cannot read its creation properties.
fn is_virtual(session: &Session<'_>, dataset: hid_t) -> bool {
    creation_properties(session, dataset).is_ok_and(|creation| {
        // SAFETY: takes an owned identifier.
        unsafe { (session.hdf5.H5Pget_layout)(creation.get()) == H5D_VIRTUAL }
    })
}

/// Returns the number, an identifier and the path of each open file.
fn open_files(session: &Session<'_>) -> Vec<(u64, hid_t, PathBuf)> {
    let file = |id| {
        let (number, _) = session.object(id).ok()?;
        Some((number, id, name_of_file(session, id).unwrap_or_default()))
    };
    let files = open_ids(session, H5F_OBJ_FILE).unwrap_or_default();
    files.into_iter().filter_map(file).collect()
}

/// Opens the sources of a dataset of the file `number` that lie in open files.
fn open_sources(
    session: &Session<'_>,
    files: &[(u64, hid_t, PathBuf)],
    number: u64,
    info: &DatasetInfo,
) -> Vec<Id> {
    let mut opened = Vec::new();
    for (source, name) in sources(info) {
        let is_there = |file: &&(u64, hid_t, PathBuf)| {
            // HDF5 looks for a file in several folders, but always under the last part of its name.
            // Links to it that have other names are not recognized.
            if source.as_os_str() == "." {
                file.0 == number
            } else {
                source.file_name() == file.2.file_name()
            }
        };
        for (_, file, _) in files.iter().filter(is_there) {
            let hdf5 = session.hdf5;
            // SAFETY: HDF5 checks the identifier; the name is a C string.
            let source = unsafe { (hdf5.H5Dopen2)(*file, name.as_ptr(), H5P_DEFAULT) };
            opened.extend(session.own(source, hdf5.H5Dclose, "open a source"));
        }
    }
    opened
}

/// Returns the files and names of the sources of a dataset, none unless it is virtual. Names with running
/// numbers are left out: HDF5 may still crash where such sources are copied.
fn sources(info: &DatasetInfo) -> HashSet<(PathBuf, CString)> {
    let Layout::Virtual(mappings) = &info.layout else {
        return HashSet::new();
    };
    let sources = mappings.iter().filter_map(|mapping| {
        let (file, many_files) = numbered(mapping.file.as_os_str(), 0);
        let (name, many) = numbered(mapping.dataset.as_ref(), 0);
        let name = CString::new(name.into_os_string().into_vec()).ok()?;
        (!many && !many_files).then_some((file, name))
    });
    sources.collect()
}

fn prepare(session: &Session<'static>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let prepared = match &info.layout {
        Layout::Chunked { chunk, .. } => {
            let elements: u64 = chunk.iter().product();
            if elements.saturating_mul(info.element.size().0) > cache_size(session, dataset)? {
                return Ok(());
            }
            evict_chunks(session, dataset, info)
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
    let list = session.access_of_dataset(dataset)?;
    let (mut slots, mut bytes, mut weight) = (0, 0, 0.0);
    let get = session.hdf5.H5Pget_chunk_cache;
    // SAFETY: an owned identifier; the results have places of their types.
    let status = unsafe { get(list.get(), &mut slots, &mut bytes, &mut weight) };
    session.check(status, "get the size of the chunk cache")?;
    Ok(bytes as u64)
}

/// Makes HDF5 write the changed chunks of its cache, and evict those that it would copy wrongly: all chunks with
/// filters, all chunks of an index by which HDF5 confuses chunks, and chunks that were read and are not stored. HDF5
/// does not report which chunks are cached, so all places of chunks are tried, or only the stored chunks if there are
/// too many places.
fn evict_chunks(session: &Session<'static>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let table = read_chunk_table(session, dataset, info)?;
    let grid = table.grid();
    let written = WrittenDataset::new(session, dataset, Arc::new(info.clone()));
    let chunks = StoredChunks::of(&written, session);
    let forgets_all = !info.filters.is_empty() || chunks.may_confuse_chunks();
    let evict = |number: u64| {
        let at = grid.coordinates(number);
        let first: Vec<u64> = at
            .iter()
            .zip(grid.chunk())
            .map(|(at, side)| at * side)
            .collect();
        chunks.read_stored(&first).map(drop)
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
