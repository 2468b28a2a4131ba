//! The description of a dataset and of the place of its bytes, as plain data.

use std::ffi::{CStr, OsString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_array::{ChunkTable, FileSegment, Selection, Source, StoredArray, bytes, in_dataset};
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
    /// Path in the file; empty if it has none.
    pub name: String,
    /// Shape; empty for a scalar, which has one element.
    pub shape: Vec<u64>,
    /// Maximum shape; `None` along unlimited dimensions.
    pub max_shape: Vec<Option<u64>>,
    /// Whether the dataspace is null (H5S_NULL), so that there are no elements.
    pub is_null: bool,
    /// Type of the elements in the file.
    pub element: ElementType,
    /// Where the elements are.
    pub layout: Layout,
    /// Filters in order of encoding.
    pub filters: Vec<Filter>,
    /// The stored element that unwritten elements read as; `None` if HDF5 leaves the memory of a
    /// read unchanged there.
    pub fill: Option<Vec<u8>>,
    /// The file.
    pub file: FileInfo,
}

/// How the elements of a dataset are stored.
#[derive(Clone, Debug)]
pub enum Layout {
    /// In one range of the file.
    Contiguous {
        /// Offset of that range from the start of the file (user block included); `None` if nothing
        /// was written yet.
        offset: Option<u64>,
    },
    /// In chunks.
    Chunked {
        /// Shape of a chunk in elements.
        chunk: Vec<u64>,
        /// Whether chunks that extend past the dataset's edge are stored without filters.
        dont_filter_edges: bool,
    },
    /// In the object header, where only HDF5 reads them.
    Compact,
    /// In other datasets.
    Virtual(Vec<VirtualMapping>),
    /// In other files, one after the other.
    External(Vec<FileSegment>),
}

/// A mapping of a virtual dataset.
#[derive(Clone, Debug)]
pub struct VirtualMapping {
    /// File name as written: `.` is the same file, `%%` a percent sign, and `%b`, in either name, a
    /// running number.
    pub file: PathBuf,
    /// Path of the source dataset in that file.
    pub dataset: String,
    /// Selection of the virtual dataset.
    pub target: MappedSelection,
    /// Selection of the source.
    pub source: MappedSelection,
}

/// One side of a mapping. The elements of both sides correspond in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedSelection {
    /// The whole dataset, whatever its shape is when it is opened.
    All,
    /// A selection in a dataspace that is large enough; the dataset may have another shape.
    Some {
        /// The selection.
        selection: Selection,
        /// Shape of that dataspace.
        shape: Vec<u64>,
    },
    /// An unlimited selection, which only HDF5 resolves.
    Unlimited,
}

/// The file of a dataset, and what decides whether its bytes may be accessed without HDF5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Name by which it was opened.
    pub name: PathBuf,
    /// HDF5's own descriptor of the file, if its driver is one of plain files. It is valid while
    /// HDF5 has the file open; `/proc/self/fd` leads through it to the same file even if its name
    /// has changed.
    pub descriptor: Option<i32>,
    /// Size in bytes, including what HDF5 has allocated but not yet written.
    pub size: u64,
    /// Whether it is open for writing, so that HDF5 may buffer changes.
    pub is_writable: bool,
    /// Whether it is open for one writer and readers at the same time (SWMR).
    pub is_swmr: bool,
    /// Whether offsets are those of one plain file.
    pub is_plain: bool,
    /// Size in bytes of the page buffer, which may hold changed raw data.
    pub page_buffer: usize,
    /// Size in bytes of the sieve buffer, which may hold changed contiguous data; H5Dflush writes
    /// it.
    pub sieve_buffer: usize,
    /// Size in bytes of the user block before HDF5's data; offsets include it.
    pub user_block: u64,
}

impl FileInfo {
    /// Describes the file of an object.
    pub fn of(session: &Session<'_>, object: hid_t) -> Result<FileInfo> {
        let dataset = object;
        Reader { session, dataset }.file()
    }
}

impl DatasetInfo {
    /// Reads the whole description on this thread, without the chunk index, which
    /// [`read_chunk_table`](crate::dataset::read_chunk_table) reads.
    pub fn read(session: &Session<'_>, dataset: hid_t) -> Result<DatasetInfo> {
        let reader = Reader { session, dataset };
        let name = reader.name()?;
        reader.info(&name).map_err(|error| in_dataset(error, &name))
    }

    /// Updates what changes when HDF5 writes its buffered data: the size of the file, and the
    /// offset of contiguous elements.
    pub(crate) fn refresh(&mut self, session: &Session<'_>, dataset: hid_t) -> Result<()> {
        let reader = Reader { session, dataset };
        self.file = reader.file().map_err(|error| self.name_in(error))?;
        if let Layout::Contiguous { .. } = self.layout {
            let offset = reader.offset(self).map_err(|error| self.name_in(error))?;
            self.layout = Layout::Contiguous { offset };
        }
        Ok(())
    }

    /// Returns whether the description cannot change while the dataset is open.
    pub fn is_final(&self) -> bool {
        matches!(self.layout, Layout::Contiguous { offset: Some(_) })
    }

    /// Returns the number of bytes of all elements, or an error if it overflows.
    pub fn bytes(&self) -> Result<u64> {
        match self.is_null {
            true => Ok(0),
            false => bytes(&self.name, &self.shape, self.element.size() as u64),
        }
    }

    /// Returns the description that a plan needs. A chunked dataset needs its chunk table; the
    /// elements of compact and virtual ones must be in memory.
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

    /// Returns the same array with all its elements in memory.
    pub fn array_in_memory(&self) -> StoredArray {
        self.array_from(Source::Memory, false)
    }

    /// Returns the same array as if nothing had ever been written.
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

impl FileInfo {
    /// Returns the current size: another process may append to the file (SWMR), while HDF5 knows
    /// its size at the time of opening.
    pub(crate) fn size_now(&self) -> u64 {
        self.size.max(self.descriptor.map_or(0, length))
    }

    /// Returns whether the file may be shorter than what HDF5 has allocated in it; HDF5 reads zeros
    /// there. Any other file has lost data if it is.
    pub(crate) fn may_end_early(&self) -> bool {
        self.is_writable || self.is_swmr
    }
}

/// Returns the length of an open file; 0 if `fstat` fails.
fn length(descriptor: c_int) -> u64 {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` fills the place, or returns an error.
    match unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } {
        // SAFETY: `fstat` has succeeded.
        0 => u64::try_from(unsafe { stat.assume_init() }.st_size).unwrap_or(0),
        _ => 0,
    }
}

/// The system's limit of a path's length.
const PATH_MAX: usize = 4096;

struct Reader<'a> {
    session: &'a Session<'a>,
    dataset: hid_t,
}

impl Reader<'_> {
    fn info(&self, name: &str) -> Result<DatasetInfo> {
        let hdf5 = self.session.hdf5;
        let own = |id, close, action| self.session.own(id, close, action);
        // SAFETY: each takes the dataset's identifier, which HDF5 checks, and returns an owned one.
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
        // SAFETY: takes an owned identifier.
        let class = unsafe { (hdf5.H5Sget_simple_extent_type)(space.get()) };
        let element = ElementType::read(self.session, of_element.get())?;
        // SAFETY: takes an owned identifier.
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
                    format!("the layout class {other} is unknown"),
                ));
            }
        };
        Ok(info)
    }

    fn name(&self) -> Result<String> {
        let get = |name, size| {
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
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

    /// Returns the offset of a contiguous dataset; `None` if it has no storage.
    fn offset(&self, info: &DatasetInfo) -> Result<Option<u64>> {
        let bytes = info.bytes()?;
        // SAFETY: both take the dataset's identifier.
        let (stored, offset) = unsafe {
            (
                (self.session.hdf5.H5Dget_storage_size)(self.dataset),
                (self.session.hdf5.H5Dget_offset)(self.dataset),
            )
        };
        // Without storage the offset is undefined, and not always HADDR_UNDEF.
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
        // SAFETY: takes an owned identifier.
        let count = unsafe { (hdf5.H5Pget_external_count)(creation.get()) };
        let count = self.session.check(count, "count the external files")?;
        let mut slots = Vec::new();
        if count == 0 {
            return Ok(slots);
        }
        let prefix = self
            .session
            .text("get the prefix of external files", |to, size| {
                // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
                unsafe { (hdf5.H5Pget_efile_prefix)(access.get(), to, size) }
            })?;
        let prefix = PathBuf::from(OsString::from_vec(prefix));
        for slot in 0..count as u32 {
            let mut name = vec![0u8; PATH_MAX + 1];
            let (mut offset, mut size) = (0i64, 0u64);
            // SAFETY: HDF5 fills at most all bytes of the name but the last, which stays NUL; the
            // numbers have places of their types.
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
            // HDF5 has already expanded the prefix, whether it is the dataset's own or the
            // environment's.
            let path = prefix.join(OsString::from_vec(name));
            slots.push(FileSegment {
                path: std::path::absolute(&path).unwrap_or(path),
                offset: u64::try_from(offset).map_err(|_| {
                    Error::new(
                        Kind::Io,
                        format!("external file {slot} has the negative offset {offset}"),
                    )
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
        // SAFETY: the sizes have as much room as is passed, the options a place of their type.
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
                format!("its chunks have {got} dimensions, but it has {rank}"),
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
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
            unsafe { (hdf5.H5Pget_virtual_filename)(creation.get(), at, to, size) }
        })?;
        let dataset = self.session.text("get the dataset of a part", |to, size| {
            // SAFETY: as above.
            unsafe { (hdf5.H5Pget_virtual_dsetname)(creation.get(), at, to, size) }
        })?;
        // SAFETY: both take an owned identifier and return one.
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
        // SAFETY: takes an owned identifier.
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
            // SAFETY: the values have as much room as is passed; no name is requested.
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
            // HDF5 returns the number of values even if it had room for fewer. The file stores this
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
            .check(second, "find out whether a fill value is set")?;
        // A virtual dataset always fills elements without a mapping.
        let is_never = time == H5D_FILL_TIME_NEVER && layout != H5D_VIRTUAL;
        let is_left = is_never || defined == H5D_FILL_VALUE_UNDEFINED;
        if is_left || element.only_hdf5().is_some() {
            return Ok(None);
        }
        let mut value = vec![0u8; element.size()];
        // SAFETY: the value is requested in the type whose size the buffer has. Types whose values
        // own memory of HDF5 were excluded above.
        let status = unsafe {
            (hdf5.H5Pget_fill_value)(creation.get(), of_element.get(), value.as_mut_ptr().cast())
        };
        self.session.check(status, "get the fill value")?;
        Ok(Some(value))
    }

    fn file(&self) -> Result<FileInfo> {
        let hdf5 = self.session.hdf5;
        let own = |id, close, action| self.session.own(id, close, action);
        // SAFETY: each takes a checked identifier and returns an owned one.
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
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
            unsafe { (hdf5.H5Fget_name)(file.get(), to, size) }
        })?;
        let (mut intent, mut size, mut user_block) = (0, 0, 0);
        let (mut sieve_buffer, mut page_buffer) = (0, 0);
        let (mut meta, mut raw) = (0, 0);
        // SAFETY: owned identifiers, and places of the right types for all results.
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
        // SAFETY: takes an owned identifier; the caller must not close the result.
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

    /// Returns the driver's file handle; null if the driver provides none.
    fn handle(&self, file: &Id, access: &Id) -> *mut c_void {
        let mut handle = ptr::null_mut();
        // SAFETY: owned identifiers, and a place for a pointer.
        let status =
            unsafe { (self.session.hdf5.H5Fget_vfd_handle)(file.get(), access.get(), &mut handle) };
        match status < 0 {
            true => ptr::null_mut(),
            false => handle,
        }
    }
}
