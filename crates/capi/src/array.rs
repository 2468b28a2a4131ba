//! Arrays in the caller's memory.

use std::ffi::c_void;

use penstock_codec::convert::DecodeRules;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5S_MAX_RANK, hid_t};

use crate::arguments::{list, null, optional_list};
use crate::decoding::{CDecoding, decoding_of};
use crate::structs::{arguments, check_reserved};

#[repr(C)]
pub(crate) struct CArray {
    struct_size: usize,
    data: *mut c_void,
    element: hid_t,
    rank: i32,
    reserved: u32,
    shape: *const u64,
    strides: *const i64,
    decoding: *const CDecoding,
}

/// A checked array.
pub(crate) struct Array<'a> {
    pub(crate) address: usize,
    pub(crate) element: hid_t,
    /// How packed numbers are decoded.
    pub(crate) decode: Option<DecodeRules>,
    pub(crate) shape: &'a [u64],
    pub(crate) strides: Option<&'a [i64]>,
}

/// # Safety
/// `array` is null or as the header requires.
pub(crate) unsafe fn array_of<'a>(array: *const CArray) -> Result<Array<'a>> {
    const MOST: u64 = 2 * H5S_MAX_RANK as u64;
    // SAFETY: by contract of this function.
    let array = unsafe { arguments(array, "array")? }.ok_or_else(|| null("array"))?;
    check_reserved(array.reserved, "array")?;
    let rank = u64::try_from(array.rank).ok().filter(|rank| *rank <= MOST);
    let rank = rank.ok_or_else(|| {
        Error::invalid(format!(
            "the rank of an array is {}, but must be between 0 and {MOST}",
            array.rank
        ))
    })?;
    // SAFETY: by contract, each pointer that is not null is to `rank` numbers.
    let (shape, strides) = unsafe {
        (
            list(array.shape, rank, "shape")?,
            optional_list(array.strides, rank, "strides")?,
        )
    };
    // SAFETY: by contract of this function.
    let decode = unsafe { decoding_of(array.decoding)? };
    Ok(Array {
        address: array.data as usize,
        element: array.element,
        decode,
        shape,
        strides: strides.filter(|strides| !strides.is_empty()),
    })
}
