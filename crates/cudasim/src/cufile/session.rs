//! Opening and closing, and the properties of cuFile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_sys::cufile::*;

use super::{Failure, Result, buffer, handle, statistics};
use crate::{config, device, failure};

/// The path of bytes between a file opened with `O_DIRECT` and device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PCIe peer-to-peer by the Linux kernel itself.
    PeerToPeer,
    /// Through the nvidia-fs kernel module.
    NvidiaFs,
    /// Through host memory.
    Posix,
}

struct Session {
    uses: usize,
    mode: Mode,
}

static SESSION: Mutex<Session> = Mutex::new(Session {
    uses: 0,
    mode: Mode::Posix,
});

/// The one parameter of the stand-in.
static ALLOW_COMPAT_MODE: AtomicBool = AtomicBool::new(true);

pub fn open() -> Result {
    device::initialize(0)?;
    device::count()?;
    let mut session = SESSION.lock().unwrap();
    if session.uses == 0 {
        session.mode = start()?;
    }
    session.uses += 1;
    Ok(())
}

fn start() -> Result<Mode> {
    if let Some(code) = failure::code(failure::Kind::CufileOpen) {
        return Err(Failure::injected(code));
    }
    let compatible = ALLOW_COMPAT_MODE.load(Ordering::Relaxed);
    let wanted = config::variable("CUDASIM_CUFILE");
    match wanted.as_deref().unwrap_or("posix") {
        "p2p" => Ok(Mode::PeerToPeer),
        "nvfs" => Ok(Mode::NvidiaFs),
        "posix" if compatible => Ok(Mode::Posix),
        _ => Err(Failure::Operation(CU_FILE_DRIVER_NOT_INITIALIZED)),
    }
}

/// The mode. Opens cuFile if it is closed, as most calls do.
pub fn ensure_open() -> Result<Mode> {
    device::count()?;
    let mut session = SESSION.lock().unwrap();
    if session.uses == 0 {
        session.mode = start()?;
        session.uses = 1;
    }
    Ok(session.mode)
}

/// The mode. Fails if cuFile is closed.
pub fn mode() -> Result<Mode> {
    device::count()?;
    let session = SESSION.lock().unwrap();
    if session.uses == 0 {
        return Err(Failure::Operation(CU_FILE_DRIVER_NOT_INITIALIZED));
    }
    Ok(session.mode)
}

/// Closes cuFile once. The last close removes all handles, registrations and statistics.
pub fn close() -> Result {
    device::count()?;
    let mut session = SESSION.lock().unwrap();
    match session.uses {
        0 => return Err(Failure::Operation(CU_FILE_DRIVER_NOT_INITIALIZED)),
        1 => {
            handle::remove_all();
            buffer::remove_all();
            statistics::clear();
        }
        _ => {}
    }
    session.uses -= 1;
    Ok(())
}

pub fn properties() -> Result<CUfileDrvProps> {
    device::count()?;
    let mode = mode().ok();
    let mut properties = CUfileDrvProps::default();
    if mode == Some(Mode::NvidiaFs) {
        properties.nvfs.major_version = 2;
        properties.nvfs.minor_version = 27;
    }
    if matches!(mode, Some(Mode::NvidiaFs | Mode::PeerToPeer)) {
        properties.nvfs.dstatusflags = 1 << CU_FILE_NVME_SUPPORTED;
    }
    if mode == Some(Mode::PeerToPeer) {
        properties.fflags = 1 << CU_FILE_P2P_SUPPORTED;
    }
    Ok(properties)
}

/// Sets a parameter, which cuFile allows only while it is closed.
pub fn set_parameter(parameter: i32, value: bool) -> Result {
    if parameter != CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    if SESSION.lock().unwrap().uses > 0 {
        return Err(Failure::Operation(CU_FILE_DRIVER_ALREADY_OPEN));
    }
    ALLOW_COMPAT_MODE.store(value, Ordering::Relaxed);
    Ok(())
}
