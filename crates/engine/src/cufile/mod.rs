//! cuFile: its driver, and the files and buffers that are registered with it. The route that moves
//! bytes through it is `routes::gds`.

pub mod buffer;
mod driver;
mod handle;

pub(crate) use driver::{Driver, Mode, driver, is_worth_asking};
pub(crate) use handle::Handles;
