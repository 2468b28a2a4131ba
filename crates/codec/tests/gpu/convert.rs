//! The kernel converts to the same bits as the CPU, for every pair of formats.

use penstock_codec::convert::{
    Arithmetic, Decode, DecodeRules, Format, Number, Sign, TypeConversion,
};
use penstock_codec::gpu::{PlaceAxis, PlaceTable, Shuffles, Side};

use crate::device::{Buffer, Gpu, gpu, noise};
use crate::repetitions::or_more;

/// All numbers of one or two bytes. Of wider ones, those around every power of two and every limit,
/// and noise.
fn numbers(number: Number) -> Vec<u8> {
    let size = number.size();
    if size <= 2 {
        let all = 0..1u32 << (8 * size);
        return all.flat_map(|n| n.to_le_bytes()[..size].to_vec()).collect();
    }
    let mut values = Vec::new();
    for shift in 0..8 * size {
        let power = 1u64 << shift;
        for near in [power.wrapping_sub(1), power, power + 1, power | power >> 1] {
            values.extend([near, !near, near.wrapping_neg()]);
        }
    }
    // As floats: each exponent, with a mantissa that is at, below and above a tie for each of the
    // narrower formats, and the limits of the integers.
    let (mantissa, exponents) = if size == 4 { (23, 256) } else { (52, 2048) };
    let sign = 1u64 << (8 * size - 1);
    for exponent in 0..exponents {
        for kept in [2, 3, 7, 10, 23] {
            let tie = (1u64 << mantissa >> 1 >> kept).max(1);
            for fraction in [0, 1, tie - 1, tie, tie + 1, 3 * tie, (1 << mantissa) - tie] {
                let bits = exponent << mantissa | fraction & ((1 << mantissa) - 1);
                values.extend([bits, bits | sign]);
            }
        }
    }
    for limit in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = 2f64.powi(limit);
        for near in [limit - 1.0, limit - 0.5, limit, limit + 0.5, limit + 1.0] {
            for value in [near, -near] {
                let narrow = u64::from((value as f32).to_bits());
                values.push(if size == 4 { narrow } else { value.to_bits() });
            }
        }
    }
    let bytes = values.iter().flat_map(|n| n.to_le_bytes()[..size].to_vec());
    bytes.chain(noise(1024 * size, size as u64)).collect()
}

#[test]
fn numbers_are_converted_to_the_same_bits_as_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for from in Number::ALL {
        let all = numbers(from);
        // Bytes are swapped before and after the same conversion, which a few numbers show.
        let few: Vec<u8> = all
            .chunks(from.size())
            .step_by(or_more(61, 1))
            .flatten()
            .copied()
            .collect();
        let [all, few] = [all, few].map(|source| (gpu.buffer(&source, 0), source));
        let orders = [
            (false, false, &all),
            (true, false, &few),
            (false, true, &few),
            (true, true, &few),
        ];
        for (to, (from_big, to_big, (uploaded, source))) in
            Number::ALL.iter().flat_map(|to| orders.map(|o| (*to, o)))
        {
            let from = Format {
                number: from,
                big: from_big,
            };
            let to = Format {
                number: to,
                big: to_big,
            };
            // Pairs that need no conversion, or only a swap, are skipped.
            let conversion = TypeConversion::Convert { from, to };
            if TypeConversion::between(from, to) != conversion {
                continue;
            }
            check(gpu, conversion, (from.size(), to.size()), source, uploaded);
        }
    }
}

#[test]
fn packed_numbers_are_decoded_to_the_same_bits_as_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let kinds = Number::ALL.into_iter();
    for number in kinds.filter(|kind| kind.is_integer() || kind.size() >= 4) {
        let source = numbers(number);
        let uploaded = gpu.buffer(&source, 0);
        let fills: [&[f64]; 3] = [&[], &[-1.0], &[1.0, 2.0, 65535.0, 0.0]];
        for (to, arithmetic) in [Number::F32, Number::F64].into_iter().flat_map(|to| {
            [Arithmetic::None, Arithmetic::Narrow, Arithmetic::Wide].map(|how| (to, how))
        }) {
            for (fills, big) in fills.into_iter().zip([false, true, false]) {
                let from = Format { number, big };
                let factors = (0.1, -273.15);
                let rules = DecodeRules::new(Sign::Stored, arithmetic, factors, fills);
                let decode = Decode::new(from, to, rules.unwrap()).unwrap();
                let conversion = TypeConversion::Decode(decode);
                check(
                    gpu,
                    conversion,
                    (from.size(), to.size()),
                    &source,
                    &uploaded,
                );
            }
        }
    }
}

/// Fails unless the kernel converts the uploaded numbers as the CPU does.
fn check(
    gpu: &Gpu,
    conversion: TypeConversion,
    (from, to): (usize, usize),
    source: &[u8],
    uploaded: &Buffer<'_>,
) {
    let count = source.len() / from;
    let target = gpu.buffer(&vec![0; count * to], 0);
    let side = |address, length| Side {
        address,
        length: length as u64,
        offset: 0,
        shuffled: 0,
    };
    let all = PlaceAxis {
        count: count as u64,
        source_stride: from as i64,
        target_stride: to as i64,
    };
    let mut table = PlaceTable::new(conversion, from as u64, Shuffles::default()).unwrap();
    let (sources, targets) = (
        side(uploaded.address, source.len()),
        side(target.address, target.length),
    );
    table.push(sources, targets, &[all]).unwrap();
    gpu.place(&table);
    let found = target.bytes();
    let mut expected = vec![0; found.len()];
    conversion.run(source, &mut expected);
    if found == expected {
        return;
    }
    let pairs = source.chunks(from).zip(found.chunks(to));
    let wrong = pairs
        .zip(expected.chunks(to))
        .find(|((_, found), expected)| found != expected);
    panic!("{conversion:?}: {wrong:02x?}");
}
