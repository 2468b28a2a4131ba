//! HDF5's conversions by C casts, between native C types.

use super::float::{F16, F32, F64, Float};
use super::integer::Integer;
use super::lane::each;

/// A float format with a C type. An `f64` holds each of its values.
pub(super) trait Native: Float {
    fn value(bytes: Self::Bytes) -> f64;
    /// Rounds to nearest, ties to even. NaN keeps its sign and the upper bits of its payload.
    fn of_f64(value: f64) -> Self::Bytes;
    fn of_integer<S: Integer>(value: S) -> Self::Bytes;
    /// The largest finite value.
    const HIGHEST: f64;
}

impl Native for F64 {
    const HIGHEST: f64 = f64::MAX;

    fn value(bytes: [u8; 8]) -> f64 {
        f64::from_le_bytes(bytes)
    }
    fn of_f64(value: f64) -> [u8; 8] {
        value.to_le_bytes()
    }
    fn of_integer<S: Integer>(value: S) -> [u8; 8] {
        value.f64().to_le_bytes()
    }
}

impl Native for F32 {
    const HIGHEST: f64 = f32::MAX as f64;

    fn value(bytes: [u8; 4]) -> f64 {
        f64::from(f32::from_le_bytes(bytes))
    }
    fn of_f64(value: f64) -> [u8; 4] {
        (value as f32).to_le_bytes()
    }
    fn of_integer<S: Integer>(value: S) -> [u8; 4] {
        value.f32().to_le_bytes()
    }
}

impl Native for F16 {
    const HIGHEST: f64 = 65504.0;

    fn value(bytes: [u8; 2]) -> f64 {
        // All three cases are computed and one is selected, so that the loop has no branch.
        let bits = F16::bits(bytes);
        let magnitude = bits & 0x7fff;
        let denormal = (f64::from(magnitude as i32) / 16777216.0).to_bits();
        let normal = (magnitude << 42) + ((1023 - 15) << 52);
        let quiet = u64::from(magnitude > 0x7c00) << 51;
        let special = magnitude << 42 | 0x7ff << 52 | quiet;
        let finite = if magnitude < 0x400 { denormal } else { normal };
        let value = if magnitude < 0x7c00 { finite } else { special };
        f64::from_bits(value | bits >> 15 << 63)
    }

    fn of_f64(value: f64) -> [u8; 2] {
        let bits = value.to_bits();
        let sign = bits >> 63 << 15;
        let magnitude = value.abs();
        let half = if magnitude.is_nan() {
            0x7e00 | (bits >> 42 & 0x1ff)
        } else if magnitude >= 65520.0 {
            0x7c00
        } else if magnitude >= 2f64.powi(-14) {
            // The addition rounds off the low 42 bits and may carry into the exponent.
            let wide = (bits & !(1 << 63)) - ((1023 - 15) << 52);
            (wide + ((1 << 41) - 1) + (wide >> 42 & 1)) >> 42
        } else {
            // The mantissa of this sum keeps only the bits of a denormal half.
            (magnitude + 2f64.powi(28)).to_bits() & 0x7ff
        };
        F16::bytes(sign | half)
    }

    fn of_integer<S: Integer>(value: S) -> [u8; 2] {
        // HDF5 gives infinity beyond the highest finite value, even if that value is nearest.
        if value.wide() > 65504 {
            F16::bytes(F16::infinity(false))
        } else if value.wide() < -65504 {
            F16::bytes(F16::infinity(true))
        } else {
            F16::of_f64(value.f64())
        }
    }
}

pub(super) fn integer_to_float<S: Integer, T: Native>(source: &[u8], target: &mut [u8]) {
    each(source, target, |bytes: S::Bytes| {
        T::of_integer(S::from_le(bytes))
    });
}

/// Values beyond the target's highest finite value become infinite, even if that value is nearest.
pub(super) fn float_to_float<S: Native, T: Native>(source: &[u8], target: &mut [u8]) {
    each(source, target, |bytes: S::Bytes| {
        let value = S::value(bytes);
        if value.abs() > T::HIGHEST {
            T::bytes(T::infinity(value < 0.0))
        } else {
            T::of_f64(value)
        }
    });
}

pub(super) fn float_to_integer<S: Native, T: Integer>(source: &[u8], target: &mut [u8]) {
    // The limits are compared as numbers of the source format, so the upper one may have been
    // rounded up to the first value beyond the target; that value is then cast.
    let lowest = S::value(S::of_f64(T::LOWEST as f64));
    let highest = S::value(S::of_f64(T::HIGHEST as f64));
    let is_unchecked =
        S::MANTISSA == F16::MANTISSA && (T::BITS > 16 || T::LOWEST == 0 && T::BITS == 16);
    each(source, target, |bytes: S::Bytes| {
        // As in `F16::value`, all cases are computed and one is selected.
        let value = S::value(bytes);
        let number = cast(value);
        let number = if !is_unchecked && value > highest {
            T::wrap(T::HIGHEST)
        } else {
            number
        };
        let number = if !is_unchecked && value < lowest {
            T::wrap(T::LOWEST)
        } else {
            number
        };
        number.to_le()
    });
}

/// The C cast as x86-64 performs it, also where C leaves the result undefined. Converts to `i32` or
/// `i64`, whose lowest value represents NaN and values out of range, and keeps the low bits.
fn cast<T: Integer>(value: f64) -> T {
    const TOP: f64 = 9223372036854775808.0;
    let wide = |value: f64| -> i64 {
        if (-TOP..TOP).contains(&value) {
            value as i64
        } else {
            i64::MIN
        }
    };
    if T::BITS == 64 && T::LOWEST == 0 && value >= TOP {
        T::wrap(i128::from(wide(value - TOP) ^ i64::MIN))
    } else if T::BITS == 64 || T::BITS == 32 && T::LOWEST == 0 {
        T::wrap(i128::from(wide(value)))
    } else {
        // `value as i32` would compare again, which no vector instruction does.
        let fits = value > -2147483649.0 && value < 2147483648.0;
        let value = if fits { value } else { f64::from(i32::MIN) };
        // SAFETY: without its fraction, the value is an `i32`.
        T::wrap(i128::from(unsafe { value.to_int_unchecked::<i32>() }))
    }
}
