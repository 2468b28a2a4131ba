//! Starts transfers of one dataset or of many, waits for them, and reads small parts at once.

mod cached_reader;
mod handle;
pub mod many;
mod ordered_plan;
mod reader;
mod small_by_hdf5;
mod start;
mod waits;

pub use cached_reader::{PlannedRead, WorkerRead, small_read};
pub use handle::TransferHandle;
pub use reader::Reader;
pub use small_by_hdf5::ElementMemory;
pub use start::start;
pub use waits::{
    make_durable, may_make_durable, nothing_is_pending, wait_for_dataset, wait_for_file,
    wait_for_path,
};
