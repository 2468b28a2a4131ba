//! What a dataset is and where its bytes are, as plain data.

use std::ffi::{CStr, OsString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_array::{ChunkTable, FileSegment, Selection, Source, StoredArray, bytes};
use penstock_codec::{Filter, Pipeline};
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{
    H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, H5D_CHUNKED, H5D_COMPACT, H5D_CONTIGUOUS,
    H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_UNDEFINED, H5D_VIRTUAL, H5F_ACC_RDWR, H5F_ACC_SWMR_READ,
    H5F_ACC_SWMR_WRITE, H5S_MAX_RANK, H5S_NULL, H5S_UNLIMITED, H5Z_FLAG_OPTIONAL, hid_t,
};

use super::ElementType;
use super::dataspace;
use crate::library::{Id, Session, plain_files};

/// A dataset as its file describes it.
#[derive(Clone, Debug)]
pub struct DatasetInfo {
    /// Its path in the file; empty if it has none.
    pub name: String,
    /// Empty for a scalar, which has one element.
    pub shape: Vec<u64>,
    /// `None` along unlimited dimensions.
    pub max_shape: Vec<Option<u64>>,
    /// The dataset has no elements at all, whatever its shape (H5S_NULL).
    pub is_null: bool,
    /// The type of its elements in the file.
    pub element: ElementType,
    /// Where its elements are.
    pub layout: Layout,
    /// In the order in which a chunk is encoded.
    pub filters: Vec<Filter>,
    /// One element, as stored, for every element that was never written; `None` if HDF5 leaves the
    /// destination there as it was.
    pub fill: Option<Vec<u8>>,
    /// Its file.
    pub file: FileInfo,
}

/// How the elements of a dataset are stored.
#[derive(Clone, Debug)]
pub enum Layout {
    /// `None` if nothing was written yet. The offset counts from the start of the file, user block
    /// included.
    Contiguous {
        /// Where they begin in the file.
        offset: Option<u64>,
    },
    /// In chunks, each with a place of its own.
    Chunked {
        /// The shape of a chunk in elements.
        chunk: Vec<u64>,
        /// Chunks that stick out of the dataset are stored without any filter.
        dont_filter_edges: bool,
    },
    /// Inside the object header: only HDF5 reads it, and it is small.
    Compact,
    /// In other datasets.
    Virtual(Vec<VirtualMapping>),
    /// In other files, one after the other.
    External(Vec<FileSegment>),
}

/// A part of a virtual dataset.
#[derive(Clone, Debug)]
pub struct VirtualMapping {
    /// As written: `.` is the same file, `%%` stands for a percent sign, and `%b` in either name
    /// for a running number.
    pub file: PathBuf,
    /// The source dataset, by its path in that file.
    pub dataset: String,
    /// Of the virtual dataset.
    pub target: MappedSelection,
    /// Of the source.
    pub source: MappedSelection,
}

/// One side of a mapping. Elements correspond in the order in which they come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedSelection {
    /// The whole dataset, whatever its shape is when it is opened.
    All,
    /// In a dataspace that is large enough; the dataset may have another shape.
    Some {
        /// The elements.
        selection: Selection,
        /// The shape of that dataspace.
        shape: Vec<u64>,
    },
    /// The selection has no end, which only HDF5 resolves.
    Unlimited,
}

/// The file of a dataset, and what decides whether its bytes may be read past HDF5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// As it was opened.
    pub name: PathBuf,
    /// HDF5's own descriptor of the file, with a driver of plain files. Good while HDF5 has the
    /// file open; through `/proc/self/fd` it leads to the same file whatever became of its name.
    pub descriptor: Option<i32>,
    /// Bytes that it has, or that HDF5 has allocated in it without having written them yet.
    pub size: u64,
    /// HDF5 may hold changes that are not in the file yet.
    pub is_writable: bool,
    /// It is open for one writer and readers at the same time (SWMR).
    pub is_swmr: bool,
    /// Offsets are those of one plain file.
    pub is_plain: bool,
    /// Bytes of a page buffer, which may hold changed raw data.
    pub page_buffer: usize,
    /// The buffer in which HDF5 may hold changed contiguous data; H5Dflush writes it.
    pub sieve_buffer: usize,
    /// Bytes before HDF5's own; offsets count them.
    pub user_block: u64,
}

impl FileInfo {
    /// The file of an object.
    pub fn of(session: &Session<'_>, object: hid_t) -> Result<FileInfo> {
        let dataset = object;
        Reader { session, dataset }.file()
    }
}

impl DatasetInfo {
    /// All of it, on this thread. The chunk index is apart: [`read_chunk_table`](crate::dataset::read_chunk_table).
    pub fn read(session: &Session<'_>, dataset: hid_t) -> Result<DatasetInfo> {
        let reader = Reader { session, dataset };
        let name = reader.name()?;
        reader.info(&name).map_err(|error| in_dataset(error, &name))
    }

    /// Brings up to date what changes when HDF5 writes what it holds of the dataset: the size of the file,
    /// and where contiguous elements begin.
    pub(crate) fn refresh(&mut self, session: &Session<'_>, dataset: hid_t) -> Result<()> {
        let reader = Reader { session, dataset };
        self.file = reader.file().map_err(|error| self.name_in(error))?;
        if let Layout::Contiguous { .. } = self.layout {
            let offset = reader.offset(self).map_err(|error| self.name_in(error))?;
            self.layout = Layout::Contiguous { offset };
        }
        Ok(())
    }

    /// Whether nothing of it changes any more while it is open.
    pub fn is_settled(&self) -> bool {
        matches!(self.layout, Layout::Contiguous { offset: Some(_) })
    }

    /// Bytes of all elements; an error if they cannot be counted.
    pub fn bytes(&self) -> Result<u64> {
        match self.is_null {
            true => Ok(0),
            false => bytes(&self.name, &self.shape, self.element.size() as u64),
        }
    }

    /// What a plan must know of it. A chunked dataset needs its chunk table; of compact and virtual ones
    /// all elements are in memory.
    pub fn array(&self, table: Option<Arc<ChunkTable>>) -> Result<StoredArray> {
        let mut unfiltered_edges = false;
        let source = match (&self.layout, table) {
            (
                Layout::Chunked {
                    dont_filter_edges, ..
                },
                Some(table),
            ) => {
                unfiltered_edges = *dont_filter_edges;
                Source::Chunks(table)
            }
            (Layout::Chunked { .. }, None) => {
                return Err(Error::invalid("a chunked dataset needs its chunk table"));
            }
            (Layout::Contiguous { offset }, _) => match offset {
                Some(offset) => Source::Contiguous { offset: *offset },
                None => Source::Missing,
            },
            (Layout::External(segments), _) => Source::Segments(segments.clone()),
            (Layout::Compact | Layout::Virtual(_), _) => Source::Memory,
        };
        Ok(self.array_from(source, unfiltered_edges))
    }

    /// The same array with all its elements in memory.
    pub fn array_in_memory(&self) -> StoredArray {
        self.array_from(Source::Memory, false)
    }

    /// The same array as if nothing had ever been written.
    pub fn array_of_fill(&self) -> StoredArray {
        self.array_from(Source::Missing, false)
    }

    fn array_from(&self, source: Source, unfiltered_edges: bool) -> StoredArray {
        StoredArray {
            name: self.name.clone(),
            shape: self.shape.clone(),
            element: self.element.size() as u64,
            source,
            pipeline: Pipeline {
                filters: self.filters.clone(),
            },
            unfiltered_edges,
            fill: self.fill.clone(),
        }
    }

    /// Puts the dataset's name before the cause.
    pub fn name_in(&self, error: Error) -> Error {
        in_dataset(error, &self.name)
    }
}

pub(crate) fn in_dataset(error: Error, name: &str) -> Error {
    error.about(&format!("dataset {name}"))
}

impl FileInfo {
    /// The size as it is now: another process may append to the file (SWMR), of which HDF5 knows the size
    /// at the time of opening.
    pub(crate) fn size_now(&self) -> u64 {
        self.size.max(self.descriptor.map_or(0, length))
    }

    /// Whether it may end before what HDF5 has allocated in it. HDF5 reads zeros there; of any other file
    /// something was lost.
    pub(crate) fn may_end_early(&self) -> bool {
        self.is_writable || self.is_swmr
    }
}

/// The length of an open file; 0 if the system does not tell.
fn length(descriptor: c_int) -> u64 {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the system fills the place, or returns an error and leaves it.
    match unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } {
        // SAFETY: filled, as it has just said.
        0 => u64::try_from(unsafe { stat.assume_init() }.st_size).unwrap_or(0),
        _ => 0,
    }
}

/// What the system allows a path.
const PATH_MAX: usize = 4096;

struct Reader<'a> {
    session: &'a Session<'a>,
    dataset: hid_t,
}

impl Reader<'_> {
    fn info(&self, name: &str) -> Result<DatasetInfo> {
        let hdf5 = self.session.hdf5;
        let own = |id, close, action| self.session.own(id, close, action);
        // SAFETY: each takes the dataset's identifier, which HDF5 checks, and returns one of ours.
        let (space, of_element, creation, access) = unsafe {
            (
                own(
                    (hdf5.H5Dget_space)(self.dataset),
                    hdf5.H5Sclose,
                    "get the dataspace",
                )?,
                own(
                    (hdf5.H5Dget_type)(self.dataset),
                    hdf5.H5Tclose,
                    "get the type",
                )?,
                own(
                    (hdf5.H5Dget_create_plist)(self.dataset),
                    hdf5.H5Pclose,
                    "get the creation properties",
                )?,
                own(
                    (hdf5.H5Dget_access_plist)(self.dataset),
                    hdf5.H5Pclose,
                    "get the access properties",
                )?,
            )
        };
        let (shape, max_shape) = dataspace::extent(self.session, space.get())?;
        // SAFETY: takes an identifier of ours.
        let class = unsafe { (hdf5.H5Sget_simple_extent_type)(space.get()) };
        let element = ElementType::read(self.session, of_element.get())?;
        // SAFETY: takes an identifier of ours.
        let layout = unsafe { (hdf5.H5Pget_layout)(creation.get()) };
        let layout = self.session.check(layout, "get the layout")?;
        let mut info = DatasetInfo {
            name: name.to_owned(),
            shape,
            max_shape,
            is_null: class == H5S_NULL,
            layout: Layout::Compact,
            filters: self.filters(&creation)?,
            fill: self.fill(&creation, layout, &of_element, &element)?,
            file: self.file()?,
            element,
        };
        info.layout = match layout {
            H5D_COMPACT => Layout::Compact,
            H5D_CONTIGUOUS => self.contiguous(&creation, &access, &info)?,
            H5D_CHUNKED => self.chunked(&creation, info.shape.len())?,
            H5D_VIRTUAL => Layout::Virtual(self.mappings(&creation)?),
            other => {
                return Err(Error::new(
                    Kind::Io,
                    format!("layout class {other} is not known"),
                ));
            }
        };
        Ok(info)
    }

    fn name(&self) -> Result<String> {
        let get = |name, size| {
            // SAFETY: `text` gives a buffer of `size` bytes, or none of size 0.
            unsafe { (self.session.hdf5.H5Iget_name)(self.dataset, name, size) }
        };
        let name = self.session.text("get the name of the dataset", get)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    fn contiguous(&self, creation: &Id, access: &Id, info: &DatasetInfo) -> Result<Layout> {
        let slots = self.external(creation, access)?;
        let bytes = info.bytes()?;
        if !slots.is_empty() {
            let room = slots
                .iter()
                .try_fold(0u64, |all, slot| all.checked_add(slot.size?));
            if room.is_some_and(|room| room < bytes) {
                return Err(Error::new(
                    Kind::Io,
                    format!("its {bytes} bytes do not fit into its external files"),
                ));
            }
            return Ok(Layout::External(slots));
        }
        let offset = self.offset(info)?;
        Ok(Layout::Contiguous { offset })
    }

    /// Where the elements of a contiguous dataset begin; `None` if it has no storage.
    fn offset(&self, info: &DatasetInfo) -> Result<Option<u64>> {
        let bytes = info.bytes()?;
        // SAFETY: both take the dataset's identifier.
        let (stored, offset) = unsafe {
            (
                (self.session.hdf5.H5Dget_storage_size)(self.dataset),
                (self.session.hdf5.H5Dget_offset)(self.dataset),
            )
        };
        // Without storage the offset is nonsense, and not always HADDR_UNDEF.
        if stored == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(bytes);
        if stored < bytes || end.is_none_or(|end| end > info.file.size) {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "its {bytes} bytes at offset {offset} have {stored} bytes of storage in a file of {} bytes",
                    info.file.size
                ),
            ));
        }
        Ok(Some(offset))
    }

    fn external(&self, creation: &Id, access: &Id) -> Result<Vec<FileSegment>> {
        let hdf5 = self.session.hdf5;
        // SAFETY: takes an identifier of ours.
        let count = unsafe { (hdf5.H5Pget_external_count)(creation.get()) };
        let count = self.session.check(count, "count the external files")?;
        let mut slots = Vec::new();
        if count == 0 {
            return Ok(slots);
        }
        let prefix = self
            .session
            .text("get the prefix of external files", |to, size| {
                // SAFETY: `text` gives a buffer of `size` bytes, or none of size 0.
                unsafe { (hdf5.H5Pget_efile_prefix)(access.get(), to, size) }
            })?;
        let prefix = PathBuf::from(OsString::from_vec(prefix));
        for slot in 0..count as u32 {
            let mut name = vec![0u8; PATH_MAX + 1];
            let (mut offset, mut size) = (0i64, 0u64);
            // SAFETY: the name has its length, of which HDF5 fills all but the last byte at most;
            // the numbers have places of their types.
            let status = unsafe {
                (hdf5.H5Pget_external)(
                    creation.get(),
                    slot,
                    name.len() - 1,
                    name.as_mut_ptr().cast(),
                    &mut offset,
                    &mut size,
                )
            };
            self.session.check(status, "get an external file")?;
            let length = CStr::from_bytes_until_nul(&name).map_or(0, CStr::count_bytes);
            name.truncate(length);
            // The prefix is expanded already, be it the dataset's own or the environment's.
            let path = prefix.join(OsString::from_vec(name));
            slots.push(FileSegment {
                path: std::path::absolute(&path).unwrap_or(path),
                offset: u64::try_from(offset).map_err(|_| {
                    Error::new(Kind::Io, format!("external file {slot} starts at {offset}"))
                })?,
                size: (size != H5S_UNLIMITED).then_some(size),
            });
        }
        Ok(slots)
    }

    fn chunked(&self, creation: &Id, rank: usize) -> Result<Layout> {
        let hdf5 = self.session.hdf5;
        let mut chunk = vec![0u64; H5S_MAX_RANK];
        let mut options = 0;
        // SAFETY: the sizes have as much room as is said, the options a place of their type.
        let (got, status) = unsafe {
            (
                (hdf5.H5Pget_chunk)(creation.get(), H5S_MAX_RANK as c_int, chunk.as_mut_ptr()),
                (hdf5.H5Pget_chunk_opts)(creation.get(), &mut options),
            )
        };
        let got = self.session.check(got, "get the shape of chunks")?;
        self.session.check(status, "get the options of chunks")?;
        if got as usize != rank {
            return Err(Error::new(
                Kind::Io,
                format!("its chunks have {got} dimensions, itself {rank}"),
            ));
        }
        chunk.truncate(rank);
        Ok(Layout::Chunked {
            chunk,
            dont_filter_edges: options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS != 0,
        })
    }

    fn mappings(&self, creation: &Id) -> Result<Vec<VirtualMapping>> {
        let hdf5 = self.session.hdf5;
        let mut count = 0;
        // SAFETY: the count has a place of its type.
        let status = unsafe { (hdf5.H5Pget_virtual_count)(creation.get(), &mut count) };
        self.session
            .check(status, "count the parts of the virtual dataset")?;
        (0..count).map(|at| self.mapping(creation, at)).collect()
    }

    fn mapping(&self, creation: &Id, at: usize) -> Result<VirtualMapping> {
        let hdf5 = self.session.hdf5;
        let file = self.session.text("get the file of a part", |to, size| {
            // SAFETY: `text` gives a buffer of `size` bytes, or none of size 0.
            unsafe { (hdf5.H5Pget_virtual_filename)(creation.get(), at, to, size) }
        })?;
        let dataset = self.session.text("get the dataset of a part", |to, size| {
            // SAFETY: as above.
            unsafe { (hdf5.H5Pget_virtual_dsetname)(creation.get(), at, to, size) }
        })?;
        // SAFETY: both take an identifier of ours and return one of ours.
        let (target, source) = unsafe {
            (
                (hdf5.H5Pget_virtual_vspace)(creation.get(), at),
                (hdf5.H5Pget_virtual_srcspace)(creation.get(), at),
            )
        };
        let action = "get the selections of a part";
        let target = self.session.own(target, hdf5.H5Sclose, action)?;
        let source = self.session.own(source, hdf5.H5Sclose, action)?;
        Ok(VirtualMapping {
            file: PathBuf::from(OsString::from_vec(file)),
            dataset: String::from_utf8_lossy(&dataset).into_owned(),
            target: dataspace::mapped(self.session, target.get())?,
            source: dataspace::mapped(self.session, source.get())?,
        })
    }

    fn filters(&self, creation: &Id) -> Result<Vec<Filter>> {
        let hdf5 = self.session.hdf5;
        // SAFETY: takes an identifier of ours.
        let count = unsafe { (hdf5.H5Pget_nfilters)(creation.get()) };
        let count = self.session.check(count, "count the filters")?;
        (0..count as u32)
            .map(|at| self.filter(creation, at))
            .collect()
    }

    fn filter(&self, creation: &Id, at: u32) -> Result<Filter> {
        let mut values = vec![0u32; 32];
        loop {
            let (mut flags, mut length, mut config) = (0, values.len(), 0);
            // SAFETY: the values have as much room as is said; no name is asked for.
            let id = unsafe {
                (self.session.hdf5.H5Pget_filter2)(
                    creation.get(),
                    at,
                    &mut flags,
                    &mut length,
                    values.as_mut_ptr(),
                    0,
                    ptr::null_mut(),
                    &mut config,
                )
            };
            let id = self.session.check(id, "get a filter")? as u32;
            // HDF5 tells how many there are also where it had room for fewer. The file keeps the
            // number in 16 bits.
            if length > values.len() && length <= usize::from(u16::MAX) {
                values.resize(length, 0);
                continue;
            }
            values.truncate(length);
            return Ok(Filter {
                id,
                optional: flags & H5Z_FLAG_OPTIONAL != 0,
                values,
            });
        }
    }

    fn fill(
        &self,
        creation: &Id,
        layout: c_int,
        of_element: &Id,
        element: &ElementType,
    ) -> Result<Option<Vec<u8>>> {
        let hdf5 = self.session.hdf5;
        let (mut time, mut defined) = (0, 0);
        // SAFETY: both have places of their types.
        let (first, second) = unsafe {
            (
                (hdf5.H5Pget_fill_time)(creation.get(), &mut time),
                (hdf5.H5Pfill_value_defined)(creation.get(), &mut defined),
            )
        };
        self.session.check(first, "get the fill time")?;
        self.session
            .check(second, "tell whether a fill value is set")?;
        // A virtual dataset fills what nothing is mapped to at any rate.
        let is_never = time == H5D_FILL_TIME_NEVER && layout != H5D_VIRTUAL;
        let is_left = is_never || defined == H5D_FILL_VALUE_UNDEFINED;
        if is_left || element.only_hdf5().is_some() {
            return Ok(None);
        }
        let mut value = vec![0u8; element.size()];
        // SAFETY: the value is asked for in the type whose size the buffer has. Types whose values
        // own memory of HDF5 were turned away above.
        let status = unsafe {
            (hdf5.H5Pget_fill_value)(creation.get(), of_element.get(), value.as_mut_ptr().cast())
        };
        self.session.check(status, "get the fill value")?;
        Ok(Some(value))
    }

    fn file(&self) -> Result<FileInfo> {
        let hdf5 = self.session.hdf5;
        let own = |id, close, action| self.session.own(id, close, action);
        // SAFETY: each takes a checked identifier and returns one of ours.
        let (file, access, creation) = unsafe {
            let file = own(
                (hdf5.H5Iget_file_id)(self.dataset),
                hdf5.H5Fclose,
                "get the file of the dataset",
            )?;
            let access = own(
                (hdf5.H5Fget_access_plist)(file.get()),
                hdf5.H5Pclose,
                "get the file's access properties",
            )?;
            let creation = own(
                (hdf5.H5Fget_create_plist)(file.get()),
                hdf5.H5Pclose,
                "get the file's creation properties",
            )?;
            (file, access, creation)
        };
        let name = self.session.text("get the name of the file", |to, size| {
            // SAFETY: `text` gives a buffer of `size` bytes, or none of size 0.
            unsafe { (hdf5.H5Fget_name)(file.get(), to, size) }
        })?;
        let (mut intent, mut size, mut user_block) = (0, 0, 0);
        let (mut sieve_buffer, mut page_buffer) = (0, 0);
        let (mut meta, mut raw) = (0, 0);
        // SAFETY: identifiers of ours, and places of the right types for all answers.
        let statuses = unsafe {
            [
                (hdf5.H5Fget_intent)(file.get(), &mut intent),
                (hdf5.H5Fget_filesize)(file.get(), &mut size),
                (hdf5.H5Pget_userblock)(creation.get(), &mut user_block),
                (hdf5.H5Pget_sieve_buf_size)(access.get(), &mut sieve_buffer),
                (hdf5.H5Pget_page_buffer_size)(access.get(), &mut page_buffer, &mut meta, &mut raw),
            ]
        };
        for status in statuses {
            self.session.check(status, "get the state of the file")?;
        }
        // SAFETY: takes an identifier of ours; the answer is not ours to close.
        let driver = unsafe { (hdf5.H5Pget_driver)(access.get()) };
        let handle = self.handle(&file, &access);
        let is_plain = plain_files::is_plain(hdf5, driver, handle);
        let mut info = FileInfo {
            name: PathBuf::from(OsString::from_vec(name)),
            // SAFETY: with these drivers the handle is the address of the descriptor, an int.
            descriptor: (is_plain && !handle.is_null()).then(|| unsafe { *handle.cast::<c_int>() }),
            size,
            is_writable: intent & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE) != 0,
            is_swmr: intent & (H5F_ACC_SWMR_READ | H5F_ACC_SWMR_WRITE) != 0,
            is_plain,
            page_buffer,
            sieve_buffer,
            user_block,
        };
        info.size = info.size_now();
        Ok(info)
    }

    /// What the driver opened the file as; null if it does not tell.
    fn handle(&self, file: &Id, access: &Id) -> *mut c_void {
        let mut handle = ptr::null_mut();
        // SAFETY: identifiers of ours, and a place for a pointer.
        let status =
            unsafe { (self.session.hdf5.H5Fget_vfd_handle)(file.get(), access.get(), &mut handle) };
        match status < 0 {
            true => ptr::null_mut(),
            false => handle,
        }
    }
}
