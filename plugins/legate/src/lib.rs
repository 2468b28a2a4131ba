//! Stands in for the driver vfd-gds that Legate's wheel brings, when it is loaded before that:
//! `penstock run --legate` sets `LD_PRELOAD`. Legate makes an access property list, calls
//! `H5Pset_fapl_gds` on it and gives HDF5 pointers to GPU memory; here the list gets Penstock's
//! driver instead.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;

use penstock_forward::{function, with_caller};

/// What vfd-gds takes for its copy buffer unless it is told, and what Legate always asks for.
const USUAL_COPY_BUFFER: usize = 16 << 20;

/// What Penstock takes for a block.
const LEAST_BLOCK: usize = 4 << 10;
const GREATEST_BLOCK: usize = 1 << 30;

with_caller! {
    /// The call of vfd-gds: negative on failure. `boundary` and `block_size`, the alignment that its
    /// caller assumes of memory and file, mean nothing here: Penstock asks the file system.
    fn H5Pset_fapl_gds(fapl_id: i64, boundary: usize, block_size: usize, cbuf_size: usize) -> c_int
        => set, "r8", "x4"
}

unsafe extern "C" fn set(
    fapl_id: i64,
    _boundary: usize,
    _block_size: usize,
    cbuf_size: usize,
    caller: *const c_void,
) -> c_int {
    let found = function(c"penstock_fapl_set_for");
    if found.is_null() {
        return -1;
    }
    // SAFETY: the signature is that of crates/capi/src/driver.rs.
    let set_for: unsafe extern "C" fn(*const c_void, i64, *const c_char) -> c_int =
        unsafe { mem::transmute(found) };
    let Ok(options) = CString::new(options(cbuf_size)) else {
        return -1;
    };
    // SAFETY: the text outlives the call, and whoever calls HDF5 keeps its threads apart.
    match unsafe { set_for(caller, fapl_id, options.as_ptr()) } {
        0 => 0,
        _ => -1,
    }
}

/// A copy buffer that somebody has chosen is the block that a worker moves at a time. HDF5 gives
/// `HDF5_DRIVER_CONFIG` only to lists without a driver of their own, so it is read here; what it
/// sets comes last and wins.
fn options(cbuf_size: usize) -> Vec<u8> {
    let mut options = Vec::new();
    if cbuf_size != 0 && cbuf_size != USUAL_COPY_BUFFER {
        let block = cbuf_size.clamp(LEAST_BLOCK, GREATEST_BLOCK);
        options.extend_from_slice(format!("block={block};").as_bytes());
    }
    if let Some(configured) = env::var_os("HDF5_DRIVER_CONFIG") {
        options.extend_from_slice(configured.as_bytes());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_copy_buffer_leaves_the_block_open() {
        assert!(!options(USUAL_COPY_BUFFER).starts_with(b"block="));
        assert!(!options(0).starts_with(b"block="));
    }

    #[test]
    fn a_chosen_copy_buffer_is_the_block() {
        assert!(options(8 << 20).starts_with(b"block=8388608;"));
    }

    #[test]
    fn a_copy_buffer_that_is_no_block_is_the_nearest_one() {
        assert!(options(4 << 30).starts_with(b"block=1073741824;"));
        assert!(options(512).starts_with(b"block=4096;"));
    }
}
