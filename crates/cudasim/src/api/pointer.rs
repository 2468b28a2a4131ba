//! Pointer attributes. The functions need an initialised driver but no current context.

use std::ffi::{c_int, c_uint, c_void};

use crate::status::{INVALID_VALUE, code};
use crate::{device, failure, pointer};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: c_int,
    address: u64,
) -> c_int {
    code(device::count().and_then(|_| {
        failure::check(failure::Kind::Pointer)?;
        // SAFETY: the client's pointer is null or valid for the attribute.
        unsafe { pointer::attribute(attribute, address as usize, data) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    data: *mut *mut c_void,
    address: u64,
) -> c_int {
    code(device::count().and_then(|_| {
        if attributes.is_null() || data.is_null() || count == 0 {
            return Err(INVALID_VALUE);
        }
        failure::check(failure::Kind::Pointer)?;
        // SAFETY: both of the client's arrays hold `count` entries, each fit for its attribute.
        unsafe { pointer::attributes(count as usize, attributes, data, address as usize) }
    }))
}
