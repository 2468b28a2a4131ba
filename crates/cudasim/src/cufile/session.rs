//! Opening and closing, and the properties of cuFile.

use std::sync::Mutex;

use penstock_sys::cufile::*;

use super::parameter::{self, Parameters};
use super::{Failure, Result, buffer, handle};
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
    let compatible = parameter::bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
    let forced = parameter::bool(CUFILE_PARAM_FORCE_COMPAT_MODE);
    let wanted = config::variable("CUDASIM_CUFILE");
    match wanted.as_deref().unwrap_or("posix") {
        "p2p" if !forced => Ok(Mode::PeerToPeer),
        "nvfs" if !forced => Ok(Mode::NvidiaFs),
        "p2p" | "nvfs" | "posix" if compatible => Ok(Mode::Posix),
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

/// Closes cuFile once. The last close removes all handles and registrations.
pub fn close() -> Result {
    device::count()?;
    let mut session = SESSION.lock().unwrap();
    match session.uses {
        0 => return Err(Failure::Operation(CU_FILE_DRIVER_NOT_INITIALIZED)),
        1 => {
            handle::remove_all();
            buffer::remove_all();
        }
        _ => {}
    }
    session.uses -= 1;
    Ok(())
}

pub fn uses() -> usize {
    SESSION.lock().unwrap().uses
}

pub fn properties() -> Result<CUfileDrvProps> {
    device::count()?;
    let mode = mode().ok();
    let bit = |number: u32| 1u32 << number;
    let nvidia_fs = mode == Some(Mode::NvidiaFs);
    let direct = [
        CU_FILE_NVME_SUPPORTED,
        CU_FILE_NVMEOF_SUPPORTED,
        CU_FILE_SCSI_SUPPORTED,
    ];
    let mut properties = Parameters::properties();
    properties.nvfs.major_version = if nvidia_fs { 2 } else { 0 };
    properties.nvfs.minor_version = if nvidia_fs { 27 } else { 0 };
    properties.nvfs.dstatusflags = match mode {
        Some(Mode::NvidiaFs) => direct.into_iter().map(bit).sum(),
        Some(Mode::PeerToPeer) => bit(CU_FILE_NVME_SUPPORTED) | bit(CU_FILE_NVME_P2P_SUPPORTED),
        _ => 0,
    };
    properties.fflags = [
        CU_FILE_DYN_ROUTING_SUPPORTED,
        CU_FILE_BATCH_IO_SUPPORTED,
        CU_FILE_STREAMS_SUPPORTED,
        CU_FILE_PARALLEL_IO_SUPPORTED,
    ]
    .into_iter()
    .map(bit)
    .sum();
    if mode == Some(Mode::PeerToPeer) {
        properties.fflags |= bit(CU_FILE_P2P_SUPPORTED);
    }
    Ok(properties)
}
