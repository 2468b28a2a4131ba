//! The kernel moves boxes of elements as a loop over single elements does.

use penstock_codec::convert::{
    Arithmetic, Decode, DecodeRules, Format, Number, Sign, TypeConversion,
};
use penstock_codec::gpu::{PlaceAxis, PlaceTable, Shuffles, Side};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::device::{gpu, noise};
use crate::repetitions::cases;

/// One side of a box, before there is memory for it.
#[derive(Clone, Debug)]
struct Layout {
    length: usize,
    offset: usize,
    strides: Vec<i64>,
    shuffled: usize,
    /// The offset of the memory from the start of its allocation.
    shift: usize,
}

#[derive(Clone, Debug)]
struct Box {
    counts: Vec<u64>,
    source: Layout,
    target: Layout,
}

#[derive(Clone, Debug)]
struct Case {
    conversion: TypeConversion,
    length: usize,
    shuffles: Shuffles,
    boxes: Vec<Box>,
}

/// Elements of `size` bytes, nested in some order of the axes, forwards or backwards, with gaps.
fn nested(counts: Vec<u64>, size: usize, shuffle: Option<usize>) -> impl Strategy<Value = Layout> {
    let rank = counts.len();
    (
        Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
        any::<bool>(),
        prop::collection::vec((0usize..3, any::<bool>()), rank),
        (0usize..20, 0usize..20, 0usize..17),
    )
        .prop_map(move |(mut order, plain, gaps, (before, after, shift))| {
            if plain {
                order = (0..rank).rev().collect();
            }
            let mut strides = vec![0i64; rank];
            let (mut step, mut low) = (size, 0);
            for axis in order {
                let (gap, backwards) = gaps[axis];
                step += if plain { 0 } else { gap };
                strides[axis] = step as i64;
                if backwards && !plain {
                    strides[axis] = -strides[axis];
                    low += step * (counts[axis] as usize - 1);
                }
                step *= counts[axis] as usize;
            }
            let length = before + step + after;
            Layout {
                length,
                offset: before + low,
                strides,
                shuffled: shuffle.map_or(0, |element| length / element),
                shift: if plain { shift & !3 } else { shift },
            }
        })
}

fn a_box(
    case: (usize, usize),
    shuffles: (Option<usize>, Option<usize>),
) -> impl Strategy<Value = Box> {
    let (size, size_after) = case;
    (
        prop::collection::vec(1u64..7, 0..5),
        any::<prop::sample::Index>(),
    )
        .prop_flat_map(move |(counts, kind)| {
            let fill = shuffles.0.is_none() && kind.index(5) == 0;
            let source = nested(counts.clone(), size, shuffles.0).prop_map(move |mut layout| {
                if fill {
                    layout.strides.fill(0);
                }
                layout
            });
            let target = nested(counts.clone(), size_after, shuffles.1);
            (Just(counts), source, target)
        })
        .prop_map(|(counts, source, target)| Box {
            counts,
            source,
            target,
        })
}

fn format() -> impl Strategy<Value = Format> {
    (prop::sample::select(&Number::ALL[..]), any::<bool>())
        .prop_map(|(number, big)| Format { number, big })
}

fn conversion() -> impl Strategy<Value = TypeConversion> {
    prop_oneof![
        Just(TypeConversion::Copy),
        prop::sample::select(vec![2usize, 4, 8, 16]).prop_map(|unit| TypeConversion::Swap { unit }),
        (format(), format()).prop_map(|(from, to)| TypeConversion::between(from, to)),
        decoding(),
    ]
}

fn decoding() -> impl Strategy<Value = TypeConversion> {
    let packed = format().prop_filter("a packed number", |from| {
        from.number.is_integer() || from.size() >= 4
    });
    let to = prop::sample::select(vec![Number::F32, Number::F64]);
    let rules = DecodeRules::new(Sign::Unsigned, Arithmetic::Narrow, (0.5, 3.0), &[1.0]).unwrap();
    (packed, to)
        .prop_map(move |(from, to)| Decode::new(from, to, rules).unwrap())
        .prop_map(TypeConversion::Decode)
}

fn case() -> impl Strategy<Value = Case> {
    let element = prop::option::of(prop::sample::select(vec![
        1usize, 2, 3, 4, 7, 8, 12, 16, 24,
    ]));
    (
        conversion(),
        1usize..5,
        prop::sample::select(vec![1usize, 2, 3, 4, 8, 12, 16]),
        element.clone(),
        element,
    )
        .prop_flat_map(|(conversion, numbers, bytes, source, target)| {
            let length = match conversion {
                TypeConversion::Copy => bytes,
                TypeConversion::Swap { unit } => unit * numbers,
                TypeConversion::Convert { from, .. } => from.size() * numbers,
                TypeConversion::Decode(decode) => decode.from().size() * numbers,
            };
            let sizes = (length, conversion.size_after(length));
            let boxes = prop::collection::vec(a_box(sizes, (source, target)), 1..5);
            (Just((conversion, length, source, target)), boxes)
        })
        .prop_map(|((conversion, length, source, target), boxes)| Case {
            conversion,
            length,
            shuffles: Shuffles {
                source: source.unwrap_or(0) as u32,
                target: target.unwrap_or(0) as u32,
            },
            boxes,
        })
}

/// The unshuffled bytes of a chunk.
fn unshuffled(layout: &Layout, element: u32, bytes: &[u8]) -> Vec<u8> {
    let (n, element) = (layout.shuffled, element as usize);
    let mut plain = bytes.to_vec();
    for at in 0..n * element {
        plain[at] = bytes[at % element * n + at / element];
    }
    plain
}

fn shuffled(layout: &Layout, element: u32, plain: &[u8]) -> Vec<u8> {
    let (n, element) = (layout.shuffled, element as usize);
    let mut bytes = plain.to_vec();
    for at in 0..n * element {
        bytes[at % element * n + at / element] = plain[at];
    }
    bytes
}

fn expected(case: &Case, boxed: &Box, source: &[u8], target: &[u8]) -> Vec<u8> {
    let source = unshuffled(&boxed.source, case.shuffles.source, source);
    let mut target = unshuffled(&boxed.target, case.shuffles.target, target);
    let after = case.conversion.size_after(case.length);
    let elements: u64 = boxed.counts.iter().product();
    for element in 0..elements {
        let (mut from, mut to) = (boxed.source.offset as i64, boxed.target.offset as i64);
        let mut rest = element;
        for (axis, count) in boxed.counts.iter().enumerate().rev() {
            let at = (rest % count) as i64;
            from += at * boxed.source.strides[axis];
            to += at * boxed.target.strides[axis];
            rest /= count;
        }
        let (from, to) = (from as usize, to as usize);
        case.conversion
            .run(&source[from..][..case.length], &mut target[to..][..after]);
    }
    shuffled(&boxed.target, case.shuffles.target, &target)
}

fn side(layout: &Layout, address: u64) -> Side {
    Side {
        address,
        length: layout.length as u64,
        offset: layout.offset as u64,
        shuffled: layout.shuffled as u64,
    }
}

fn axes(boxed: &Box) -> Vec<PlaceAxis> {
    let strides = boxed.source.strides.iter().zip(&boxed.target.strides);
    let axes = boxed.counts.iter().zip(strides);
    axes.map(|(&count, (&source_stride, &target_stride))| PlaceAxis {
        count,
        source_stride,
        target_stride,
    })
    .collect()
}

#[test]
fn boxes_of_elements_are_moved_as_by_a_loop_over_them() {
    let Some(gpu) = gpu() else { return };
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases(300))
    });
    let outcome = runner.run(&case(), |case| {
        let mut table =
            PlaceTable::new(case.conversion, case.length as u64, case.shuffles).unwrap();
        let mut sides = Vec::new();
        for (number, boxed) in case.boxes.iter().enumerate() {
            let from = noise(boxed.source.length, 2 * number as u64 + 1);
            let to = noise(boxed.target.length, 2 * number as u64 + 2);
            let source = gpu.buffer(&from, boxed.source.shift);
            let target = gpu.buffer(&to, boxed.target.shift);
            let sources = side(&boxed.source, source.address);
            table
                .push(sources, side(&boxed.target, target.address), &axes(boxed))
                .unwrap();
            sides.push((source, target, expected(&case, boxed, &from, &to)));
        }
        gpu.place(&table);
        for (_, target, expected) in &sides {
            prop_assert_eq!(&target.bytes(), expected);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn one_launch_moves_a_large_box_and_thousands_of_small_ones() {
    let Some(gpu) = gpu() else { return };
    const LARGE: usize = 1 << 20;
    const SMALL: usize = 5000;
    let bytes = noise(LARGE + 7 * SMALL, 3);
    let source = gpu.buffer(&bytes, 0);
    let target = gpu.buffer(&vec![0; bytes.len()], 0);
    let all = |address| Side {
        address,
        length: bytes.len() as u64,
        offset: 0,
        shuffled: 0,
    };
    let at = |side: Side, offset: usize| Side {
        offset: offset as u64,
        ..side
    };
    let mut expected = vec![0; bytes.len()];
    let mut table = PlaceTable::new(TypeConversion::Copy, 1, Shuffles::default()).unwrap();
    let run = |count| PlaceAxis {
        count,
        source_stride: 1,
        target_stride: 1,
    };
    for index in 0..SMALL {
        // A large box between small ones.
        if index == SMALL / 2 {
            let (from, to) = (all(source.address), at(all(target.address), 7 * SMALL));
            table.push(from, to, &[run(LARGE as u64)]).unwrap();
            expected[7 * SMALL..][..LARGE].copy_from_slice(&bytes[..LARGE]);
        }
        let count = index % 5 + 1;
        let (from, to) = (LARGE + 3 * index, 7 * (SMALL - 1 - index));
        let from_side = at(all(source.address), from);
        let to_side = at(all(target.address), to);
        table
            .push(from_side, to_side, &[run(count as u64)])
            .unwrap();
        expected[to..][..count].copy_from_slice(&bytes[from..][..count]);
    }
    gpu.place(&table);
    assert!(target.bytes() == expected, "the target differs");
}

#[test]
fn a_table_without_boxes_launches_nothing() {
    let Some(gpu) = gpu() else { return };
    let mut table = PlaceTable::new(TypeConversion::Copy, 4, Shuffles::default()).unwrap();
    let none = PlaceAxis {
        count: 0,
        source_stride: 4,
        target_stride: 4,
    };
    let nowhere = Side {
        address: 0,
        length: 0,
        offset: 0,
        shuffled: 0,
    };
    table.push(nowhere, nowhere, &[none]).unwrap();
    assert!(table.is_empty());
    gpu.place(&table);
}
