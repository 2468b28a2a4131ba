//! Checks that the HDF5 in use converts as Penstock's own rules do.
//!
//! Versions, builds and processors differ in some conversions, and a program may register its own.
//! Before Penstock converts without HDF5, both therefore convert a few hundred values that
//! distinguish all known behaviours.

use std::ffi::c_void;

use penstock_array::MemorySize;
use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::rules::ElementPart;
use crate::library::Session;

/// Conversions that need more bytes than this to try are left to HDF5.
const LARGEST: usize = 16 << 20;

/// Returns whether HDF5 converts the part of elements of type `from` as `part` says, to elements of type
/// `to`; both sizes are those in memory.
pub(super) fn holds(
    session: &Session<'_>,
    (from, to): (hid_t, hid_t),
    part: &ElementPart,
    sizes: (MemorySize, MemorySize),
) -> Result<bool> {
    let (source_size, target_size) = (sizes.0.0 as usize, sizes.1.0 as usize);
    let ElementPart { offset, length, .. } = *part;
    let samples = samples(&part.values);
    let count = samples.len().div_ceil(length.max(1));
    if source_size.max(target_size).saturating_mul(count) > LARGEST {
        return Ok(false);
    }
    let mut values = samples.into_iter().cycle();
    let mut source = vec![0; count * source_size];
    let mut by_rules = vec![0; count * target_size];
    for (element, target) in source
        .chunks_exact_mut(source_size)
        .zip(by_rules.chunks_exact_mut(target_size))
    {
        let item = &mut element[offset..offset + length];
        item.iter_mut()
            .zip(values.by_ref())
            .for_each(|(byte, value)| *byte = value);
        part.values.run(item, target);
    }
    let mut by_hdf5 = source;
    by_hdf5.resize(count * source_size.max(target_size), 0);
    let mut background = vec![0u8; by_hdf5.len()];
    let data: *mut c_void = by_hdf5.as_mut_ptr().cast();
    // SAFETY: both buffers have room for all elements in either type, and HDF5 checks the types.
    let status = unsafe {
        let background = background.as_mut_ptr().cast();
        (session.hdf5.H5Tconvert)(from, to, count, data, background, H5P_DEFAULT)
    };
    // If HDF5 refuses the conversion, the read reports that.
    Ok(status >= 0 && by_hdf5[..by_rules.len()] == by_rules)
}

/// Returns the bytes of sample elements, a whole number of numbers.
fn samples(conversion: &TypeConversion) -> Vec<u8> {
    match conversion {
        // 240 distinct bytes are a whole number of units of any size.
        TypeConversion::Copy | TypeConversion::Swap { .. } => (1..=240).collect(),
        // HDF5 does not decode.
        TypeConversion::Decode(_) => Vec::new(),
        TypeConversion::Convert { from, to } => {
            let values = match from.number.float_bits() {
                Some((exponent, mantissa)) => floats(exponent, mantissa, to.number),
                None => integers(from.number.size() as u32 * 8, to.number),
            };
            values.iter().flat_map(|v| bytes(*from, *v)).collect()
        }
    }
}

fn bytes(format: Format, value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes()[..format.size()].to_vec();
    if format.big {
        bytes.reverse();
    }
    bytes
}

/// Returns powers of two and their neighbours, and values halfway between those that the target's
/// mantissa can represent.
fn integers(bits: u32, to: Number) -> Vec<u64> {
    let mantissa = to.float_bits().map_or(bits, |(_, mantissa)| mantissa);
    let mut found = vec![0];
    for power in 0..bits {
        let one = 1u64 << power;
        found.extend([one - 1, one, one + 1]);
        if power > mantissa {
            let half = one >> (mantissa + 1);
            for odd in [half, half * 3] {
                found.extend([one + odd - 1, one + odd, one + odd + 1]);
            }
        }
    }
    let negative: Vec<u64> = found.iter().map(|value| value.wrapping_neg()).collect();
    found.extend(negative);
    found
}

/// Returns numbers with the exponents at which source or target change behaviour, each with
/// mantissas that exercise every way of rounding. Denormals come first: HDF5 1.14 converts wrongly
/// after one.
fn floats(exponent: u32, mantissa: u32, to: Number) -> Vec<u64> {
    let (bias, top) = ((1i64 << (exponent - 1)) - 1, (1i64 << exponent) - 1);
    let mut powers = vec![-2, -1, 0, 1];
    match to.float_bits() {
        Some((exponent, mantissa)) => {
            let bias = (1i64 << (exponent - 1)) - 1;
            let least = 1 - bias - i64::from(mantissa);
            powers.extend(
                (least - 2..=least + 2)
                    .chain(-bias - 1..=2 - bias)
                    .chain(bias - 1..=bias + 1),
            );
        }
        None => powers.extend([7, 8, 15, 16, 31, 32, 62, 63, 64]),
    }
    let exponents = [0, 1, 2, top - 1, top]
        .into_iter()
        .chain(powers.into_iter().map(|power| power + bias))
        .filter(|exponent| (0..=top).contains(exponent));
    let kept = to
        .float_bits()
        .map_or(mantissa, |(_, kept)| kept.min(mantissa));
    let cut = mantissa - kept;
    let full = (1u64 << mantissa) - 1;
    let mut fractions = vec![0, 1, full, full - 1, full >> 1, (full >> 1) + 1];
    if cut > 0 {
        let half = 1u64 << (cut - 1);
        let highest = full >> cut << cut;
        fractions.extend([
            half - 1,
            half,
            half + 1,
            half * 3,
            highest | half,
            (highest | half) - 1,
        ]);
    }
    exponents
        .flat_map(|e| {
            fractions
                .iter()
                .map(move |f| (e as u64) << mantissa | f & full)
        })
        .flat_map(|bits| [bits, bits | 1 << (exponent + mantissa)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results by the rule for native numbers, or by that for big-endian ones.
    fn results(from: Number, to: Number, big: bool, values: &[u64]) -> Vec<Vec<u8>> {
        let format = |number| Format { number, big };
        let conversion = TypeConversion::Convert {
            from: format(from),
            to: format(to),
        };
        let one = |value: &u64| {
            let mut result = vec![0; to.size()];
            conversion.run(&bytes(format(from), *value), &mut result);
            if big {
                result.reverse();
            }
            result
        };
        values.iter().map(one).collect()
    }

    fn differs(from: Number, to: Number, values: &[u64]) -> bool {
        results(from, to, false, values) != results(from, to, true, values)
    }

    #[test]
    fn samples_detect_a_build_without_a_16_bit_float() {
        let all: Vec<u64> = (0..=0xffff).collect();
        let mut differing = 0;
        for to in Number::ALL.into_iter().filter(|to| *to != Number::F16) {
            if differs(Number::F16, to, &all) {
                let samples = floats(5, 10, to);
                assert!(differs(Number::F16, to, &samples), "{to:?}");
                differing += 1;
            }
        }
        assert_eq!(differing, 9);
        for from in [Number::F32, Number::F64] {
            let (exponent, mantissa) = from.float_bits().unwrap();
            let samples = floats(exponent, mantissa, Number::F16);
            assert!(differs(from, Number::F16, &samples), "{from:?}");
        }
        for from in [
            Number::U16,
            Number::U32,
            Number::I32,
            Number::U64,
            Number::I64,
        ] {
            let samples = integers(from.size() as u32 * 8, Number::F16);
            assert!(differs(from, Number::F16, &samples), "{from:?}");
        }
    }
}
