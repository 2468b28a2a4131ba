//! The file brought up to date with what HDF5 holds of a dataset in memory.

use penstock_engine::error::Result;
use penstock_engine::file::side::Direct;
use penstock_engine::options::{Choice, Options};
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;

/// Why only HDF5 reads and writes where it may hold changed pages. H5Fflush alone writes these, and HDF5
/// (1.14.4, 2.2.0) damages files with a page buffer that are flushed often.
pub(super) const PAGE_BUFFER: &str = "the file has a page buffer";

/// What HDF5 holds changed of the elements in memory goes into the file first.
///
/// Chunks by a look at one of them, for which HDF5 writes all that it has in its cache. H5Dflush would
/// write the metadata, too, and leaves the cache of that in disorder at times (1.14.4, 2.2.0: "slist not
/// empty"), so that the file can neither be flushed nor closed any more.
pub(super) fn flush(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; there is an offset for each dimension, and places of their
    // types for the answers.
    let status = unsafe {
        match &info.layout {
            Layout::Chunked { chunk, .. } => {
                let first = vec![0u64; chunk.len()];
                let (mut mask, mut address, mut size) = (0, 0, 0);
                (hdf5.H5Dget_chunk_info_by_coord)(
                    dataset,
                    first.as_ptr(),
                    &mut mask,
                    &mut address,
                    &mut size,
                )
            }
            _ => (hdf5.H5Dflush)(dataset),
        }
    };
    session.check(status, "flush the dataset").map(drop)
}

pub(super) fn direct(options: &Options) -> Direct {
    match options.direct.unwrap_or(Choice::Auto) {
        Choice::No => Direct::Never,
        Choice::Yes => Direct::Always,
        Choice::Auto => Direct::WhereCold,
    }
}
