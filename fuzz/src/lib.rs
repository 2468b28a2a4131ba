//! What the fuzz targets of HDF5's plans do with their input. The targets of the filters stand on
//! `penstock_codec::fuzz`.

mod cases;
mod draw;
mod model;
mod plan;
mod selection;
mod table;

pub use plan::fuzz_planner;
pub use selection::fuzz_selection;
pub use table::fuzz_chunk_table;
