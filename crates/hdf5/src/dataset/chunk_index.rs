//! The chunk index of a dataset, read through HDF5.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::slice;
use std::sync::Arc;

use penstock_array::{ChunkGrid, ChunkTable, StoredChunk, TableBuilder};
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, haddr_t, hid_t, hsize_t};

use super::swizzle::Swizzle;
use super::{DatasetInfo, FileInfo, Layout, damaged};
use crate::library::{Id, Session};

/// Reads the whole index. HDF5 first writes the changed chunks of its cache.
///
/// The size of the file bounds the number and size of chunks, and so what a forged index can make
/// this allocate.
pub fn read_chunk_table(
    session: &Session<'_>,
    dataset: hid_t,
    info: &DatasetInfo,
) -> Result<ChunkTable> {
    let Layout::Chunked { chunk, .. } = &info.layout else {
        return Err(Error::invalid("only a chunked dataset has a chunk table"));
    };
    let grid = ChunkGrid::new(&info.shape, chunk)?;
    let chunk_size = grid.elements().saturating_mul(info.element.size().0);
    let mut walk = Walk {
        swizzle: Swizzle::suspected(session, dataset, info)?,
        builder: TableBuilder::new(grid, info.file.size),
        file: &info.file,
        session,
        open_file: session.file_of(dataset)?,
        // The implicit index has no entries, but all its chunks are allocated.
        entry: chunk_size.clamp(1, 8),
        count: 0,
        failed: None,
    };
    let data: *mut c_void = ptr::from_mut(&mut walk).cast();
    // SAFETY: `visit` receives the walk that `data` points to, which outlives the call.
    let status = unsafe { (session.hdf5.H5Dchunk_iter)(dataset, H5P_DEFAULT, visit, data) };
    if let Some(error) = walk.failed {
        return Err(error);
    }
    session.check(status, "read the chunk index")?;
    // Chunks of a writer in another process are in the file before they are in the index.
    walk.note_file_size()?;
    if let Some(swizzle) = walk.swizzle {
        swizzle.resolve(session, dataset, &mut walk.builder)?;
    }
    Ok(walk.builder.finish())
}

impl DatasetInfo {
    /// Reads the chunk table, if the dataset is chunked.
    pub(crate) fn table(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
    ) -> Result<Option<Arc<ChunkTable>>> {
        if !matches!(self.layout, Layout::Chunked { .. }) {
            return Ok(None);
        }
        let table = read_chunk_table(session, dataset, self);
        table
            .map(|table| Some(Arc::new(table)))
            .map_err(|error| self.name_in(error))
    }
}

struct Walk<'a> {
    builder: TableBuilder,
    file: &'a FileInfo,
    session: &'a Session<'a>,
    /// Opened before the iteration and closed after it: the close of a file's last identifier flushes it.
    open_file: Id,
    /// Collects the entries instead of the builder if their coordinates are in doubt.
    swizzle: Option<Swizzle>,
    /// Smallest number of bytes of the file that an entry of the index takes.
    entry: u64,
    count: u64,
    failed: Option<Error>,
}

impl Walk<'_> {
    fn add(&mut self, first: &[u64], stored: StoredChunk) -> Result<()> {
        if self.count >= self.most() {
            self.note_file_size()?;
        }
        if self.count >= self.most() {
            let (most, size) = (self.most(), self.builder.file_size());
            let cause = format!(
                "the chunk index lists more than {most} chunks, too many for a file of {size} bytes"
            );
            return damaged(cause);
        }
        self.count += 1;
        match &mut self.swizzle {
            Some(swizzle) => swizzle.add(first, stored),
            None => self.builder.add(first, stored),
        }
    }

    /// The file may have grown since its size was read, also by the chunks that HDF5 has just written.
    fn note_file_size(&mut self) -> Result<()> {
        let size = self
            .file
            .size_after_allocation(self.session, &self.open_file)?;
        self.builder.set_file_size(size);
        Ok(())
    }

    /// Returns the number of chunks that the index of a file of this size can list.
    fn most(&self) -> u64 {
        self.builder.file_size() / self.entry
    }
}

const CONTINUE: c_int = 0;
const STOP: c_int = 1;

unsafe extern "C" fn visit(
    offset: *const hsize_t,
    filter_mask: c_uint,
    addr: haddr_t,
    size: hsize_t,
    op_data: *mut c_void,
) -> c_int {
    // SAFETY: `read_chunk_table` passes its walk, which nothing else uses during the iteration.
    let walk = unsafe { &mut *op_data.cast::<Walk<'_>>() };
    let rank = walk.builder.grid().shape().len();
    // SAFETY: HDF5 passes one more offset than the dataset has dimensions.
    let first = unsafe { slice::from_raw_parts(offset, rank) };
    let stored = StoredChunk {
        address: walk.file.chunk_offset(walk.session.hdf5, addr),
        size,
        mask: filter_mask,
    };
    match walk.add(first, stored) {
        Ok(()) => CONTINUE,
        Err(error) => {
            walk.failed = Some(error);
            STOP
        }
    }
}
