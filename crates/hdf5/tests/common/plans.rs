//! Plans of datasets.

use std::sync::Arc;

use penstock_array::{ChunkTable, ElementMapping, MemoryLayout, Plan, Selection};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_hdf5::dataset::DatasetInfo;

/// The plan of a read, as of a dataset that is not virtual.
pub fn read_plan(
    info: &DatasetInfo,
    table: Option<Arc<ChunkTable>>,
    selection: Selection,
    memory: &MemoryLayout,
    element: ElementMapping,
) -> Result<Plan> {
    let selection = match info.is_null {
        true => Selection::none(),
        false => selection,
    };
    let array = info.array(table)?;
    Plan::new(&array, selection, memory, element, Operation::Read)
}
