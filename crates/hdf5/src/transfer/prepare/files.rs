//! The files that a read opens.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_array::execute::PlanFile;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;

use crate::dataset::{DatasetInfo, Layout};
use crate::open_files::SourceFile;
use crate::transfer::cache::open_file;
use crate::transfer::request::DatasetTransfer;

/// Returns the files of a dataset, in the order of its external files if it has any.
pub(in crate::transfer) fn files(info: &DatasetInfo) -> Result<Vec<PlanFile>> {
    let Layout::External(slots) = &info.layout else {
        return Ok(vec![open_file(&info.file, Operation::Read)?.into()]);
    };
    // A file that cannot be opened is an error only when something is read from it.
    let open = |path: &PathBuf| match SourceFile::of_path(path) {
        Ok(file) => Arc::new(file).of_plan(),
        Err(error) => PlanFile::Missing(unable_to_open(error)),
    };
    Ok(slots.iter().map(|slot| open(&slot.path)).collect())
}

fn unable_to_open(error: Error) -> Error {
    let is_missing = error.kind() == Kind::NotFound;
    let error = error.about("unable to open an external raw data file");
    if is_missing {
        error.remedy(
            "put the file there, or name its folder by HDF5_EXTFILE_PREFIX or H5Pset_efile_prefix",
        )
    } else {
        error
    }
}

/// Returns the files of a transfer: the caller's, if it has opened the dataset's only file.
pub(in crate::transfer) fn files_of_transfer(
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
) -> Result<Vec<PlanFile>> {
    match (&info.layout, transfer.file) {
        (Layout::External(_), _) | (_, None) => files(info),
        (_, Some(file)) => Ok(vec![Arc::clone(file).into()]),
    }
}
