//! Rules by which reads decode packed numbers.

use std::ffi::c_int;
use std::sync::Mutex;

use penstock_codec::convert::{Arithmetic, DecodeRules, Sign};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};

use crate::arguments::{null, place_of};
use crate::error::guard;
use crate::structs::check_complete;

#[repr(C)]
pub(crate) struct CDecoding {
    struct_size: usize,
    sign: i32,
    arithmetic: i32,
    scale: f64,
    offset: f64,
    reserved: i32,
    fill_count: i32,
    fills: [f64; DecodeRules::MOST_FILLS],
}

/// All rules that callers have named; number 1 is the first.
static KNOWN: Mutex<Vec<DecodeRules>> = Mutex::new(Vec::new());

/// Largest number of different rules. Only a mistake makes more.
const MOST: usize = 1 << 20;

/// Returns the rules of a number; `None` for 0.
pub(crate) fn decoding_of(number: i32) -> Result<Option<DecodeRules>> {
    if number == 0 {
        return Ok(None);
    }
    let at = usize::try_from(number)
        .ok()
        .and_then(|at| at.checked_sub(1));
    let found = at.and_then(|at| KNOWN.lock().recover().get(at).copied());
    let unknown = || {
        Error::invalid(format!("{number} is not the number of a decoding"))
            .remedy("use a number of penstock_decoding_number, or 0")
    };
    found.map(Some).ok_or_else(unknown)
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

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_decoding_number(
    decoding: *const CDecoding,
    number: *mut i32,
) -> c_int {
    guard(|| {
        // SAFETY: by contract of this function.
        let (place, decoding) = unsafe { (place_of(number, "number")?, decoding.as_ref()) };
        let decoding = decoding.ok_or_else(|| null("decoding"))?;
        check_complete::<CDecoding>(decoding.struct_size, "decoding")?;
        let wanted = rules(decoding)?;
        let mut known = KNOWN.lock().recover();
        let at = match known.iter().position(|rules| *rules == wanted) {
            Some(at) => at,
            None if known.len() == MOST => return Err(Error::invalid("too many decodings")),
            None => {
                known.push(wanted);
                known.len() - 1
            }
        };
        *place = at as i32 + 1;
        Ok(())
    })
}
