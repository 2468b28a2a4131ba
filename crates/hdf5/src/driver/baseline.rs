//! GPU data moved as programs do without Penstock.

use std::sync::Mutex;

use penstock_engine::Extent;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;

use super::file::DriverFile;
use super::settings::Settings;

/// Buffers that are kept from call to call.
#[derive(Default)]
pub struct Buffers {
    _pageable: Mutex<Vec<u8>>,
}

/// # Safety
/// As for `DriverFile::move_raw`, in GPU memory.
pub unsafe fn move_gpu(
    _: &DriverFile,
    _: Operation,
    _: &[Extent],
    settings: &Settings,
) -> Result<()> {
    Err(Error::new(
        Kind::Unavailable,
        format!("mode {}", settings.mode.name()),
    ))
}

/// # Safety
/// As for `DriverFile::move_raw`, in host memory.
pub unsafe fn move_host(_: &DriverFile, _: Operation, _: &[Extent]) -> Result<()> {
    Err(Error::new(Kind::Unavailable, "mode posix-mt"))
}
