//! Rules by which reads decode packed numbers.

use penstock_codec::convert::{Arithmetic, DecodeRules, Sign};
use penstock_engine::error::{Error, Result};

use crate::structs::{arguments, check_reserved};

#[repr(C)]
pub(crate) struct CDecoding {
    struct_size: usize,
    sign: i32,
    arithmetic: i32,
    scale: f64,
    offset: f64,
    reserved: u32,
    fill_count: i32,
    fills: [f64; DecodeRules::MOST_FILLS],
}

/// Returns the rules of a decoding; `None` for null.
///
/// # Safety
/// `decoding` is null or as the header requires.
pub(crate) unsafe fn decoding_of(decoding: *const CDecoding) -> Result<Option<DecodeRules>> {
    // SAFETY: by contract of this function.
    let Some(decoding) = (unsafe { arguments(decoding, "decoding")? }) else {
        return Ok(None);
    };
    check_reserved(decoding.reserved, "decoding")?;
    rules(decoding).map(Some)
}

fn rules(decoding: &CDecoding) -> Result<DecodeRules> {
    let wrong = |what| Error::invalid(format!("{what} of a decoding is wrong"));
    let sign = match decoding.sign {
        0 => Sign::Stored,
        1 => Sign::Unsigned,
        2 => Sign::Signed,
        _ => return Err(wrong("the sign")),
    };
    let arithmetic = match decoding.arithmetic {
        0 => Arithmetic::None,
        1 => Arithmetic::Narrow,
        2 => Arithmetic::Wide,
        _ => return Err(wrong("the arithmetic")),
    };
    let count = usize::try_from(decoding.fill_count).ok();
    let fills = count.and_then(|count| decoding.fills.get(..count));
    let fills = fills.ok_or_else(|| wrong("the number of fill values"))?;
    let factors = (decoding.scale, decoding.offset);
    DecodeRules::new(sign, arithmetic, factors, fills)
        .ok_or_else(|| wrong("the scale or the offset"))
}
