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
//! An open virtual dataset keeps the sources that HDF5 has read through it open, with their files and buffers,
//! but without identifiers. HDF5 does not report which. A dataset that is open keeps the chunk cache that it was
//! first opened with, so one that is opened without a cache, and then has none, was not open.

use std::collections::hash_map::{Entry, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::{H5O_INFO_BASIC, H5O_info2_t};
use penstock_sys::hdf5::{
    H5_INDEX_NAME, H5_ITER_NATIVE, H5D_VIRTUAL, H5F_OBJ_DATASET, H5L_TYPE_EXTERNAL, H5L_TYPE_SOFT,
    H5L_info2_t, H5O_COPY_EXPAND_EXT_LINK_FLAG, H5O_COPY_EXPAND_REFERENCE_FLAG,
    H5O_COPY_EXPAND_SOFT_LINK_FLAG, H5O_TYPE_DATASET, H5P_DEFAULT, Hdf5, herr_t, hid_t,
};

use crate::dataset::{
    DatasetInfo, Layout, creation_properties, is_shared, read_chunk_table, sieve,
};
use crate::library::{Id, Session};
use crate::transfer::hdf5_state::{chunk_cache_of, inside};
use crate::transfer::sinks::{StoredChunks, WrittenDataset};

/// The number of an open file, and the token of an object in it.
type Key = (u64, [u8; 16]);

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
        let datasets = session.open_ids(H5F_OBJ_DATASET).unwrap_or_default();
        if datasets.is_empty() {
            return Ok(());
        }
        let mut copied = Copied::new(&session, list);
        let is_known = copied.add_all(location, name).is_some();
        if is_known && copied.objects.is_empty() {
            return Ok(());
        }
        let keyed = |dataset| Some((session.object(dataset).ok()?, dataset));
        let open: HashMap<Key, hid_t> = datasets.into_iter().filter_map(keyed).collect();
        // HDF5 has the same buffers for all identifiers of a dataset.
        for (key, dataset) in &open {
            if !is_known || copied.objects.contains_key(key) {
                prepare(&session, *dataset)?;
            }
        }
        let is_closed =
            |(key, found): &(&Key, &Found)| found.is_dataset && !open.contains_key(*key);
        let mut closed = copied.objects.iter().filter(is_closed).peekable();
        if closed.peek().is_some() && open.values().any(|open| is_virtual(&session, *open)) {
            let access = without_chunk_cache(&session)?;
            closed.try_for_each(|(_, found)| prepare_closed(&session, found, &access))?;
        }
        Ok(())
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
        prepare(&session, dataset)
    })
}

/// The objects that a copy includes, or more.
struct Copied<'a> {
    session: &'a Session<'a>,
    /// Flags of the copy.
    options: c_uint,
    objects: HashMap<Key, Found>,
    /// The files of the objects.
    files: Vec<Id>,
}

/// An object, as it was found.
struct Found {
    location: hid_t,
    path: CString,
    is_dataset: bool,
}

/// The visit of an object and of all below it.
struct Visit<'a> {
    location: hid_t,
    path: &'a CStr,
    objects: &'a mut HashMap<Key, Found>,
    /// Types of links to follow.
    followed: &'a [c_int],
    /// Paths of such links.
    links: Vec<CString>,
}

impl<'a> Copied<'a> {
    fn new(session: &'a Session<'a>, list: hid_t) -> Self {
        let mut options = 0;
        // SAFETY: HDF5 checks the identifier; the options have a place.
        let status = unsafe { (session.hdf5.H5Pget_copy_object)(list, &mut options) };
        Copied {
            session,
            options: if status < 0 { 0 } else { options },
            objects: HashMap::new(),
            files: Vec::new(),
        }
    }

    /// Adds an object, all below it, and what links and references lead to if the copy includes that. `None` if
    /// HDF5 cannot find all of them.
    fn add_all(&mut self, location: hid_t, path: &CStr) -> Option<()> {
        let mut rest = vec![(location, path.to_owned())];
        while let Some((location, path)) = rest.pop() {
            rest.extend(self.add(location, &path)?);
        }
        Some(())
    }

    /// Adds an object and all below it. Returns what links and references there may lead to.
    fn add(&mut self, location: hid_t, path: &CStr) -> Option<Vec<(hid_t, CString)>> {
        let (session, hdf5) = (self.session, self.session.hdf5);
        // SAFETY: HDF5 checks the identifier; the path is a C string.
        let object = unsafe { (hdf5.H5Oopen)(location, path.as_ptr(), H5P_DEFAULT) };
        let Ok(object) = session.own(object, hdf5.H5Oclose, "open what is copied") else {
            // SAFETY: as above.
            let exists =
                unsafe { (hdf5.H5Oexists_by_name)(location, path.as_ptr(), H5P_DEFAULT) > 0 };
            return (!exists).then(Vec::new);
        };
        let key = session.object(object.get()).ok()?;
        let file = session.file_of(object.get()).ok()?;
        // A dataset that stays open would be taken for one that was open before.
        drop(object);
        // The processes of a shared file make the same calls, of which some are collective, and HDF5 caches no
        // chunks while it is written.
        if self.objects.contains_key(&key) || is_shared(hdf5, &file) {
            return Some(Vec::new());
        }
        let mut rest = Vec::new();
        if self.options & H5O_COPY_EXPAND_REFERENCE_FLAG != 0 {
            rest.push((file.get(), c"/".to_owned()));
        }
        self.files.push(file);
        let links = self.visit(location, path)?;
        rest.extend(links.into_iter().map(|link| (location, link)));
        Some(rest)
    }

    /// Notes an object and all below it. Returns the paths of the links to follow.
    fn visit(&mut self, location: hid_t, path: &CStr) -> Option<Vec<CString>> {
        let hdf5 = self.session.hdf5;
        let types = [
            (H5O_COPY_EXPAND_SOFT_LINK_FLAG, H5L_TYPE_SOFT),
            (H5O_COPY_EXPAND_EXT_LINK_FLAG, H5L_TYPE_EXTERNAL),
        ];
        let followed = types.iter().filter(|(flag, _)| self.options & flag != 0);
        let followed: Vec<c_int> = followed.map(|(_, kind)| *kind).collect();
        let mut visit = Visit {
            location,
            path,
            objects: &mut self.objects,
            followed: &followed,
            links: Vec::new(),
        };
        let data: *mut c_void = ptr::from_mut(&mut visit).cast();
        let (index, order) = (H5_INDEX_NAME, H5_ITER_NATIVE);
        // SAFETY: HDF5 checks the identifier; the path is a C string; the visit outlives both calls, and nothing
        // else uses it meanwhile.
        unsafe {
            let (name, list) = (path.as_ptr(), H5P_DEFAULT);
            let (note, fields) = (note_object, H5O_INFO_BASIC);
            if (hdf5.H5Ovisit_by_name3)(location, name, index, order, note, data, fields, list) < 0
            {
                return None;
            }
            // It fails for anything but groups, which has no links.
            if !followed.is_empty() {
                (hdf5.H5Lvisit_by_name2)(location, name, index, order, note_link, data, list);
            }
        }
        Some(visit.links)
    }
}

impl Visit<'_> {
    /// Returns the path from the location to what a visit calls `name`.
    fn path_of(&self, name: &CStr) -> CString {
        if name == c"." {
            return self.path.to_owned();
        }
        let path = [self.path.to_bytes(), name.to_bytes()].join(&b'/');
        CString::new(path).unwrap_or_default()
    }
}

unsafe extern "C" fn note_object(
    _: hid_t,
    name: *const c_char,
    info: *const H5O_info2_t,
    visit: *mut c_void,
) -> herr_t {
    // SAFETY: HDF5 passes the object's name and description, and the visit, which nothing else uses.
    let (name, info, visit) = unsafe {
        (
            CStr::from_ptr(name),
            &*info,
            &mut *visit.cast::<Visit<'_>>(),
        )
    };
    let path = visit.path_of(name);
    if let Entry::Vacant(place) = visit.objects.entry((info.fileno, info.token)) {
        place.insert(Found {
            location: visit.location,
            path,
            is_dataset: info.kind == H5O_TYPE_DATASET,
        });
    }
    0
}

unsafe extern "C" fn note_link(
    _: hid_t,
    name: *const c_char,
    info: *const H5L_info2_t,
    visit: *mut c_void,
) -> herr_t {
    // SAFETY: HDF5 passes the link's name and description, and the visit, which nothing else uses.
    let (name, info, visit) = unsafe {
        (
            CStr::from_ptr(name),
            &*info,
            &mut *visit.cast::<Visit<'_>>(),
        )
    };
    if visit.followed.contains(&info.kind) {
        visit.links.push(visit.path_of(name));
    }
    0
}

/// Returns whether a dataset is virtual; false if HDF5 cannot read its creation properties.
fn is_virtual(session: &Session<'_>, dataset: hid_t) -> bool {
    creation_properties(session, dataset).is_ok_and(|creation| {
        // SAFETY: takes an owned identifier.
        unsafe { (session.hdf5.H5Pget_layout)(creation.get()) == H5D_VIRTUAL }
    })
}

/// Returns access properties of a dataset whose chunks HDF5 does not cache.
fn without_chunk_cache(session: &Session<'_>) -> Result<Id> {
    let (hdf5, action) = (session.hdf5, "create access properties without a cache");
    let class = hdf5.identifier("H5P_CLS_DATASET_ACCESS_ID_g");
    let class = class.ok_or_else(|| Error::invalid("HDF5 has no class of access properties"))?;
    // SAFETY: HDF5 checks the class; the result is owned.
    let list = session.own(unsafe { (hdf5.H5Pcreate)(class) }, hdf5.H5Pclose, action)?;
    // SAFETY: an owned identifier of that class.
    let status = unsafe { (hdf5.H5Pset_chunk_cache)(list.get(), 0, 0, 0.0) };
    session.check(status, action)?;
    Ok(list)
}

/// Prepares a dataset without an identifier, which may be open. `access` is a list [`without_chunk_cache`]. One that
/// cannot be opened is left out: H5Ocopy cannot read its header either.
fn prepare_closed(session: &Session<'static>, found: &Found, access: &Id) -> Result<()> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the location, which is open; the path is a C string.
    let id = unsafe { (hdf5.H5Dopen2)(found.location, found.path.as_ptr(), access.get()) };
    let dataset = session.own(id, hdf5.H5Dclose, "open a dataset");
    dataset.map_or(Ok(()), |dataset| prepare(session, dataset.get()))
}

/// Prepares an open dataset. One that cannot be described is left out: H5Ocopy cannot read its header either.
fn prepare(session: &Session<'static>, dataset: hid_t) -> Result<()> {
    let cached = chunk_cache_of(session, dataset)?;
    if cached == 0 {
        return Ok(());
    }
    let Ok(info) = DatasetInfo::read(session, dataset) else {
        return Ok(());
    };
    let prepared = match &info.layout {
        Layout::Chunked { chunk, .. } => {
            let elements: u64 = chunk.iter().product();
            if elements.saturating_mul(info.element.size().0) > cached {
                return Ok(());
            }
            evict_chunks(session, dataset, &info)
        }
        Layout::Contiguous { offset: Some(_) } if info.file.is_writable && info.bytes()? > 0 => {
            sieve::read_ends(session, dataset, &info.shape, H5P_DEFAULT)
        }
        _ => Ok(()),
    };
    prepared.map_err(|error| info.name_in(error))
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
