//! The caller's lists.

use penstock_engine::error::{Error, Result};

use crate::error::null;

/// Returns a list of the caller. `name` is its name in the header.
///
/// # Safety
/// `start` is null or points to `count` values that are valid for `'a`.
pub(crate) unsafe fn list<'a, T>(start: *const T, count: u64, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null(name));
    }
    let most = isize::MAX as u64 / size_of::<T>().max(1) as u64;
    if count > most {
        return Err(Error::invalid(format!(
            "{count} {name} are more than memory can hold"
        )));
    }
    // SAFETY: by contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(start, count as usize) })
}
