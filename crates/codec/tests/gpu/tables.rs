//! What a table accepts and refuses. Needs no GPU.

use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_codec::gpu::{PlaceAxis, PlaceTable, Shuffles, Side};

const SIDE: Side = Side {
    address: 4096,
    length: 1000,
    offset: 0,
    shuffled: 0,
};

fn axis(count: u64, source_stride: i64, target_stride: i64) -> PlaceAxis {
    PlaceAxis {
        count,
        source_stride,
        target_stride,
    }
}

fn refusal(source: Side, target: Side, axes: &[PlaceAxis]) -> Option<String> {
    let conversion = TypeConversion::Convert {
        from: Format::little(Number::F64),
        to: Format::little(Number::F32),
    };
    let shuffles = Shuffles {
        source: 8,
        target: 4,
    };
    let mut table = PlaceTable::new(conversion, 8, shuffles).unwrap();
    let refused = table.push(source, target, axes).err();
    assert_eq!(table.is_empty(), refused.is_some());
    refused.map(|error| error.cause)
}

#[test]
fn a_box_that_fills_both_sides_is_accepted() {
    assert_eq!(refusal(SIDE, SIDE, &[axis(125, 8, 4)]), None);
    let last = Side {
        offset: 996,
        ..SIDE
    };
    assert_eq!(refusal(SIDE, last, &[axis(125, 8, -8)]), None);
}

#[test]
fn a_box_that_reaches_beyond_a_side_is_refused() {
    let end = |offset| Side { offset, ..SIDE };
    for (source, target, axis) in [
        (SIDE, SIDE, axis(126, 8, 4)),
        (SIDE, SIDE, axis(125, 8, 9)),
        (SIDE, SIDE, axis(2, -8, 4)),
        (end(993), SIDE, axis(1, 0, 0)),
        (SIDE, end(997), axis(1, 0, 0)),
        (SIDE, end(u64::MAX), axis(1, 0, 0)),
        (SIDE, SIDE, axis(u64::MAX, i64::MAX, 4)),
        (SIDE, SIDE, axis(u64::MAX, 0, i64::MIN)),
    ] {
        let refused = refusal(source, target, &[axis]).expect("it reaches beyond");
        assert!(refused.ends_with("of a buffer of 1000 bytes"), "{refused}");
    }
}

#[test]
fn more_pieces_than_can_be_counted_are_refused() {
    let many = axis(1 << 40, 0, 0);
    let refused = refusal(SIDE, SIDE, &[many, many]).expect("2^80 pieces");
    assert!(refused.contains("too large to count"), "{refused}");
}

#[test]
fn more_shuffled_elements_than_the_chunk_has_are_refused() {
    for shuffled in [126, u64::MAX] {
        let source = Side { shuffled, ..SIDE };
        let refused = refusal(source, SIDE, &[]).expect("125 are there");
        assert!(
            refused.contains("shuffled elements of 8 bytes"),
            "{refused}"
        );
    }
}

#[test]
fn elements_that_are_not_whole_units_are_refused() {
    let swap = TypeConversion::Swap { unit: 4 };
    for (conversion, length) in [(swap, 6), (swap, 0), (TypeConversion::Swap { unit: 3 }, 3)] {
        assert!(PlaceTable::new(conversion, length, Shuffles::default()).is_err());
    }
}

#[test]
fn boxes_with_the_same_axes_share_them() {
    let mut table = PlaceTable::new(TypeConversion::Copy, 4, Shuffles::default()).unwrap();
    let axes = [axis(5, 80, 40), axis(3, 4, 4)];
    table.push(SIDE, SIDE, &axes).unwrap();
    let one = table.size();
    table.push(SIDE, SIDE, &axes).unwrap();
    table.push(SIDE, SIDE, &axes).unwrap();
    assert_eq!(table.size() - one, 2 * 80);
    table.clear();
    assert_eq!((table.len(), table.size()), (0, 0));
}
