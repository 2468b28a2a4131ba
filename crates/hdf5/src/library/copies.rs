//! The copies of HDF5 that have called a plugin of Penstock. A process may hold several, each with
//! its own identifiers: h5py's wheels bring a private copy, an application links another.
//!
//! HDF5 passes nothing to `open` that identifies its copy. So each copy has a slot, and each slot has its own
//! functions, with the slot as a const parameter.

use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{Hdf5, base_of};

/// Largest number of copies of HDF5 that one process can use.
pub const SLOTS: usize = 4;

struct Bound {
    /// Base address of the object that contains this copy.
    base: usize,
    hdf5: Hdf5,
}

static BOUND: [OnceLock<Bound>; SLOTS] = [const { OnceLock::new() }; SLOTS];
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the slot of the HDF5 that contains `code`, the address of one of its instructions. Calls
/// no function of HDF5, which may be in the middle of its initialisation.
pub fn slot_of(code: *const c_void) -> Result<usize> {
    let unavailable = |cause: String| {
        Error::new(Kind::Unavailable, cause).remedy("use HDF5 1.14 or 2.x as a shared library")
    };
    let _guard = ONE_AT_A_TIME.lock().recover();
    let base = base_of(code)
        .ok_or_else(|| unavailable(format!("no loaded object contains the address {code:p}")))?;
    for (slot, place) in BOUND.iter().enumerate() {
        match place.get() {
            Some(bound) if bound.base == base => return Ok(slot),
            Some(_) => {}
            None => {
                let hdf5 = Hdf5::of_code(code).map_err(|absent| unavailable(absent.to_string()))?;
                let _ = place.set(Bound { base, hdf5 });
                return Ok(slot);
            }
        }
    }
    Err(Error::new(
        Kind::Unavailable,
        format!("this process uses more than {SLOTS} copies of HDF5"),
    ))
}

/// Returns the slot of the HDF5 that contains `code`, if that copy has one.
pub fn known_slot_of(code: *const c_void) -> Option<usize> {
    let base = base_of(code)?;
    let is_base = |place: &OnceLock<Bound>| place.get().is_some_and(|bound| bound.base == base);
    BOUND.iter().position(is_base)
}

/// Returns the HDF5 of a slot that [`slot_of`] has returned.
pub fn hdf5_of(slot: usize) -> Option<&'static Hdf5> {
    BOUND.get(slot)?.get().map(|bound| &bound.hdf5)
}
