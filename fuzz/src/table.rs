//! The chunk table: whatever an index lists, each chunk has one true entry, none, or an error.

use std::collections::BTreeMap;

use penstock_array::{ChunkGrid, StoredChunk, TableBuilder};

use crate::cases::shape;
use crate::draw::Draw;

/// What HDF5 says of a chunk without storage.
const NO_ADDRESS: u64 = u64::MAX;

/// Builds a table from any entries and asks for chunks that are there, and not there.
pub fn fuzz_chunk_table(data: &[u8]) {
    let draw = &mut Draw(data);
    let shape = shape(draw);
    let chunk = match draw.byte() {
        255 => crate::cases::shape(draw),
        _ => shape.iter().map(|_| draw.number()).collect(),
    };
    let Ok(grid) = ChunkGrid::new(&shape, &chunk) else {
        return;
    };
    let file_size = draw.number();
    let mut builder = TableBuilder::new(grid.clone(), file_size);
    let mut listed: BTreeMap<u64, Vec<StoredChunk>> = BTreeMap::new();
    for _ in 0..draw.byte() {
        let stored = StoredChunk {
            address: if draw.byte() == 255 {
                NO_ADDRESS
            } else {
                draw.number()
            },
            size: draw.number(),
            mask: draw.byte().into(),
        };
        let first: Vec<u64> = match draw.byte() {
            // Of another rank, perhaps.
            255 => crate::cases::shape(draw),
            // Between the lines, perhaps.
            240.. => shape.iter().map(|_| draw.number()).collect(),
            _ => chunk
                .iter()
                .zip(grid.counts())
                .map(|(side, count)| draw.index(*count).saturating_mul(*side))
                .collect(),
        };
        let is_added = builder.add(&first, stored).is_ok();
        let fits = first.len() == shape.len();
        let coordinates: Vec<u64> = first.iter().zip(&chunk).map(|(at, c)| at / c).collect();
        let is_inside = coordinates.iter().zip(grid.counts()).all(|(at, n)| at < n);
        let is_aligned = first.iter().zip(&chunk).all(|(at, c)| at % c == 0);
        if fits && is_aligned {
            assert!(is_added, "{first:?} is refused");
        }
        if !fits || is_inside && !is_aligned && stored.address != NO_ADDRESS {
            assert!(!is_added, "{first:?} is taken");
        }
        if is_added && is_inside && stored.address != NO_ADDRESS {
            let number = grid.number(&coordinates);
            assert!(number < grid.total());
            assert_eq!(grid.coordinates(number), coordinates);
            listed.entry(number).or_default().push(stored);
        }
    }
    let table = builder.finish();
    assert_eq!(table.len(), listed.len());
    for (number, entries) in &listed {
        let found = table.find(*number);
        match entries[..] {
            [entry] if is_possible(entry, file_size) => assert_eq!(found.unwrap(), Some(entry)),
            _ => assert!(found.is_err(), "{entries:?} cannot be true"),
        }
        for number in [number.wrapping_sub(1), number + 1] {
            check_absent(&table, &listed, number);
        }
        // Whether a part of it sticks out, by its end.
        let sticks_out = (grid.coordinates(*number).iter())
            .zip(shape.iter().zip(&chunk))
            .any(|(at, (s, c))| u128::from(*at + 1) * u128::from(*c) > u128::from(*s));
        assert_eq!(grid.is_partial(*number), sticks_out);
    }
    for _ in 0..4 {
        check_absent(&table, &listed, draw.number());
    }
}

fn is_possible(stored: StoredChunk, file_size: u64) -> bool {
    let end = u128::from(stored.address) + u128::from(stored.size);
    stored.size > 0 && end <= u128::from(file_size)
}

fn check_absent(
    table: &penstock_array::ChunkTable,
    listed: &BTreeMap<u64, Vec<StoredChunk>>,
    number: u64,
) {
    if !listed.contains_key(&number) {
        assert_eq!(table.find(number).unwrap(), None, "chunk {number}");
    }
}
