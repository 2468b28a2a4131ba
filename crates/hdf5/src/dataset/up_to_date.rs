//! Brings the file up to date with what HDF5 buffers of a dataset's elements.

use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::{DatasetInfo, Layout, sieve, single_chunk};
use crate::library::{Session, plain_files};

/// Whether the file has the elements, or why only HDF5 can transfer them.
pub(crate) type UpToDate = std::result::Result<(), String>;

/// Why transfers are left to HDF5 if it may hold changed pages. Only H5Fflush writes these, and
/// HDF5 (1.14.4, 2.2.0) damages files with a page buffer that are flushed often.
pub(crate) const PAGE_BUFFER: &str = "the file has a page buffer";

/// Why transfers of small contiguous datasets are left to HDF5.
pub(crate) const BUFFERED_WHOLE: &str = "the dataset is so small that HDF5 may buffer all of it";

/// Makes HDF5 write its buffered changes of the elements, which own no memory of HDF5, to the file.
///
/// H5Dflush would also write metadata, and sometimes leaves the metadata cache in disorder (1.14.4,
/// 2.2.0: "slist not empty"), so that the file can be neither flushed nor closed any more. It flushes
/// the entries of one object, and fails if an entry depends on one of another object. H5Fflush fails,
/// with the same consequence, in a function that HDF5 calls during an iteration. So neither is called
/// unless the program asks for it.
pub(crate) fn flush(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<UpToDate> {
    if info.file.page_buffer > 0 {
        return Ok(Err(PAGE_BUFFER.to_owned()));
    }
    match &info.layout {
        Layout::Chunked { chunk, .. } => {
            // The lookup of any chunk makes HDF5 write the changed chunks of its cache.
            single_chunk::in_index(session, dataset, &info.file, &vec![0; chunk.len()])
                .ok_or_else(|| session.failed("write the cached chunks"))?;
        }
        Layout::Contiguous { offset: Some(_) } if info.bytes()? > 0 => {
            if sieve::may_hold_all(info)? {
                return Ok(Err(BUFFERED_WHOLE.to_owned()));
            }
            // Reading such an element would allocate memory.
            if let Some(part) = info.element.only_hdf5() {
                return Ok(Err(format!(
                    "the file is open for writing, and HDF5 alone reads {part}"
                )));
            }
            if let Err(error) = sieve::write_out(session, dataset, info) {
                return Ok(Err(error.to_string()));
            }
        }
        // HDF5 buffers nothing of external files, and reads compact datasets itself. The sources of a
        // virtual dataset are datasets of their own.
        Layout::Contiguous { .. } | Layout::External(_) | Layout::Compact | Layout::Virtual(_) => {}
    }
    // A driver writes its own buffers when the file is flushed, or on request.
    info.file
        .descriptor
        .map_or(Ok(()), plain_files::write_out)
        .map(Ok)
}
