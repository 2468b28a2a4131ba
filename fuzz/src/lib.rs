//! What the fuzz targets do with their input. Those of the filters stand on `penstock_codec::fuzz`.

mod cases;
mod convert;
mod draw;
mod framing;
mod model;
mod plan;
mod selection;
mod table;

pub use convert::fuzz_convert;
pub use framing::fuzz_framing;
pub use plan::fuzz_planner;
pub use selection::fuzz_selection;
pub use table::fuzz_chunk_table;
