//! New files that replace others, and whose contents the caller writes.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use penstock_engine::options::Options;
use penstock_engine::refuse_fork;
use penstock_engine::save::Replacement;

use crate::arguments::{path_of, place_of};
use crate::error::guard;
use crate::handle::{Table, release};

/// The type to which a `penstock_replacement *` points; see [`crate::handle`].
pub(crate) enum CReplacement {}

static REPLACEMENTS: Table<Replacement> = Table::new("replacement");

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_replacement_begin(
    path: *const c_char,
    replacement: *mut *mut CReplacement,
    descriptor: *mut c_int,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(replacement, "replacement")?;
        let descriptor = place_of(descriptor, "descriptor")?;
        let begun = Replacement::begin(path_of(path, "path")?, Options::default())?;
        *descriptor = begun.as_raw_fd();
        *place = REPLACEMENTS.insert(begun);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_replacement_publish(
    replacement: *mut CReplacement,
    durable: c_int,
) -> c_int {
    guard(|| REPLACEMENTS.get(replacement)?.publish(durable != 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_replacement_release(place: *mut *mut CReplacement) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |replacement| REPLACEMENTS.close(replacement)) };
}
