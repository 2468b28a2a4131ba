//! NVTX ranges, which profilers show on their timeline. Most machines without a profiler lack the
//! library, which is harmless.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::environment;
use crate::library::{Absent, Search, table, vendor_folders};

table! {
    /// NVTX ranges of the calling thread; they nest.
    Nvtx {
        required {
            /// `message` is NUL-terminated and copied before the call returns.
            fn nvtxRangePushA(message: *const c_char) -> c_int;
            /// Ends the range that this thread began last.
            fn nvtxRangePop() -> c_int;
        }
        optional {}
    }
}

const OVERRIDE: &str = "PENSTOCK_NVTX_LIBRARY";
const NAMES: &[&str] = &[
    "libnvToolsExt.so.1",
    "libnvtx3interop.so.1",
    "libnvtx3interop.so",
];
const WHEEL_FOLDERS: &[&str] = &["nvidia/nvtx/lib", "nvidia/cu13/lib"];

/// NVTX, opened on the first call. `PENSTOCK_NVTX_LIBRARY` names another library.
pub fn nvtx() -> Result<&'static Nvtx, Absent> {
    static NVTX: OnceLock<Result<Nvtx, Absent>> = OnceLock::new();
    NVTX.get_or_init(|| {
        let search = Search {
            title: "NVTX library",
            variable: OVERRIDE,
            names: NAMES,
            folders: vendor_folders(WHEEL_FOLDERS),
        };
        Nvtx::open(&search, environment::path(OVERRIDE).as_deref())
    })
    .as_ref()
    .map_err(Absent::clone)
}
