//! Detects reads that only HDF5 can carry out, by filters and by the length of the file.

use penstock_array::execute::{BoundPlan, PreparedTransfer, TransferKind};
use penstock_engine::error::Result;

use super::outcome::{OrStop, refused};
use crate::dataset::DatasetInfo;

/// Refuses a read if only HDF5 has one of the filters.
pub(in crate::transfer) fn known_filters(info: &DatasetInfo) -> OrStop<()> {
    info.only_hdf5_filters().map_or(Ok(()), refused)
}

/// Refuses a read that extends past the end of the file, where HDF5 has allocated storage without writing
/// it and reads zeros.
pub(in crate::transfer) fn refuse_cut_off(bound: &BoundPlan, info: &DatasetInfo) -> OrStop<()> {
    if !info.file.may_end_early() || bound.plan.end() == 0 {
        return Ok(());
    }
    let size = bound.file(0)?.size()?;
    // A chunk that another process has listed but not written is an error of the chunk table.
    let is_whole = bound.plan.end() <= size;
    if is_whole || !(info.file.is_swmr || bound.reaches_beyond(size)?) {
        return Ok(());
    }
    refused("the file ends before the selected data, which HDF5 has not written yet")
}

/// Returns whether the file of a dataset that is not virtual ends before the data to read.
pub fn is_cut_off(prepared: &PreparedTransfer) -> Result<bool> {
    let TransferKind::Read(plans) = &prepared.kind else {
        return Ok(false);
    };
    let [bound] = plans.as_slice() else {
        return Ok(false);
    };
    if bound.plan.end() == 0 || bound.plan.is_in_segments() {
        return Ok(false);
    }
    let size = bound.file(0)?.size()?;
    Ok(bound.plan.end() > size && bound.reaches_beyond(size)?)
}
