//! cuFile's driver: how it is opened and closed, and how it moves bytes.

use std::path::Path;
use std::sync::OnceLock;

use penstock_sys::cufile::{
    self, CU_FILE_P2P_SUPPORTED, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, CUfileDrvProps,
    CUfileError, CuFile,
};

use crate::error::{Error, Kind, Result};
use crate::fork::refuse_fork;
use crate::gpu;
use crate::in_flight::REQUESTS;

/// How cuFile moves bytes of the file systems that it supports, according to cuFile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By PCIe peer-to-peer, without a kernel module.
    PeerToPeer,
    /// By the nvidia-fs kernel module.
    NvidiaFs,
    /// Through host memory.
    Compat,
}

/// An open cuFile.
pub(crate) struct Driver {
    pub cufile: &'static CuFile,
    pub mode: Mode,
}

static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();

/// cuFile's driver, which the first call opens, or the reason why it does not open, which is
/// determined once. It stays open until the process exits, since other parts of the process may use
/// cuFile.
pub(crate) fn driver() -> Result<&'static Driver> {
    DRIVER.get_or_init(open).as_ref().map_err(Error::clone)
}

/// Whether cuFile is open, or the machine has the module that lets it move bytes straight to the
/// GPU.
pub(crate) fn is_worth_asking() -> bool {
    static HAS_NVIDIA_FS: OnceLock<bool> = OnceLock::new();
    match DRIVER.get() {
        Some(opened) => opened.is_ok(),
        None => *HAS_NVIDIA_FS.get_or_init(|| Path::new("/proc/driver/nvidia-fs").exists()),
    }
}

fn open() -> Result<Driver> {
    // Without CUDA and a device, cuFileDriverOpen would not return.
    if gpu::driver()?.device_count()? == 0 {
        return Err(
            unavailable("cuFile needs a CUDA device, and this process sees none")
                .remedy("check nvidia-smi and CUDA_VISIBLE_DEVICES"),
        );
    }
    let cufile = cufile::cufile().map_err(|absent| {
        unavailable(absent.to_string()).remedy(
            "install cuFile (the wheel nvidia-cufile, or the CUDA toolkit), or use route=auto, which works without it; the variable PENSTOCK_CUFILE_LIBRARY can name the library",
        )
    })?;
    prepare(cufile);
    // SAFETY: CUDA is initialised, which is all that the call requires.
    let opened = unsafe { (cufile.cuFileDriverOpen)() };
    if !opened.is_success() {
        return Err(refused("cuFile does not start: cuFileDriverOpen", opened));
    }
    // SAFETY: the handler takes no arguments and stays loaded.
    unsafe { libc::atexit(close_at_exit) };
    if let Some(start) = cufile.cuFileStatsStart {
        // SAFETY: cuFile is open. Without statistics, no path can be proven, which is not a failure.
        let _ = unsafe { start() };
    }
    Ok(Driver {
        cufile,
        mode: mode(cufile),
    })
}

/// Closes cuFile. Left open, it crashed in every second process that exited, on an H200 with CUDA
/// 13. Exit handlers run before libraries that were loaded earlier are torn down.
extern "C" fn close_at_exit() {
    // A request in flight would find cuFile closed.
    if let Some(Ok(driver)) = DRIVER.get()
        && refuse_fork().is_ok()
        && REQUESTS.is_none()
    {
        // SAFETY: cuFile is open, and no request uses it.
        let _ = unsafe { (driver.cufile.cuFileDriverClose)() };
    }
}

/// Sets the parameters that can only be set before cuFile opens. cuFile may refuse them if it is
/// old, or if another part of the process has opened it.
fn prepare(cufile: &CuFile) {
    if let Some(set) = cufile.cuFileSetParameterBool {
        // SAFETY: the parameter is of this type.
        let _ = unsafe { set(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, true) };
    }
    if let Some(set) = cufile.cuFileSetStatsLevel {
        // SAFETY: takes any number.
        let _ = unsafe { set(3) };
    }
}

fn mode(cufile: &CuFile) -> Mode {
    let mut properties = CUfileDrvProps::default();
    // SAFETY: `properties` is a valid place for the answer.
    let status = unsafe { (cufile.cuFileDriverGetProperties)(&mut properties) };
    if !status.is_success() {
        return Mode::Compat;
    }
    // Without a supported kind of storage, cuFile has neither path.
    let supports_any = properties.nvfs.dstatusflags != 0;
    if supports_any && properties.nvfs.major_version > 0 {
        Mode::NvidiaFs
    } else if supports_any && properties.fflags & (1 << CU_FILE_P2P_SUPPORTED) != 0 {
        Mode::PeerToPeer
    } else {
        Mode::Compat
    }
}

fn unavailable(cause: impl Into<String>) -> Error {
    Error::new(Kind::Unavailable, cause)
}

/// The error of an installed cuFile that refuses a call, with the usual causes as its remedy.
pub(super) fn refused(what: &str, error: CUfileError) -> Error {
    let cause = format!("{what} failed with {error} ({})", error.err);
    Error::gpu(error.err, cause).of_kind(Kind::Unavailable).remedy(
        "check that udev runs, or that the container sees the host's /run/udev, because cuFile refuses a device that udev does not list; see cuFile's log (cufile.log); load the nvidia-fs module for GPUDirect; or use route=auto, which works without cuFile",
    )
}
