//! The CUDA driver as the engine uses it: contexts, streams, events, copies.

mod context;
mod queue;
pub(crate) mod stream;

use std::ffi::c_int;
use std::sync::OnceLock;

use penstock_sys::cuda::{self, CUresult, Cuda};

use crate::error::{Error, Kind, Result};

pub(crate) use context::{Context, Entered};
pub(crate) use queue::{CopyQueue, Direction};

/// An initialised CUDA driver.
pub(crate) struct Driver {
    pub cuda: &'static Cuda,
}

/// The driver, initialised at the first call; or why there is none.
pub(crate) fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            let cuda = cuda::cuda().map_err(|absent| {
                Error::new(Kind::Unavailable, absent.to_string()).remedy(
                    "install the NVIDIA driver, or use host memory; PENSTOCK_CUDA_LIBRARY can name the library",
                )
            })?;
            let driver = Driver { cuda };
            // SAFETY: cuInit may be called at any time, with flags 0.
            driver.check(unsafe { (cuda.cuInit)(0) }, "cuInit")?;
            Ok(driver)
        })
        .as_ref()
        .map_err(Error::clone)
}

impl Driver {
    /// Turns a result into an error that names the call and, where there is one, a remedy.
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
            cuda::CUDA_ERROR_OUT_OF_MEMORY => {
                let text = error.cause().to_owned();
                Error::gpu_memory(code, text)
            }
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

    pub fn device_count(&self) -> Result<i32> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a valid place for the answer.
        self.check(
            unsafe { (self.cuda.cuDeviceGetCount)(&mut count) },
            "cuDeviceGetCount",
        )?;
        Ok(count)
    }

    /// A device attribute; 0 where the driver does not know it.
    pub fn attribute(&self, device: i32, attribute: cuda::CUdevice_attribute) -> i32 {
        let mut value: c_int = 0;
        // SAFETY: `value` is a valid place for the answer.
        let code = unsafe { (self.cuda.cuDeviceGetAttribute)(&mut value, attribute, device) };
        if code == cuda::CUDA_SUCCESS { value } else { 0 }
    }

    /// The host NUMA node nearest to a device, where the system has several.
    pub fn numa_node(&self, device: i32) -> Option<u32> {
        let mut id = [0u8; 32];
        // SAFETY: the buffer is as long as said.
        let code = unsafe {
            (self.cuda.cuDeviceGetPCIBusId)(id.as_mut_ptr().cast(), id.len() as c_int, device)
        };
        if code != cuda::CUDA_SUCCESS {
            return None;
        }
        let text = std::str::from_utf8(&id).ok()?.trim_end_matches('\0');
        let path = format!("/sys/bus/pci/devices/{}/numa_node", text.to_lowercase());
        // -1 means that the firmware does not tell.
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}
