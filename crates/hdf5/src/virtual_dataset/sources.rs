//! Opens the sources of virtual datasets as HDF5 itself does.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::error::{Error, Kind};
use penstock_engine::file::unchanged::Status;
use penstock_sys::environment;
use penstock_sys::hdf5::{
    H5D_VIRTUAL, H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, H5F_CLOSE_WEAK, H5P_DEFAULT,
    H5S_ALL, hid_t,
};

use crate::dataset::{
    DatasetInfo, Layout, TouchedChunks, VirtualMapping, creation_properties, external_prefix,
    flush, read_chunk_table,
};
use crate::library::{Id, Session};
use crate::open_files::{Identity, SourceFile, identity, identity_of, most_descriptors};
use penstock_array::ChunkTable;

use super::files::{Origin, PREFIXES, numbered};
use super::limits::Stop;
use super::mapping::Wanted;
use super::source_dataset::{CachedSource, FEW_OF_MANY_CHUNKS, SourceCache, SourceDataset, Store};

/// Largest number of source files that stay open for the next mapping.
const MOST_OPEN: u64 = 64;
/// Largest number of sources that stay open until their chunk index is needed.
const MOST_UNREAD: usize = 16;
/// Largest size of a compact dataset in bytes; its object header has no room for more.
const MOST_COMPACT: u64 = 1 << 16;

/// A virtual dataset, as the origin from which its sources are found.
pub(super) struct VirtualDataset {
    file: Rc<Id>,
    /// Property lists with which its sources are opened.
    file_access: Id,
    dataset_access: Id,
    intent: u32,
    origin: Origin,
    external_prefix: bool,
    pub identity: Identity,
    pub info: Arc<DatasetInfo>,
}

/// A source dataset. HDF5 keeps it open only if it is virtual itself.
pub(super) enum Source {
    Virtual(VirtualDataset),
    Stored(StoredSource),
    /// A source of which only the shape is needed.
    Described(DatasetInfo),
}

impl Source {
    pub(super) fn info(&self) -> &DatasetInfo {
        match self {
            Source::Virtual(place) => &place.info,
            Source::Stored(source) => &source.info,
            Source::Described(info) => info,
        }
    }
}

/// A file that was looked for, and its status if there is one; see [`Status::settled`].
pub(crate) type Sighting = (PathBuf, Option<Option<Status>>);

/// A source file that exists.
struct Located {
    /// `None` for the file of the virtual dataset.
    path: Option<PathBuf>,
    identity: Identity,
    /// See [`Status::settled`].
    status: Option<Status>,
}

/// A source whose elements are stored.
pub(super) struct StoredSource {
    pub info: Arc<DatasetInfo>,
    pub store: Store,
    pub cached: Option<Arc<dyn CachedSource>>,
    table: OnceCell<Arc<ChunkTable>>,
    /// The dataset, until its large chunk index is needed.
    unread: Option<Id>,
}

impl StoredSource {
    /// Returns the chunk table for a read of these elements.
    pub(super) fn table(
        &self,
        session: &Session<'_>,
        wanted: &Wanted,
        never_hdf5: bool,
    ) -> Result<Option<Arc<ChunkTable>>, Stop> {
        let Layout::Chunked { chunk, .. } = &self.info.layout else {
            return Ok(None);
        };
        if let (None, Some(dataset)) = (self.table.get(), &self.unread) {
            let touched = TouchedChunks::of(&wanted.selection, chunk, wanted.memory.length);
            let cached = self.cached.as_ref();
            if !never_hdf5 && cached.is_some_and(|cached| cached.is_for_hdf5(touched)) {
                return Err(Stop::Hdf5(FEW_OF_MANY_CHUNKS.to_owned()));
            }
            self.read_table(session, dataset)?;
        }
        Ok(self.table.get().cloned())
    }

    fn read_table(&self, session: &Session<'_>, dataset: &Id) -> Result<(), Stop> {
        let table = Arc::new(read_chunk_table(session, dataset.get(), &self.info)?);
        if let Some(cached) = &self.cached {
            cached.add_table(&table);
        }
        self.table.get_or_init(|| table);
        Ok(())
    }
}

/// Files and datasets that have been opened.
pub(super) struct Sources<'a> {
    pub(super) session: &'a Session<'a>,
    /// `None` if only the shapes of sources are needed.
    source_cache: Option<&'a dyn SourceCache>,
    /// The files that were looked for.
    pub(super) sightings: Vec<Sighting>,
    /// Whether a source may change in this process, or could not be looked at.
    pub(super) is_unsettled: bool,
    /// How many sources stay open until their chunk index is needed.
    unread: usize,
    /// The file of the virtual dataset that is read.
    reader: Option<Identity>,
    files: VecDeque<(PathBuf, u32, Rc<Id>)>,
    /// Sources by the file in which the name was looked up, and the name.
    known: HashMap<(Identity, CString), Option<Rc<Source>>>,
    source_files: HashMap<Identity, Arc<SourceFile>>,
}

impl<'a> Sources<'a> {
    /// Without `source_cache`, sources are only described.
    pub(super) fn new(session: &'a Session<'a>, source_cache: Option<&'a dyn SourceCache>) -> Self {
        Sources {
            session,
            source_cache,
            sightings: Vec::new(),
            is_unsettled: false,
            unread: 0,
            reader: None,
            files: VecDeque::new(),
            known: HashMap::new(),
            source_files: HashMap::new(),
        }
    }

    pub(super) fn only_shapes(&self) -> bool {
        self.source_cache.is_none()
    }

    /// Describes a virtual dataset as an origin; `info` is its description.
    pub(super) fn place(
        &self,
        dataset: hid_t,
        info: Arc<DatasetInfo>,
    ) -> Result<VirtualDataset, Stop> {
        let session = self.session;
        let hdf5 = session.hdf5;
        let file = session.file_of(dataset)?;
        let file_access = session.access_of_file(&file)?;
        // SAFETY: takes an owned identifier.
        let status = unsafe { (hdf5.H5Pset_fclose_degree)(file_access.get(), H5F_CLOSE_WEAK) };
        session.check(status, "set the close degree of source files")?;
        let dataset_access = session.access_of_dataset(dataset)?;
        let prefix = session.text("get the prefix of source files", |to, size| {
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
            unsafe { (hdf5.H5Pget_virtual_prefix)(dataset_access.get(), to, size) }
        })?;
        let external = external_prefix(session, &dataset_access)?;
        let intent = session.intent_of(&file)?;
        let name = info.file.name.clone();
        let (absolute, identity) = whereabouts(&info, &name)?;
        Ok(VirtualDataset {
            file: Rc::new(file),
            file_access,
            dataset_access,
            intent: intent & (H5F_ACC_RDWR | H5F_ACC_SWMR_READ | H5F_ACC_SWMR_WRITE),
            origin: Origin {
                name,
                absolute,
                prefix,
            },
            external_prefix: !external.is_empty(),
            identity,
            info,
        })
    }

    /// Returns whether a source of that name can be opened, and its origin if it is virtual itself.
    pub(super) fn find_virtual(
        &mut self,
        place: &VirtualDataset,
        file: &Path,
        name: &Path,
    ) -> Option<Option<VirtualDataset>> {
        let name = CString::new(name.as_os_str().as_bytes()).ok()?;
        let at = self.locate(place, file).ok()??;
        let opened = self.open(place, &at).ok()?;
        let dataset = self.open_dataset(place, &opened, &name).ok()?;
        let creation = creation_properties(self.session, dataset.get()).ok()?;
        // SAFETY: takes an owned identifier.
        if unsafe { (self.session.hdf5.H5Pget_layout)(creation.get()) } != H5D_VIRTUAL {
            return Some(None);
        }
        let info = DatasetInfo::read(self.session, dataset.get()).ok()?;
        Some(self.place(dataset.get(), Arc::new(info)).ok())
    }

    /// Returns the source of a mapping; `None` if its file or dataset does not exist, so that HDF5
    /// returns the fill value.
    pub(super) fn find(
        &mut self,
        place: &VirtualDataset,
        mapping: &VirtualMapping,
    ) -> Result<Option<Rc<Source>>, Stop> {
        self.find_in_series(place, mapping, 0)
    }

    /// As [`find`](Self::find), for the source with this running number.
    pub(super) fn find_in_series(
        &mut self,
        place: &VirtualDataset,
        mapping: &VirtualMapping,
        number: u64,
    ) -> Result<Option<Rc<Source>>, Stop> {
        let (name, _) = numbered(mapping.dataset.as_ref(), number);
        let name = CString::new(name.as_os_str().as_bytes()).map_err(|_| unnamed(mapping))?;
        if mapping.dataset.contains('\u{fffd}') {
            return Err(unnamed(mapping));
        }
        let (file, _) = numbered(mapping.file.as_os_str(), number);
        let Some(at) = self.locate(place, &file)? else {
            return Ok(None);
        };
        let key = (at.identity, name);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let found = match self.kept(&at, &key.1) {
            Some(kept) => Some(kept),
            None => self.load(place, &at, &key.1)?,
        };
        let found = found.map(Rc::new);
        self.known.insert(key, found.clone());
        Ok(found)
    }

    /// Returns a source that need not be opened.
    fn kept(&self, at: &Located, name: &CStr) -> Option<Source> {
        let kept = self.source_cache?.kept(at.status.as_ref()?, name)?;
        Some(Source::Stored(StoredSource {
            table: kept.cached.table().map(OnceCell::from).unwrap_or_default(),
            info: kept.info,
            store: Store::File(kept.file),
            cached: Some(kept.cached),
            unread: None,
        }))
    }

    /// Finds a source file; `None` if there is none. `.` is the file of the virtual dataset.
    fn locate(&mut self, place: &VirtualDataset, file: &Path) -> Result<Option<Located>, Stop> {
        if file.as_os_str() == "." {
            return Ok(Some(Located {
                path: None,
                identity: place.identity,
                status: None,
            }));
        }
        // HDF5 reads the variable in every program, so Penstock must find the same files.
        let prefixes = environment::setting(PREFIXES);
        for path in place.origin.candidates(file, prefixes) {
            match fs::metadata(&path) {
                Ok(meta) => {
                    let status = Status::settled(&meta);
                    self.sightings.push((path.clone(), Some(status)));
                    return Ok(Some(Located {
                        path: Some(path),
                        identity: identity(&meta),
                        status,
                    }));
                }
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => {
                        self.sightings.push((path, None));
                        continue;
                    }
                    _ => return Err(unreadable(&path, &error.to_string())),
                },
            }
        }
        Ok(None)
    }

    /// Opens a source file that was found.
    fn open(&mut self, place: &VirtualDataset, at: &Located) -> Result<Rc<Id>, Stop> {
        let Some(path) = &at.path else {
            return Ok(place.file.clone());
        };
        let is_it =
            |(open, intent, _): &&(PathBuf, u32, Rc<Id>)| open == path && *intent == place.intent;
        if let Some((_, _, id)) = self.files.iter().find(is_it) {
            return Ok(id.clone());
        }
        let id = Rc::new(self.open_file(place, path)?);
        let most = MOST_OPEN.min(most_descriptors() / 16) as usize;
        while self.files.len() >= most.max(1) {
            self.files.pop_front();
        }
        self.files
            .push_back((path.clone(), place.intent, id.clone()));
        Ok(id)
    }

    /// Opens a source file that exists.
    fn open_file(&mut self, place: &VirtualDataset, path: &Path) -> Result<Id, Stop> {
        let (session, hdf5) = (self.session, self.session.hdf5);
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| unreadable(path, &error.to_string()))?;
        let open = || {
            // SAFETY: the name outlives the call; the properties are owned.
            let id =
                unsafe { (hdf5.H5Fopen)(name.as_ptr(), place.intent, place.file_access.get()) };
            session.own(id, hdf5.H5Fclose, "open it")
        };
        open().or_else(|error| {
            // HDF5 would take a file that it cannot open for one that does not exist.
            if !no_descriptor_is_left() {
                return Err(unreadable(path, error.cause()));
            }
            self.files.clear();
            open().map_err(|_| Stop::Failed(no_descriptor(path)))
        })
    }

    fn open_dataset(&self, place: &VirtualDataset, file: &Id, name: &CString) -> Result<Id, Error> {
        let (open, access) = (self.session.hdf5.H5Dopen2, place.dataset_access.get());
        // SAFETY: the name outlives the call; the properties are owned.
        let dataset = unsafe { open(file.get(), name.as_ptr(), access) };
        self.session
            .own(dataset, self.session.hdf5.H5Dclose, "open it")
    }

    fn load(
        &mut self,
        place: &VirtualDataset,
        at: &Located,
        name: &CString,
    ) -> Result<Option<Source>, Stop> {
        let hdf5 = self.session.hdf5;
        let file = self.open(place, at)?;
        let failed = |error: Error| {
            let what = format!("cannot be opened: {}", error.cause());
            refused(&name.to_string_lossy(), &what)
        };
        // SAFETY: the name outlives the call.
        let exists = unsafe { (hdf5.H5Oexists_by_name)(file.get(), name.as_ptr(), H5P_DEFAULT) };
        if self.session.check(exists, "look for it").map_err(failed)? == 0 {
            return Ok(None);
        }
        let dataset = self.open_dataset(place, &file, name).map_err(failed)?;
        let info = DatasetInfo::read(self.session, dataset.get())?;
        self.is_unsettled |= info.file.is_writable || info.file.is_swmr;
        let Some(source_cache) = self.source_cache else {
            return Ok(Some(match info.layout {
                Layout::Virtual(_) => Source::Virtual(self.place(dataset.get(), Arc::new(info))?),
                _ => Source::Described(info),
            }));
        };
        // HDF5 expands the prefix for the folder of the origin. Of another origin it is unknown here.
        let has_prefix = match &info.layout {
            Layout::Virtual(_) => !place.origin.prefix.is_empty(),
            Layout::External(_) => place.external_prefix,
            _ => false,
        };
        if has_prefix && at.path.is_some() {
            return Err(refused(
                &info.name,
                "refers to other files while a prefix is set",
            ));
        }
        if matches!(info.layout, Layout::Virtual(_)) {
            let place = self.place(dataset.get(), Arc::new(info))?;
            return Ok(Some(Source::Virtual(place)));
        }
        let cached = source_cache.entry(&SourceDataset {
            dataset: dataset.get(),
            file: file.get(),
            info: &info,
            path: at.path.as_deref(),
            found: at.identity,
            name,
            reader: *self.reader.get_or_insert(place.identity),
        });
        let source = self.stored(dataset, info, cached)?;
        Ok(Some(Source::Stored(source)))
    }

    fn stored(
        &mut self,
        dataset: Id,
        mut info: DatasetInfo,
        cached: Option<Arc<dyn CachedSource>>,
    ) -> Result<StoredSource, Stop> {
        if let Some(what) = info.element.only_hdf5() {
            return Err(refused(&info.name, &format!("has {what}")));
        }
        if info.file.is_writable {
            match flush(self.session, dataset.get(), &info)? {
                // Chunks that were only in memory now have addresses, and the file is longer.
                Ok(()) => info.refresh(self.session, dataset.get())?,
                // HDF5 may hold elements in its sieve buffer, and reads them from there.
                Err(_) if is_small_and_contiguous(&info) => info.layout = Layout::Compact,
                Err(why) => return Err(refused(&info.name, &format!("is left to HDF5: {why}"))),
            }
        }
        let store = match info.layout {
            Layout::Compact => Store::Memory(Arc::new(self.read(&dataset, &info)?)),
            _ => {
                let file = self.source_file(&info)?;
                // HDF5 closes its descriptor.
                Arc::make_mut(&mut info.file).descriptor = None;
                Store::File(file)
            }
        };
        let mut source = StoredSource {
            info: Arc::new(info),
            store,
            table: OnceCell::new(),
            cached,
            unread: None,
        };
        if let (Some(cached), Store::File(file)) = (&source.cached, &source.store)
            && !matches!(source.info.layout, Layout::External(_))
        {
            cached.keep(&source.info, file);
        }
        if !matches!(source.info.layout, Layout::Chunked { .. }) {
            return Ok(source);
        }
        match source.cached.as_ref().map(|cached| cached.table()) {
            Some(Some(known)) => source.table = known.into(),
            Some(None) if source.info.has_large_index() && self.unread < MOST_UNREAD => {
                self.unread += 1;
                source.unread = Some(dataset);
            }
            _ => source.read_table(self.session, &dataset)?,
        }
        Ok(source)
    }

    fn source_file(&mut self, info: &DatasetInfo) -> Result<Arc<SourceFile>, Stop> {
        let Some(descriptor) = info.file.descriptor else {
            let file = info.file.name.display();
            return Err(refused(
                &info.name,
                &format!("is in {file}, which is not one plain file"),
            ));
        };
        let name = &info.file.name;
        let file = SourceFile::of_descriptor(descriptor, name).map_err(|error| {
            if error.is_out_of_descriptors() {
                Stop::Failed(error)
            } else {
                unreadable(name, error.cause())
            }
        })?;
        let known = self.source_files.entry(file.identity());
        Ok(known.or_insert_with(|| Arc::new(file)).clone())
    }

    /// Reads all elements of a small dataset in its own type.
    fn read(&self, dataset: &Id, info: &DatasetInfo) -> Result<Vec<u8>, Stop> {
        let size = info.bytes()?;
        if size > MOST_COMPACT {
            let cause = format!("the compact dataset {} has {size} bytes", info.name);
            return Err(Stop::Failed(Error::new(Kind::Io, cause)));
        }
        let element = self.session.type_of(dataset.get())?;
        let mut bytes = vec![0u8; size as usize];
        // SAFETY: the memory is as large as all elements of the dataset in its own type, whose
        // values own no memory of HDF5.
        let status = unsafe {
            (self.session.hdf5.H5Dread)(
                dataset.get(),
                element.get(),
                H5S_ALL,
                H5S_ALL,
                H5P_DEFAULT,
                bytes.as_mut_ptr().cast(),
            )
        };
        self.session.check(status, "read a small dataset")?;
        Ok(bytes)
    }
}

/// Returns whether a dataset may be read as a compact one.
fn is_small_and_contiguous(info: &DatasetInfo) -> bool {
    matches!(info.layout, Layout::Contiguous { .. })
        && info.bytes().is_ok_and(|size| size <= MOST_COMPACT)
}

/// Returns the absolute name that the dataset's file had when it was opened, and the file's
/// identity.
fn whereabouts(info: &DatasetInfo, name: &Path) -> Result<(PathBuf, Identity), Stop> {
    let Some(descriptor) = info.file.descriptor else {
        return Err(Stop::Hdf5("its file is not one plain file".to_owned()));
    };
    let open = identity_of(descriptor).ok_or_else(|| unreadable(name, "HDF5 has closed it"))?;
    if name.is_absolute() {
        return Ok((name.to_owned(), open));
    }
    let folder = std::env::current_dir().map_err(|error| unreadable(name, &error.to_string()))?;
    let absolute = folder.join(name);
    let named = fs::metadata(&absolute).map(|meta| identity(&meta));
    if named.is_ok_and(|named| named == open) {
        return Ok((absolute, open));
    }
    let name = name.display();
    let why = format!("its file was opened as {name} relative to another working directory");
    Err(Stop::Hdf5(why))
}

fn unnamed(mapping: &VirtualMapping) -> Stop {
    let name = &mapping.dataset;
    Stop::Hdf5(format!(
        "the name of its source {name:?} is not UTF-8, or contains a NUL"
    ))
}

fn refused(source: &str, what: &str) -> Stop {
    Stop::Hdf5(format!("its source {source} {what}"))
}

/// Returns whether the process or the system has no descriptor left.
fn no_descriptor_is_left() -> bool {
    let error = fs::File::open("/dev/null").err();
    let errno = error.and_then(|error| error.raw_os_error());
    matches!(errno, Some(libc::EMFILE | libc::ENFILE))
}

fn no_descriptor(path: &Path) -> Error {
    let error = std::io::Error::from_raw_os_error(libc::EMFILE);
    Error::os(&error, "cannot open a source file").in_file(path)
}

fn unreadable(path: &Path, cause: &str) -> Stop {
    Stop::Hdf5(format!("its source file {}: {cause}", path.display()))
}
