//! A stand-in for `libcudart.so.13`, on which PyTorch's simple CUDA paths run.
//!
//! NVIDIA's own runtime does not run on the stand-in: it requires private tables of the driver
//! (`cuGetExportTable`). The functions are those that PyTorch imports; each calls the driver's
//! function of the same purpose. The error codes that both interfaces share have the same values.
//!
//! As in NVIDIA's runtime, the first call on a thread without a current context makes the primary
//! context of device 0 current, and `cudaSetDevice` that of another device.
//!
//! No kernel of the program runs: [`kernel`].
#![allow(clippy::missing_safety_doc)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::Mutex;

use crate::device;
use crate::status::{Result, SUCCESS, code};

pub mod device_info;
pub mod kernel;
pub mod memory;
pub mod order;
pub mod unsupported;

thread_local! {
    static LAST_ERROR: Cell<c_int> = const { Cell::new(SUCCESS) };
}

/// The last error of the calling thread, which is forgotten.
fn take_error() -> c_int {
    LAST_ERROR.replace(SUCCESS)
}

fn peek_error() -> c_int {
    LAST_ERROR.get()
}

/// Keeps an error as the last one of the calling thread.
fn report(code: c_int) -> c_int {
    if code != SUCCESS {
        LAST_ERROR.set(code);
    }
    code
}

/// Calls the driver once it is initialised.
fn initialised(call: impl FnOnce() -> c_int) -> c_int {
    report(device::initialize(0).map_or_else(|error| error.0, |()| call()))
}

/// Calls the driver with a current context.
fn in_context(call: impl FnOnce() -> c_int) -> c_int {
    initialised(|| match device::top() {
        Ok(Some(_)) => call(),
        Ok(None) => use_device(0).map_or_else(|error| error.0, |()| call()),
        Err(error) => error.0,
    })
}

/// Makes the primary context of a device current. The runtime retains it until the process ends.
fn use_device(ordinal: c_int) -> Result {
    static RETAINED: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());
    let context = device::device(ordinal)?;
    let mut retained = RETAINED.lock().unwrap();
    if !retained.contains(&ordinal) {
        context.retain()?;
        retained.insert(ordinal);
    }
    device::set_current(Some(context));
    Ok(())
}

/// As [`in_context`], for calls of the stand-in's own functions.
fn with_context(call: impl FnOnce() -> Result) -> c_int {
    in_context(|| code(call()))
}

/// Defines functions of the runtime that have the arguments of the driver's.
macro_rules! forwards {
    ($through:ident: $($name:ident($($argument:ident: $type:ty),*) => $driver:path;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            // SAFETY: the driver's function has the same contract.
            #[allow(unused_unsafe)]
            super::$through(|| unsafe { $driver($($argument),*) })
        }
    )*};
}
use forwards;

/// Defines functions of the runtime that succeed and do nothing, whatever their arguments are.
macro_rules! ignored {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> std::ffi::c_int {
            crate::status::SUCCESS
        }
    )*};
}
use ignored;
