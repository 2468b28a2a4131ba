//! The CUDA driver as the engine uses it: contexts, streams, events, copies.

mod context;
mod holders;
mod idle;
mod own_context;
mod pages;
mod queue;
mod queue_lease;
pub mod stream;

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use penstock_sys::cuda::{self, CUresult, Cuda};

use crate::error::{Error, Kind, Result};

pub use context::{Context, Entered};
pub use holders::{Awaited, Holding};
pub use own_context::OwnContext;
pub(crate) use pages::Pages;
pub use queue::{CopyQueue, Direction, Rows};
pub use queue_lease::QueueLease;
pub use stream::any_stream_waits;

/// An initialised CUDA driver.
pub struct Driver {
    /// The driver's functions.
    pub cuda: &'static Cuda,
}

/// The driver. The first call initialises it.
///
/// # Errors
/// [`Kind::Unavailable`] without a CUDA driver; else the failure of cuInit. A failure is permanent.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            let cuda = cuda::cuda().map_err(|absent| {
                Error::new(Kind::Unavailable, absent.to_string()).remedy(
                    "install the NVIDIA driver, or use host memory; the variable PENSTOCK_CUDA_LIBRARY can name the library",
                )
            })?;
            let driver = Driver { cuda };
            crate::fork::watch_forks();
            // SAFETY: cuInit may be called at any time, with flags 0.
            driver.check(unsafe { (cuda.cuInit)(0) }, "cuInit")?;
            Ok(driver)
        })
        .as_ref()
        .map_err(Error::clone)
}

impl Driver {
    /// Turns the result of a call into an error with the name of the call and, if one is known, a
    /// remedy.
    pub fn check(&self, code: CUresult, call: &str) -> Result<()> {
        if code == cuda::CUDA_SUCCESS {
            return Ok(());
        }
        let error = Error::gpu(
            code,
            format!(
                "{call} failed with {}: {}",
                self.cuda.error_name(code),
                self.cuda.error_text(code)
            ),
        );
        Err(match code {
            cuda::CUDA_ERROR_OUT_OF_MEMORY => error.of_kind(Kind::Memory).remedy(
                "free GPU memory, or use fewer threads, a smaller block or a smaller array",
            ),
            cuda::CUDA_ERROR_ILLEGAL_ADDRESS | cuda::CUDA_ERROR_LAUNCH_FAILED => error.remedy(
                "an earlier kernel or copy of this process broke the CUDA context: run it under compute-sanitizer",
            ),
            cuda::CUDA_ERROR_INVALID_VALUE => {
                error.remedy("check that the GPU buffer is alive and as long as the range")
            }
            cuda::CUDA_ERROR_NO_DEVICE => error.remedy("no CUDA device is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES"),
            cuda::CUDA_ERROR_NOT_INITIALIZED => error.remedy(
                "CUDA cannot be used in a forked child: start workers with spawn or exec",
            ),
            _ => error,
        })
    }

    /// The number of CUDA devices that this process sees.
    pub fn device_count(&self) -> Result<i32> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a valid place for the answer.
        let code = unsafe { (self.cuda.cuDeviceGetCount)(&mut count) };
        self.check(code, "cuDeviceGetCount")?;
        Ok(count)
    }

    /// An attribute of a device; 0 if the driver does not know it.
    pub fn attribute(&self, device: i32, attribute: cuda::CUdevice_attribute) -> i32 {
        let mut value: c_int = 0;
        // SAFETY: `value` is a valid place for the answer.
        let code = unsafe { (self.cuda.cuDeviceGetAttribute)(&mut value, attribute, device) };
        if code == cuda::CUDA_SUCCESS { value } else { 0 }
    }

    /// The newest CUDA version that the driver supports, as (major, minor).
    pub fn version(&self) -> Option<(i32, i32)> {
        let mut number: c_int = 0;
        // SAFETY: `number` is a valid place for the answer.
        let code = unsafe { (self.cuda.cuDriverGetVersion)(&mut number) };
        (code == cuda::CUDA_SUCCESS).then_some((number / 1000, number % 1000 / 10))
    }

    /// The name of a device, such as "NVIDIA H200".
    pub(crate) fn device_name(&self, device: i32) -> Option<String> {
        // SAFETY: passed on with the length of the buffer.
        text(|buffer, length| unsafe { (self.cuda.cuDeviceGetName)(buffer, length, device) })
    }

    /// The memory of a device in bytes.
    pub fn device_memory(&self, device: i32) -> Option<u64> {
        let mut bytes = 0usize;
        // SAFETY: `bytes` is a valid place for the answer.
        let code = unsafe { (self.cuda.cuDeviceTotalMem)(&mut bytes, device) };
        (code == cuda::CUDA_SUCCESS).then_some(bytes as u64)
    }

    /// The PCI address of a device as sysfs writes it: "0000:3b:00.0".
    pub(crate) fn pci_bus_id(&self, device: i32) -> Option<String> {
        // SAFETY: passed on with the length of the buffer.
        text(|buffer, length| unsafe { (self.cuda.cuDeviceGetPCIBusId)(buffer, length, device) })
            .map(|id| id.to_lowercase())
    }

    /// The host NUMA node nearest to a device, if the system has several.
    pub(crate) fn numa_node(&self, device: i32) -> Option<u32> {
        let id = self.pci_bus_id(device)?;
        let path = format!("/sys/bus/pci/devices/{id}/numa_node");
        // -1 means that the firmware does not report the node.
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

/// The text that a driver query writes into the buffer that it gets.
fn text(query: impl FnOnce(*mut c_char, c_int) -> CUresult) -> Option<String> {
    let mut bytes = [0u8; 256];
    if query(bytes.as_mut_ptr().cast(), bytes.len() as c_int) != cuda::CUDA_SUCCESS {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}
