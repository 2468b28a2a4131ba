//! Controls of the stand-in driver for tests: calls that fail, and counts of what is alive.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

/// The stand-in's own functions; see crates/cudasim/src/api/control.rs.
pub struct Standin {
    fail: unsafe extern "C" fn(*const c_char),
    calls: unsafe extern "C" fn(*const c_char) -> u64,
    allocations: extern "C" fn() -> usize,
    registrations: extern "C" fn() -> usize,
    streams: extern "C" fn() -> usize,
    events: extern "C" fn() -> usize,
}

/// As long as it lives, the calls that it was made for fail. Then the stand-in forgets failures,
/// those of contexts too.
pub struct Failing(&'static Standin);

/// Objects of the driver that are not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    pub allocations: usize,
    pub registrations: usize,
    pub streams: usize,
    pub events: usize,
}

/// The stand-in, if the process runs on it; prints a message once if not.
pub fn standin() -> Option<&'static Standin> {
    static FOUND: OnceLock<Option<Standin>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let found = if super::has_gpu() { find() } else { None };
            if found.is_none() {
                eprintln!("SKIPPED: needs the stand-in GPU; run under scripts/standin-gpu");
            }
            found
        })
        .as_ref()
}

fn find() -> Option<Standin> {
    let path = std::env::var_os("PENSTOCK_CUDA_LIBRARY")?;
    let path = CString::new(path.into_vec()).ok()?;
    // SAFETY: `path` is a C string. The library is loaded already: the engine found a device.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let symbol = |name: &std::ffi::CStr| -> Option<*mut c_void> {
        // SAFETY: the library stays open; `name` is a C string.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    // SAFETY: the signatures are those of control.rs.
    unsafe {
        let counter = |name| {
            symbol(name).map(|s| std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(s))
        };
        Some(Standin {
            fail: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(symbol(
                c"cudasim_fail",
            )?),
            calls: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> u64>(
                symbol(c"cudasim_calls")?,
            ),
            allocations: counter(c"cudasim_live_allocations")?,
            registrations: counter(c"cudasim_live_registrations")?,
            streams: counter(c"cudasim_live_streams")?,
            events: counter(c"cudasim_live_events")?,
        })
    }
}

impl Standin {
    /// Makes calls fail, as crates/cudasim/src/failure.rs describes. It concerns the whole
    /// process, so tests that use it must not run side by side.
    #[must_use]
    pub fn fail(&'static self, specification: &str) -> Failing {
        let text = CString::new(specification).unwrap();
        // SAFETY: a C string.
        unsafe { (self.fail)(text.as_ptr()) };
        Failing(self)
    }

    /// Calls of a kind, as crates/cudasim/src/failure.rs names it, since failures were last set.
    pub fn calls(&self, kind: &std::ffi::CStr) -> u64 {
        // SAFETY: a C string.
        unsafe { (self.calls)(kind.as_ptr()) }
    }

    pub fn alive(&self) -> Alive {
        Alive {
            allocations: (self.allocations)(),
            registrations: (self.registrations)(),
            streams: (self.streams)(),
            events: (self.events)(),
        }
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // SAFETY: null is allowed.
        unsafe { (self.0.fail)(std::ptr::null()) };
    }
}
