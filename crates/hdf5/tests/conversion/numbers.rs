//! Numbers of every format as numbers of every other.

use std::ptr;

use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_sys::hdf5::H5P_DEFAULT;

use crate::common::{Setting, lock};
use crate::types::{Type, both_orders};

/// All values of 8 and 16 bits; of wider numbers those at which something may happen.
fn values(number: Number) -> Vec<u64> {
    let bits = number.size() as u32 * 8;
    let all = u64::MAX >> (64 - bits);
    let mut found: Vec<u64> = match number {
        _ if bits <= 16 => (0..=all).collect(),
        Number::F32 => floats(8, 23),
        Number::F64 => floats(11, 52),
        _ => integers(bits),
    };
    let mut state = 1u64;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state ^ state >> 29) & all
    });
    found.extend(random.take(20_000));
    found
}

fn integers(bits: u32) -> Vec<u64> {
    let all = u64::MAX >> (64 - bits);
    let mut found = vec![0, all];
    for high in 0..bits {
        for low in 0..=high {
            let sum = 1u64 << high | 1 << low;
            let odd = sum | 1u64.checked_shl(low + 1).unwrap_or(0);
            for value in [sum, sum - 1, sum.wrapping_add(1), odd, sum - (1 << low)] {
                found.extend([value & all, value.wrapping_neg() & all]);
            }
        }
    }
    found
}

fn floats(exponent: u32, mantissa: u32) -> Vec<u64> {
    let mask = (1u64 << mantissa) - 1;
    let mut fractions = vec![0, 1, 2, mask, mask - 1, mask >> 1, (mask >> 1) + 2];
    for high in 0..mantissa {
        // Halves of a unit that is dropped, above an even and an odd one, and their neighbours.
        for value in [1 << high, 3 << high, mask ^ ((1 << high) - 1)] {
            fractions.extend([value - 1, value, value + 1].map(|v| v & mask));
        }
    }
    let top = (1u64 << exponent) - 1;
    let middle = top >> 1;
    let near = middle.saturating_sub(160)..=(middle + 160).min(top);
    // Usually each of these with every fourth fraction, and its neighbours with the others.
    let step = crate::repetitions::or_more(4, 1);
    let near = near.map(|e| (e, step));
    let exponents = near.chain([0, 1, 2, top - 1, top].map(|e| (e, 1)));
    let sign = 1 << (exponent + mantissa);
    exponents
        .flat_map(|(e, step)| {
            let some = fractions.iter().skip(e as usize % step).step_by(step);
            some.map(move |f| e << mantissa | f)
        })
        .flat_map(|bits| [bits, bits | sign])
        .collect()
}

fn bytes(format: Format, values: &[u64]) -> Vec<u8> {
    let size = format.size();
    let one = |value: &u64| {
        let mut bytes = value.to_le_bytes()[..size].to_vec();
        if format.big {
            bytes.reverse();
        }
        bytes
    };
    values.iter().flat_map(one).collect()
}

fn by_hdf5(setting: &Setting, from: Format, to: Format, source: &[u8]) -> Vec<u8> {
    let hdf5 = &setting.hdf5;
    let count = source.len() / from.size();
    let mut buffer = source.to_vec();
    buffer.resize(count * from.size().max(to.size()), 0);
    let (file, memory) = (Type::number(hdf5, from), Type::number(hdf5, to));
    let data = buffer.as_mut_ptr().cast();
    // SAFETY: the buffer has room for all elements in either type.
    let status = unsafe {
        (hdf5.H5Tconvert)(
            file.id,
            memory.id,
            count,
            data,
            ptr::null_mut(),
            H5P_DEFAULT,
        )
    };
    assert!(status >= 0);
    buffer.truncate(count * to.size());
    buffer
}

/// 1.14 rounds a float that becomes a smaller one wrongly behind a denormal in the same buffer.
fn is_wrong_in_1_14(setting: &Setting, from: Format, to: Format) -> bool {
    setting.hdf5.version().0 == 1 && !from.number.is_integer() && !to.number.is_integer()
}

fn check_sources(is_wanted: impl Fn(Number) -> bool) {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    for from in Number::ALL.into_iter().filter(|n| is_wanted(*n)) {
        let values = values(from);
        for from in both_orders(from) {
            let source = bytes(from, &values);
            for to in Number::ALL.into_iter().flat_map(both_orders) {
                check(setting, from, to, &source);
            }
        }
    }
}

fn check(setting: &Setting, from: Format, to: Format, source: &[u8]) {
    let conversion = TypeConversion::between(from, to);
    let mut ours = vec![0xa5; conversion.size_after(source.len())];
    conversion.run(source, &mut ours);
    let theirs = by_hdf5(setting, from, to, source);
    assert_eq!(ours.len(), theirs.len());
    if ours == theirs || is_wrong_in_1_14(setting, from, to) {
        return;
    }
    let each = source.chunks(from.size());
    let both = ours.chunks(to.size()).zip(theirs.chunks(to.size()));
    let wrong: Vec<_> = each.zip(both).filter(|(_, (a, b))| a != b).collect();
    panic!(
        "{from:?} to {to:?}: {} differ, such as {:02x?}",
        wrong.len(),
        &wrong[..wrong.len().min(4)]
    );
}

#[test]
fn all_numbers_of_8_and_16_bits_become_what_hdf5_makes_of_them() {
    check_sources(|number| number.size() <= 2);
}

#[test]
fn integers_of_32_and_64_bits_become_what_hdf5_makes_of_them() {
    check_sources(|number| number.size() > 2 && number.is_integer());
}

#[test]
fn floats_of_32_and_64_bits_become_what_hdf5_makes_of_them() {
    check_sources(|number| number.size() > 2 && !number.is_integer());
}
