//! NVTX ranges, which profilers show on their timeline. Most machines without a profiler lack the
//! library, which is harmless.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

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

const LIBRARY: Search = Search {
    title: "NVTX library",
    variable: "PENSTOCK_NVTX_LIBRARY",
    names: &[
        "libnvToolsExt.so.1",
        "libnvtx3interop.so.1",
        "libnvtx3interop.so",
    ],
    folders: || vendor_folders(&["nvidia/nvtx/lib", "nvidia/cu13/lib"]),
};

/// NVTX, opened on the first call. `PENSTOCK_NVTX_LIBRARY` names another library.
pub fn nvtx() -> Result<&'static Nvtx, Absent> {
    static NVTX: OnceLock<Result<Nvtx, Absent>> = OnceLock::new();
    NVTX.get_or_init(|| Nvtx::of(&LIBRARY.open(LIBRARY.override_path().as_deref())?))
        .as_ref()
        .map_err(Absent::clone)
}
