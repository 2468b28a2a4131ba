//! Index of pending operations by the boxes of elements that they access, so that a search for
//! conflicts does not visit all of them.
//!
//! Boxes whose sides have the same lengths, rounded up to powers of two, form a class. A class is a grid
//! of cells of these rounded sides, and a box belongs to the cell of its first element. So the boxes of a
//! class that overlap a given box lie in the cells that it covers and in those just before. Thousands of
//! transfers of equal parts are one class, and few of them are near each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::access::{AccessSet, Region};

/// The numbers of operations, by the objects and boxes that they access.
#[derive(Debug, Default)]
pub(in crate::transfer) struct Index {
    /// Operations that access objects, by token.
    objects: BTreeMap<[u8; 16], OfObject>,
    /// Operations that access whole files, or any file.
    files: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct OfObject {
    all: BTreeSet<u64>,
    /// Operations that may access any element.
    whole: BTreeSet<u64>,
    /// Operations that access a box, by class.
    classes: BTreeMap<Class, BTreeMap<Cell, BTreeSet<u64>>>,
}

/// Binary logarithms of the sides of a cell.
type Class = Vec<u32>;
/// Coordinates of a cell, in cells.
type Cell = Vec<u64>;

impl Index {
    pub(in crate::transfer) const fn new() -> Index {
        Index {
            objects: BTreeMap::new(),
            files: BTreeSet::new(),
        }
    }

    pub(in crate::transfer) fn add(&mut self, number: u64, sets: &[AccessSet]) {
        for set in sets {
            let Some(object) = set.object() else {
                self.files.insert(number);
                continue;
            };
            let object = self.objects.entry(object.token).or_default();
            object.all.insert(number);
            match set.region() {
                Some(Region::Box(ranges)) => {
                    let (class, cell) = place(ranges);
                    let cells = object.classes.entry(class).or_default();
                    cells.entry(cell).or_default().insert(number);
                }
                _ => {
                    object.whole.insert(number);
                }
            }
        }
    }

    pub(in crate::transfer) fn remove(&mut self, number: u64, sets: &[AccessSet]) {
        self.files.remove(&number);
        for set in sets {
            let Some(token) = set.object().map(|object| object.token) else {
                continue;
            };
            let Some(object) = self.objects.get_mut(&token) else {
                continue;
            };
            object.all.remove(&number);
            object.whole.remove(&number);
            if let Some(Region::Box(ranges)) = set.region() {
                object.remove_box(number, ranges);
            }
            if object.all.is_empty() {
                self.objects.remove(&token);
            }
        }
    }

    /// Returns, in the order of submission, numbers of operations that include all which conflict with an
    /// access set of an object; `None` if any operation may conflict.
    pub(in crate::transfer) fn near(&self, set: &AccessSet) -> Option<BTreeSet<u64>> {
        let token = set.object()?.token;
        let mut found = self.files.clone();
        if let Some(object) = self.objects.get(&token) {
            match set.region() {
                Some(Region::Box(ranges)) => object.near(ranges, &mut found),
                _ => found.extend(&object.all),
            }
        }
        Some(found)
    }
}

impl OfObject {
    fn remove_box(&mut self, number: u64, ranges: &[Range<u64>]) {
        let (class, cell) = place(ranges);
        let Some(cells) = self.classes.get_mut(&class) else {
            return;
        };
        if let Some(numbers) = cells.get_mut(&cell) {
            numbers.remove(&number);
            if numbers.is_empty() {
                cells.remove(&cell);
            }
        }
        if cells.is_empty() {
            self.classes.remove(&class);
        }
    }

    fn near(&self, ranges: &[Range<u64>], found: &mut BTreeSet<u64>) {
        found.extend(&self.whole);
        for (class, cells) in &self.classes {
            let around = around(class, ranges);
            let count = |all: u64, side: &Range<u64>| all.saturating_mul(side.end - side.start);
            let is_few =
                class.len() == ranges.len() && around.iter().fold(1, count) <= cells.len() as u64;
            if is_few {
                for_each_cell(&around, |cell| {
                    found.extend(cells.get(cell).into_iter().flatten())
                });
            } else {
                found.extend(cells.values().flatten());
            }
        }
    }
}

fn place(ranges: &[Range<u64>]) -> (Class, Cell) {
    let log = |range: &Range<u64>| {
        let length = range.end.saturating_sub(range.start);
        u64::BITS - length.saturating_sub(1).leading_zeros()
    };
    let class: Class = ranges.iter().map(log).collect();
    let starts = ranges.iter().map(|range| range.start).zip(&class);
    let cell = starts.map(|(start, log)| cell_of(start, *log)).collect();
    (class, cell)
}

fn cell_of(index: u64, log: u32) -> u64 {
    index.checked_shr(log).unwrap_or(0)
}

/// Returns, along each dimension, the cells that may have boxes which overlap a box.
fn around(class: &[u32], ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let cells = |(log, range): (&u32, &Range<u64>)| {
        let last = range.end.saturating_sub(1).max(range.start);
        cell_of(range.start, *log).saturating_sub(1)..cell_of(last, *log).saturating_add(1)
    };
    class.iter().zip(ranges).map(cells).collect()
}

fn for_each_cell(around: &[Range<u64>], mut act: impl FnMut(&Cell)) {
    let mut cell: Cell = around.iter().map(|side| side.start).collect();
    loop {
        act(&cell);
        let mut sides = cell.iter_mut().zip(around).rev();
        let next = sides.find_map(|(at, side)| {
            *at += 1;
            if *at < side.end {
                return Some(());
            }
            *at = side.start;
            None
        });
        if next.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::access::{Access, FileKey, ObjectKey};
    use super::*;

    fn set(token: u8, region: Region) -> AccessSet {
        let file = FileKey {
            number: Some(7),
            identity: None,
        };
        AccessSet::Elements {
            dataset: ObjectKey {
                file,
                token: [token; 16],
            },
            region,
            access: Access::Write,
        }
    }

    fn rectangle(rows: Range<u64>, columns: Range<u64>) -> AccessSet {
        set(1, Region::Box(vec![rows, columns]))
    }

    /// Returns the largest number of operations that are near one of the boxes.
    fn most_near(boxes: &[AccessSet]) -> usize {
        let mut index = Index::new();
        for (number, of) in boxes.iter().enumerate() {
            index.add(number as u64, std::slice::from_ref(of));
        }
        let near = boxes.iter().map(|of| index.near(of).unwrap().len());
        near.max().unwrap()
    }

    #[test]
    fn a_transfer_of_one_of_thousands_of_equal_parts_is_near_its_neighbours_only() {
        let rows: Vec<_> = (0..4000).map(|n| rectangle(n..n + 1, 0..4096)).collect();
        assert_eq!(most_near(&rows), 2);
        let columns: Vec<_> = (0..4000).map(|n| rectangle(0..100, n..n + 1)).collect();
        assert_eq!(most_near(&columns), 2);
        let tile = |n: u64| (n / 64 * 48, n % 64 * 48);
        let tiles = (0..4096)
            .map(tile)
            .map(|(i, j)| rectangle(i..i + 48, j..j + 48));
        assert!(most_near(&tiles.collect::<Vec<_>>()) <= 16);
    }

    #[test]
    fn a_removed_operation_is_not_found() {
        let sets = [
            rectangle(0..3, 5..9),
            rectangle(100..300, 5..9),
            set(1, Region::Everything),
            set(2, Region::Box(vec![])),
        ];
        let mut index = Index::new();
        index.add(0, &sets);
        let all = set(1, Region::Everything);
        assert_eq!(index.near(&all), Some([0].into()));
        index.remove(0, &sets);
        assert!(index.objects.is_empty() && index.files.is_empty());
    }

    fn region() -> impl Strategy<Value = Region> {
        let edge = prop_oneof![0..40u64, 0..100_000u64, any::<u64>()];
        let length = prop_oneof![0..5u64, 0..2000u64, any::<u64>()];
        let range = (edge, length).prop_map(|(start, length)| start..start.saturating_add(length));
        let boxed = prop::collection::vec(range, 0..4).prop_map(Region::Box);
        prop_oneof![9 => boxed, 1 => Just(Region::Everything)]
    }

    proptest! {
        #[test]
        fn all_that_conflict_are_found(
            regions in prop::collection::vec((1..3u8, region()), 1..40),
            (token, asked) in (1..3u8, region()),
        ) {
            let sets: Vec<_> = regions.into_iter().map(|(token, region)| set(token, region)).collect();
            let mut index = Index::new();
            for (number, of) in sets.iter().enumerate() {
                index.add(number as u64, std::slice::from_ref(of));
            }
            let asked = set(token, asked);
            let near = index.near(&asked).unwrap();
            for (number, of) in sets.iter().enumerate() {
                prop_assert!(!of.conflicts(&asked) || near.contains(&(number as u64)));
            }
        }
    }
}
