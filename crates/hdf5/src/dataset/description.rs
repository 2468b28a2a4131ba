//! The description of a dataset and of the place of its bytes, as plain data.

use std::ffi::{CStr, OsString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_array::{ChunkTable, FileSegment, Source, StoredArray, bytes, in_dataset};
use penstock_codec::{Filter, Pipeline};
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{
    H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, H5D_CHUNKED, H5D_COMPACT, H5D_CONTIGUOUS, H5D_VIRTUAL,
    H5S_MAX_RANK, H5S_NULL, H5S_UNLIMITED, H5Z_FLAG_OPTIONAL, HADDR_UNDEF, hid_t,
};

use super::common::Common;
use super::creation::creation_properties;
use super::dataspace::{self, MappedSelection};
use super::extent_index::lists_extent;
use super::{FileInfo, FileType, Fill, damaged};
use crate::library::{Id, Session};

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
    pub element: FileType,
    /// Where the elements are.
    pub layout: Layout,
    /// Filters in order of encoding.
    pub filters: Vec<Filter>,
    /// What a read finds in elements that were never written.
    pub fill: Fill,
    /// The file.
    pub file: Arc<FileInfo>,
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
        /// Whether the index is large and has an entry for each chunk of the extent, stored or not.
        lists_extent: bool,
    },
    /// In the object header, where only HDF5 reads them.
    Compact,
    /// In other datasets.
    Virtual(Vec<VirtualMapping>),
    /// In other files, one after the other.
    External(Vec<FileSegment>),
}

impl Layout {
    /// Returns why the elements are not in the dataset's own file at known offsets, if that is so.
    pub(crate) fn elsewhere(&self) -> Option<&'static str> {
        match self {
            Layout::Contiguous { .. } | Layout::Chunked { .. } => None,
            Layout::Compact => Some("the dataset is compact"),
            Layout::Virtual(_) => Some("the dataset is virtual"),
            Layout::External(_) => Some("the dataset is in external files"),
        }
    }
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

impl DatasetInfo {
    /// Reads the whole description on this thread, without the chunk index, which
    /// [`read_chunk_table`](crate::dataset::read_chunk_table) reads.
    pub fn read(session: &Session<'_>, dataset: hid_t) -> Result<DatasetInfo> {
        let info = DatasetInfo::read_among(session, dataset, None, &mut Common::default());
        info.map(|(info, _)| info)
    }

    /// Does what [`read`](Self::read) does. Of what the datasets have in common, only what is new is
    /// read, and no name that is given. Also returns the number of the element type in `common`.
    pub(crate) fn read_among(
        session: &Session<'_>,
        dataset: hid_t,
        name: Option<String>,
        common: &mut Common,
    ) -> Result<(DatasetInfo, usize)> {
        let reader = Reader { session, dataset };
        let name = name.map_or_else(|| name_of(session, dataset), Ok)?;
        let info = reader.info(&name, common);
        info.map_err(|error| in_dataset(error, &name))
    }

    /// Updates what changes when HDF5 writes its buffered data: the size of the file, and the
    /// offset of contiguous elements.
    pub(crate) fn refresh(&mut self, session: &Session<'_>, dataset: hid_t) -> Result<()> {
        let reader = Reader { session, dataset };
        let file = FileInfo::of(session, dataset);
        self.file = Arc::new(file.map_err(|error| self.name_in(error))?);
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

    /// Returns the shape of a chunk; nothing if the dataset is not chunked.
    pub(crate) fn chunk(&self) -> &[u64] {
        match &self.layout {
            Layout::Chunked { chunk, .. } => chunk,
            _ => &[],
        }
    }

    /// Returns the number of bytes of all elements, or an error if it overflows.
    pub fn bytes(&self) -> Result<u64> {
        if self.is_null {
            return Ok(0);
        }
        bytes(&self.name, &self.shape, self.element.size())
    }

    /// Returns the description that the plan of a read needs, as [`array`](Self::array) does; or why HDF5
    /// alone reads the elements that were never written.
    pub fn array_to_read(
        &self,
        table: Option<Arc<ChunkTable>>,
    ) -> Result<std::result::Result<StoredArray, String>> {
        match self.only_hdf5_fills(table.as_deref()) {
            Some(why) => Ok(Err(why.to_owned())),
            None => self.array(table).map(Ok),
        }
    }

    /// Returns why HDF5 alone reads the elements that were never written, if there are any.
    pub(crate) fn only_hdf5_fills(&self, table: Option<&ChunkTable>) -> Option<&'static str> {
        let (stored, all) = match (&self.layout, table) {
            (Layout::Contiguous { offset: None }, _) => (0, 1),
            (Layout::Chunked { .. }, Some(table)) => (table.len() as u64, table.grid().total()),
            _ => (1, 1),
        };
        match self.fill {
            Fill::Undefined if stored == 0 => {
                Some("nothing was ever written, and the fill value is undefined")
            }
            Fill::OnlyHdf5 if stored == 0 || stored < all => {
                Some("the fill value of elements that were never written is stored elsewhere")
            }
            _ => None,
        }
    }

    /// Returns the description that a plan needs. A chunked dataset needs its chunk table; the
    /// elements of compact and virtual ones must be in memory.
    pub fn array(&self, table: Option<Arc<ChunkTable>>) -> Result<StoredArray> {
        Ok(self.array_from(match (&self.layout, table) {
            (Layout::Chunked { .. }, Some(table)) => Source::Chunks(table),
            (Layout::Chunked { .. }, None) => {
                return Err(Error::invalid("a chunked dataset needs its chunk table"));
            }
            (
                Layout::Contiguous {
                    offset: Some(offset),
                },
                _,
            ) => Source::Contiguous { offset: *offset },
            (Layout::Contiguous { offset: None }, _) => Source::Missing,
            (Layout::External(segments), _) => Source::Segments(segments.clone()),
            (Layout::Compact | Layout::Virtual(_), _) => Source::Memory,
        }))
    }

    /// Returns the same array with its elements from another source.
    pub fn array_from(&self, source: Source) -> StoredArray {
        let unfiltered_edges = match self.layout {
            Layout::Chunked {
                dont_filter_edges, ..
            } => dont_filter_edges,
            _ => false,
        };
        StoredArray {
            pipeline: self.pipeline(),
            unfiltered_edges,
            fill: self.fill.value().map(<[u8]>::to_vec),
            ..StoredArray::new(&self.name, &self.shape, self.element.size(), source)
        }
    }

    pub(crate) fn pipeline(&self) -> Pipeline {
        let filters = self.filters.clone();
        Pipeline { filters }
    }

    /// Returns why only HDF5 can read the elements, if it alone has one of the filters.
    pub(crate) fn only_hdf5_filters(&self) -> Option<String> {
        let pipeline = self.pipeline();
        pipeline
            .unknown()
            .map(|filter| format!("only HDF5 has {filter}"))
    }

    /// Puts the dataset's name before the cause.
    pub fn name_in(&self, error: Error) -> Error {
        in_dataset(error, &self.name)
    }
}

/// Returns the path of an object in its file; empty if it has none.
pub(crate) fn name_of(session: &Session<'_>, object: hid_t) -> Result<String> {
    // Longer names take another call.
    let mut name = [0u8; 256];
    // SAFETY: the name has as much room as is passed.
    let length =
        unsafe { (session.hdf5.H5Iget_name)(object, name.as_mut_ptr().cast(), name.len()) };
    if let Ok(length) = usize::try_from(length)
        && length < name.len()
    {
        return Ok(String::from_utf8_lossy(&name[..length]).into_owned());
    }
    let get = |name, size| {
        // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
        unsafe { (session.hdf5.H5Iget_name)(object, name, size) }
    };
    let name = session.text("get the name of the dataset", get)?;
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// Returns the folder in which HDF5 looks for the external files of a dataset with these access properties.
pub(crate) fn external_prefix(session: &Session<'_>, access: &Id) -> Result<Vec<u8>> {
    session.text("get the prefix of external files", |to, size| {
        // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
        unsafe { (session.hdf5.H5Pget_efile_prefix)(access.get(), to, size) }
    })
}

/// The system's limit of a path's length.
const PATH_MAX: usize = 4096;

struct Reader<'a> {
    session: &'a Session<'a>,
    dataset: hid_t,
}

impl Reader<'_> {
    fn info(&self, name: &str, common: &mut Common) -> Result<(DatasetInfo, usize)> {
        let hdf5 = self.session.hdf5;
        let space = self.session.space_of(self.dataset)?;
        let (shape, max_shape) = dataspace::extent(self.session, space.get())?;
        // SAFETY: takes an owned identifier.
        let class = unsafe { (hdf5.H5Sget_simple_extent_type)(space.get()) };
        let file = common.files.of(self.session, self.dataset)?;
        let number = common.elements.of(self.session, self.dataset, &file)?;
        let (of_element, element) = common.elements.get(number);
        let mut info = DatasetInfo {
            name: name.to_owned(),
            shape,
            max_shape,
            is_null: class == H5S_NULL,
            layout: Layout::Compact,
            filters: Vec::new(),
            fill: Fill::Nothing,
            file,
            element: element.clone(),
        };
        if let Some(offset) = self.stored_offset(&info) {
            // Such a dataset has neither filters nor elements that were not written.
            info.layout = Layout::Contiguous {
                offset: Some(offset),
            };
            return Ok((info, number));
        }
        let creation = creation_properties(self.session, self.dataset)?;
        // SAFETY: takes an owned identifier.
        let layout = unsafe { (hdf5.H5Pget_layout)(creation.get()) };
        let layout = self.session.check(layout, "get the layout")?;
        info.filters = self.filters(&creation)?;
        info.fill = Fill::read(self.session, &creation, layout, (of_element, element))?;
        info.layout = match layout {
            H5D_COMPACT => Layout::Compact,
            H5D_CONTIGUOUS => self.contiguous(&creation, &info)?,
            H5D_CHUNKED => self.chunked(&creation, &info.shape)?,
            H5D_VIRTUAL => Layout::Virtual(self.mappings(&creation)?),
            other => return damaged(format!("the layout class {other} is unknown")),
        };
        Ok((info, number))
    }

    /// Returns the offset of the elements if they are contiguous in the dataset's own file. Otherwise the creation
    /// properties are needed, whose copy takes longer than everything else.
    fn stored_offset(&self, info: &DatasetInfo) -> Option<u64> {
        let offset = self.reported_offset();
        // Without contiguous storage the offset is HADDR_UNDEF, to which some versions add the size of
        // the user block. The size of the storage of chunks is not queried: HDF5 would walk through the index.
        let is_defined = offset != HADDR_UNDEF && offset >= info.file.user_block;
        if !is_defined {
            return None;
        }
        let stored = self.storage_size();
        let bytes = info.bytes().ok()?;
        let is_whole = stored >= bytes && offset.checked_add(bytes)? <= info.file.size;
        (bytes > 0 && is_whole).then_some(offset)
    }

    fn contiguous(&self, creation: &Id, info: &DatasetInfo) -> Result<Layout> {
        let slots = self.external(creation)?;
        let bytes = info.bytes()?;
        if !slots.is_empty() {
            let room = slots
                .iter()
                .try_fold(0u64, |all, slot| all.checked_add(slot.size?));
            if room.is_some_and(|room| room < bytes) {
                return damaged(format!(
                    "its {bytes} bytes do not fit into its external files"
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
        let (stored, offset) = (self.storage_size(), self.reported_offset());
        // Without storage the offset is undefined, and not always HADDR_UNDEF.
        if stored == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(bytes);
        if stored < bytes || end.is_none_or(|end| end > info.file.size) {
            let size = info.file.size;
            return damaged(format!(
                "its {bytes} bytes at offset {offset} have {stored} bytes of storage in a file of {size} bytes"
            ));
        }
        Ok(Some(offset))
    }

    fn storage_size(&self) -> u64 {
        // SAFETY: takes the dataset's identifier.
        unsafe { (self.session.hdf5.H5Dget_storage_size)(self.dataset) }
    }

    /// Returns the offset that HDF5 reports, which is undefined without contiguous storage.
    fn reported_offset(&self) -> u64 {
        // SAFETY: takes the dataset's identifier.
        unsafe { (self.session.hdf5.H5Dget_offset)(self.dataset) }
    }

    fn external(&self, creation: &Id) -> Result<Vec<FileSegment>> {
        let hdf5 = self.session.hdf5;
        // SAFETY: takes an owned identifier.
        let count = unsafe { (hdf5.H5Pget_external_count)(creation.get()) };
        let count = self.session.check(count, "count the external files")?;
        let mut slots = Vec::new();
        if count == 0 {
            return Ok(slots);
        }
        let access = self.session.access_of_dataset(self.dataset)?;
        let prefix = PathBuf::from(OsString::from_vec(external_prefix(self.session, &access)?));
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
                offset: u64::try_from(offset).or_else(|_| {
                    damaged(format!(
                        "external file {slot} has the negative offset {offset}"
                    ))
                })?,
                size: (size != H5S_UNLIMITED).then_some(size),
            });
        }
        Ok(slots)
    }

    fn chunked(&self, creation: &Id, shape: &[u64]) -> Result<Layout> {
        let (hdf5, rank) = (self.session.hdf5, shape.len());
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
            return damaged(format!(
                "its chunks have {got} dimensions, but it has {rank}"
            ));
        }
        chunk.truncate(rank);
        Ok(Layout::Chunked {
            lists_extent: lists_extent(self.session, self.dataset, (shape, &chunk))?,
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
        (0..count)
            .filter_map(|at| self.mapping(creation, at).transpose())
            .collect()
    }

    /// Returns `None` for a mapping of no elements, whose source selection HDF5 fails to return.
    fn mapping(&self, creation: &Id, at: usize) -> Result<Option<VirtualMapping>> {
        let hdf5 = self.session.hdf5;
        let action = "get the selections of a part";
        // SAFETY: takes an owned identifier and returns one.
        let target = unsafe { (hdf5.H5Pget_virtual_vspace)(creation.get(), at) };
        let target = self.session.own(target, hdf5.H5Sclose, action)?;
        // SAFETY: takes an owned identifier.
        if unsafe { (hdf5.H5Sget_select_npoints)(target.get()) } == 0 {
            return Ok(None);
        }
        let file = self.session.text("get the file of a part", |to, size| {
            // SAFETY: `text` passes a buffer of `size` bytes, or null and 0.
            unsafe { (hdf5.H5Pget_virtual_filename)(creation.get(), at, to, size) }
        })?;
        let dataset = self.session.text("get the dataset of a part", |to, size| {
            // SAFETY: as above.
            unsafe { (hdf5.H5Pget_virtual_dsetname)(creation.get(), at, to, size) }
        })?;
        // SAFETY: takes an owned identifier and returns one.
        let source = unsafe { (hdf5.H5Pget_virtual_srcspace)(creation.get(), at) };
        let source = self.session.own(source, hdf5.H5Sclose, action)?;
        Ok(Some(VirtualMapping {
            file: PathBuf::from(OsString::from_vec(file)),
            dataset: String::from_utf8_lossy(&dataset).into_owned(),
            target: dataspace::mapped(self.session, target.get())?,
            source: dataspace::mapped(self.session, source.get())?,
        }))
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
}
