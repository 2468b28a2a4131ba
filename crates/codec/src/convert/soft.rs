//! HDF5's soft conversion, bit field by bit field, for all numbers that it does not cast.

use super::float::Float;
use super::integer::Integer;
use super::lane::each;

pub(super) fn float_to_float<S: Float, T: Float>(source: &[u8], target: &mut [u8]) {
    each(source, target, |bytes: S::Bytes| {
        T::bytes(number::<S, T>(S::bits(bytes)))
    });
}

fn number<S: Float, T: Float>(bits: u64) -> u64 {
    let sign = (bits >> S::SIGN & 1) << T::SIGN;
    let mantissa = bits & S::MASK;
    let exponent = (bits >> S::MANTISSA) as i64 & S::TOP;
    if exponent == S::TOP {
        let nan = if mantissa == 0 { 0 } else { T::MASK };
        return sign | T::infinity(false) | nan;
    }
    if exponent == 0 && mantissa == 0 {
        return sign;
    }
    // The `width` bits of the fraction after the leading one.
    let (fraction, width, exponent) = if exponent == 0 {
        let leading = mantissa.ilog2();
        let exponent = 1 - S::BIAS - i64::from(S::MANTISSA - leading);
        (mantissa ^ 1 << leading, leading, exponent)
    } else {
        (mantissa, S::MANTISSA, exponent - S::BIAS)
    };
    let is_denormal = bits >> S::MANTISSA & S::TOP as u64 == 0;
    sign | magnitude::<T>(fraction, width, exponent + T::BIAS, is_denormal)
}

fn magnitude<T: Float>(fraction: u64, width: u32, exponent: i64, was_denormal: bool) -> u64 {
    if exponent >= T::TOP {
        return T::infinity(false);
    }
    if exponent < -i64::from(T::MANTISSA) {
        return 0;
    }
    // How many bits the leading one of a denormal result lies below the implied one.
    let (down, exponent) = match exponent {
        1.. => (0, exponent as u64),
        _ => (1 - exponent as i32 as i64, 0),
    };
    let down = down as u32;
    if down > T::MANTISSA {
        // Half the smallest denormal and more rounds up to it.
        return 1;
    }
    let room = T::MANTISSA - down;
    let leading = if down > 0 { 1 << room } else { 0 };
    let before = exponent << T::MANTISSA | leading;
    if width <= room {
        return before | fraction << (room - width);
    }
    let cut = width - room;
    let kept = fraction >> cut;
    if fraction >> (cut - 1) & 1 == 0 {
        return before | kept;
    }
    let full = (1 << room) - 1;
    if was_denormal || down > 0 {
        // HDF5 loses the carry out of the kept bits.
        return before | ((kept + 1) & full);
    }
    if kept == full && exponent as i64 == T::TOP - 1 {
        // The highest finite number is not rounded up to infinity.
        return before | kept;
    }
    before + kept + 1
}

pub(super) fn integer_to_float<S: Integer, T: Float>(source: &[u8], target: &mut [u8]) {
    each(source, target, |bytes: S::Bytes| {
        let value = S::from_le(bytes).wide();
        let sign = u64::from(value < 0) << T::SIGN;
        let value = value.unsigned_abs() as u64;
        if value == 0 {
            return T::bytes(0);
        }
        let width = value.ilog2();
        let fraction = value ^ 1 << width;
        let mut exponent = i64::from(width) + T::BIAS;
        let mut mantissa = if width <= T::MANTISSA {
            fraction << (T::MANTISSA - width)
        } else {
            let cut = width - T::MANTISSA;
            let rest = fraction & ((1 << cut) - 1);
            let half = 1 << (cut - 1);
            let kept = fraction >> cut;
            kept + u64::from(rest > half || rest == half && kept & 1 == 1)
        };
        if mantissa > T::MASK {
            mantissa = 0;
            exponent += 1;
        }
        if exponent > T::TOP {
            return T::bytes(sign | T::infinity(false));
        }
        // With the exponent of infinity and a nonzero mantissa the result is NaN, as in HDF5.
        T::bytes(sign | (exponent as u64) << T::MANTISSA | mantissa)
    });
}

pub(super) fn float_to_integer<S: Float, T: Integer>(source: &[u8], target: &mut [u8]) {
    each(source, target, |bytes: S::Bytes| {
        T::wrap(integer::<S, T>(S::bits(bytes))).to_le()
    });
}

fn integer<S: Float, T: Integer>(bits: u64) -> i128 {
    let is_negative = bits >> S::SIGN & 1 == 1;
    let mantissa = bits & S::MASK;
    let exponent = (bits >> S::MANTISSA) as i64 & S::TOP;
    let farthest = if is_negative { T::LOWEST } else { T::HIGHEST };
    if exponent == S::TOP {
        return if mantissa == 0 { farthest } else { 0 };
    }
    if exponent == 0 && mantissa == 0 {
        return 0;
    }
    let power = exponent - S::BIAS;
    if power >= i64::from(T::BITS) {
        return farthest;
    }
    if power < 0 {
        // HDF5 treats values between -0.5 and 0 as an overflow.
        return if is_negative && power < -1 {
            T::LOWEST
        } else {
            0
        };
    }
    let whole = i128::from(mantissa | 1 << S::MANTISSA);
    let shift = power - i64::from(S::MANTISSA);
    let value = if shift < 0 {
        whole >> -shift
    } else {
        whole << shift
    };
    let value = if is_negative { -value } else { value };
    value.clamp(T::LOWEST, T::HIGHEST)
}
