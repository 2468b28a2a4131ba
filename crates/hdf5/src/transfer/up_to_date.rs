//! Brings the file up to date with what HDF5 buffers of a dataset.

use penstock_engine::error::Result;
use penstock_engine::file::side::Direct;
use penstock_engine::options::{Choice, Options};
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, Layout};
use crate::library::{Session, plain_files};

/// Why transfers are left to HDF5 if it may hold changed pages. Only H5Fflush writes these, and
/// HDF5 (1.14.4, 2.2.0) damages files with a page buffer that are flushed often.
pub(super) const PAGE_BUFFER: &str = "the file has a page buffer";

/// Makes HDF5 write its buffered changes of the elements to the file.
///
/// For chunks, a lookup of one of them makes HDF5 write all that it has in its chunk cache.
/// H5Dflush would also write metadata, and sometimes leaves the metadata cache in disorder (1.14.4,
/// 2.2.0: "slist not empty"), so that the file can be neither flushed nor closed any more.
pub(super) fn flush(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; there is an offset for each dimension, and the results
    // have places of their types.
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
    session.check(status, "flush the dataset")?;
    // A driver's own buffers are flushed with the file, or when it is told so.
    info.file.descriptor.map_or(Ok(()), plain_files::write_out)
}

pub(super) fn direct(options: &Options) -> Direct {
    match options.direct.unwrap_or(Choice::Auto) {
        Choice::No => Direct::Never,
        Choice::Yes => Direct::Always,
        Choice::Auto => Direct::WhereCold,
    }
}
