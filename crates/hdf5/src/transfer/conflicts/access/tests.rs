//! Tests access sets by themselves, and in whole programs: in whatever order pending operations
//! make progress, the result is that of the same calls made one after the other.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::pending::{Copy, Table};
use super::*;

const FILE: FileKey = FileKey {
    number: Some(7),
    identity: Some((1, 70)),
};
const OTHER: FileKey = FileKey {
    number: Some(8),
    identity: Some((1, 80)),
};

fn dataset(number: u8) -> ObjectKey {
    ObjectKey {
        file: FILE,
        token: [number; 16],
    }
}

fn elements(number: u8, ranges: &[Range<u64>], access: Access) -> AccessSet {
    AccessSet::Elements {
        dataset: dataset(number),
        region: Region::Box(ranges.to_vec()),
        access,
    }
}

const COPY: Copy = Copy::of_address(1);

fn before<T: Clone>(table: &Table<T>, set: &AccessSet) -> Vec<T> {
    table.before(COPY, set)
}

#[test]
fn transfers_conflict_where_they_overlap_in_one_dataset_and_one_writes() {
    let write = |number, ranges: &[Range<u64>]| elements(number, ranges, Access::Write);
    let read = |number, ranges: &[Range<u64>]| elements(number, ranges, Access::Read);
    let first = write(1, &[0..4, 0..4]);
    assert!(first.conflicts(&write(1, &[3..5, 3..5])));
    assert!(first.conflicts(&read(1, &[3..5, 3..5])));
    assert!(!first.conflicts(&write(1, &[4..5, 0..4])));
    assert!(!first.conflicts(&write(2, &[0..4, 0..4])));
    assert!(!read(1, &[0..4, 0..4]).conflicts(&read(1, &[0..4, 0..4])));
    // A scalar has no dimension, and one element.
    assert!(write(1, &[]).conflicts(&write(1, &[])));
}

#[test]
fn a_read_looks_at_other_operations_only_while_one_writes() {
    let read = elements(1, &[0..4, 0..4], Access::Read);
    let write = elements(1, &[2..3, 0..1], Access::Write);
    let has_before = |table: &Table<u8>, set: &AccessSet| table.has_before(COPY, set, |_| true);
    let mut table = Table::new();
    for operation in 0..3 {
        table.enter(COPY, vec![read.clone()], operation);
    }
    assert!(table.is_free_for(&read) && !table.is_free_for(&write));
    assert!(!has_before(&table, &read) && has_before(&table, &write));
    let number = table.enter(COPY, vec![read.clone(), write.clone()], 3);
    assert!(!table.is_free_for(&read) && has_before(&table, &read));
    assert!(!table.has_before(COPY, &read, |operation| *operation < 3));
    table.leave(number);
    assert!(table.is_free_for(&read));
    table.enter(COPY, vec![write], 4);
    table.prune(|operation| *operation == 4);
    assert!(table.is_free_for(&read));
}

#[test]
fn a_call_checks_few_of_thousands_of_pending_operations() {
    use std::cell::Cell;

    let mut table = Table::new();
    for row in 0..4000 {
        table.enter(
            COPY,
            vec![elements(1, &[row..row + 1, 0..4], Access::Write)],
            row,
        );
    }
    let checks = Cell::new(0);
    let is_over = |limit: u64| {
        let checks = &checks;
        move |row: &u64| {
            checks.set(checks.get() + 1);
            *row < limit
        }
    };
    assert_eq!(table.prune_quickly(is_over(0)), [0; 0]);
    assert_eq!(checks.take(), 1);
    assert_eq!(table.prune_quickly(is_over(10)).len(), 10);
    assert_eq!(checks.take(), 11);
    assert_eq!(table.prune_quickly(is_over(4000)).len(), 3990);
    assert_eq!(table.len(), 0);
}

#[test]
fn whole_objects_and_files_conflict_with_the_elements_in_them() {
    let write = elements(1, &[0..1, 0..1], Access::Write);
    let everything = AccessSet::Elements {
        dataset: dataset(1),
        region: Region::Everything,
        access: Access::Read,
    };
    let other_file = AccessSet::File(OTHER);
    assert!(write.conflicts(&everything));
    assert!(write.conflicts(&AccessSet::Object(dataset(1))));
    assert!(!write.conflicts(&AccessSet::Object(dataset(2))));
    assert!(write.conflicts(&AccessSet::File(FILE)));
    assert!(!write.conflicts(&other_file));
    assert!(
        write.conflicts(&AccessSet::All(Access::Write))
            && AccessSet::All(Access::Read).conflicts(&other_file)
    );
}

#[test]
fn a_file_is_the_same_by_its_number_or_by_its_identity() {
    let opened_anew = FileKey {
        number: Some(9),
        ..FILE
    };
    let without_descriptor = FileKey {
        identity: None,
        ..FILE
    };
    assert!(FILE.is_same(&opened_anew) && FILE.is_same(&without_descriptor));
    assert!(!FILE.is_same(&OTHER));
    assert!(!FileKey::default().is_same(&FileKey::default()));
}

#[test]
fn reads_of_a_file_conflict_with_what_is_written_anywhere_in_it() {
    let sources = AccessSet::Sources(vec![OTHER, FILE]);
    let write = elements(1, &[0..1, 0..1], Access::Write);
    assert!(sources.conflicts(&write) && write.conflicts(&sources));
    assert!(sources.conflicts(&AccessSet::File(FILE)));
    assert!(!sources.conflicts(&elements(1, &[0..1, 0..1], Access::Read)));
    assert!(!sources.conflicts(&AccessSet::All(Access::Read)));
    assert!(!AccessSet::Sources(vec![OTHER]).conflicts(&write));
}

#[test]
fn operations_of_another_copy_of_hdf5_are_not_waited_for() {
    let mut pending = Table::new();
    pending.enter(Copy::of_address(2), vec![AccessSet::File(FILE)], 0);
    assert_eq!(before(&pending, &AccessSet::File(FILE)), [0; 0]);
    assert!(pending.of_copy(Copy::of_address(2)).eq(&[0]));
}

#[test]
fn a_region_of_whole_chunks_holds_the_chunks_that_it_touches() {
    let region = Region::Box(vec![3..5, 8..9]).of_chunks(&[4, 4]);
    assert_eq!(region, Region::Box(vec![0..8, 8..12]));
    let row = |start| Region::Box(vec![start..u64::MAX, 0..1]);
    let last = row(u64::MAX - 1).of_chunks(&[1 << 40, 1]);
    assert!(last.overlaps(&row(u64::MAX - 1)));
}

#[test]
fn an_access_set_of_blocks_in_another_number_of_dimensions_is_of_every_element() {
    let write = elements(1, &[3..5, 8..9], Access::Write);
    let of_blocks = write.clone().of_blocks(&[1, 10]);
    assert!(of_blocks.conflicts(&elements(1, &[3..4, 0..1], Access::Write)));
    assert!(!of_blocks.conflicts(&elements(1, &[5..6, 0..1], Access::Write)));
    let far = elements(1, &[90..91, 90..91], Access::Write);
    assert!(write.of_blocks(&[1000]).conflicts(&far));
}

#[test]
fn those_before_come_in_the_order_of_their_submission_and_leave_by_their_number() {
    let mut pending = Table::new();
    let numbers: Vec<u64> = (0..4)
        .map(|i| pending.enter(COPY, vec![AccessSet::Object(dataset(i % 2))], i))
        .collect();
    assert_eq!(before(&pending, &AccessSet::Object(dataset(1))), [1, 3]);
    pending.leave(numbers[1]);
    pending.leave(numbers[1]);
    assert_eq!(before(&pending, &AccessSet::File(FILE)), [0, 2, 3]);
    assert!(pending.of_copy(COPY).eq(&[0, 2, 3]));
}

/// One call of a program on one-dimensional datasets.
#[derive(Clone, Debug)]
enum Call {
    Write {
        dataset: u8,
        range: Range<u64>,
    },
    Read {
        dataset: u8,
        range: Range<u64>,
    },
    /// Waits for everything, as a flush or a close does.
    Drain,
}

const LENGTH: u64 = 12;

fn call() -> impl Strategy<Value = Call> {
    let range = (0..LENGTH, 1..=LENGTH).prop_map(|(start, length)| {
        let end = (start + length).min(LENGTH);
        start..end
    });
    prop_oneof![
        5 => (0..2u8, range.clone()).prop_map(|(dataset, range)| Call::Write { dataset, range }),
        4 => (0..2u8, range).prop_map(|(dataset, range)| Call::Read { dataset, range }),
        1 => Just(Call::Drain),
    ]
}

fn access_set(call: &Call) -> AccessSet {
    match call {
        Call::Write { dataset, range } => {
            elements(*dataset, std::slice::from_ref(range), Access::Write)
        }
        Call::Read { dataset, range } => {
            elements(*dataset, std::slice::from_ref(range), Access::Read)
        }
        Call::Drain => AccessSet::File(FILE),
    }
}

/// The contents of the file, and what each read has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct World {
    file: HashMap<(u8, u64), usize>,
    found: HashMap<(usize, u64), usize>,
}

impl World {
    /// Moves one element of the call numbered `number`.
    fn step(&mut self, number: usize, call: &Call, at: u64) {
        match call {
            Call::Write { dataset, .. } => {
                self.file.insert((*dataset, at), number + 1);
            }
            Call::Read { dataset, .. } => {
                let value = self.file.get(&(*dataset, at)).copied().unwrap_or(0);
                self.found.insert((number, at), value);
            }
            Call::Drain => {}
        }
    }
}

fn elements_of(call: &Call) -> Range<u64> {
    match call {
        Call::Write { range, .. } | Call::Read { range, .. } => range.clone(),
        Call::Drain => 0..0,
    }
}

fn one_after_the_other(calls: &[Call]) -> World {
    let mut world = World::default();
    for (number, call) in calls.iter().enumerate() {
        for at in elements_of(call) {
            world.step(number, call, at);
        }
    }
    world
}

/// Runs the calls as the connector does: each begins when those that it must follow have finished,
/// and all that have begun make progress element by element, as `choices` decides.
fn in_the_background(calls: &[Call], choices: &[usize]) -> World {
    let mut world = World::default();
    let mut pending: Table<usize> = Table::new();
    // The remaining elements of each call that has begun, with its number among the pending ones.
    let mut left: HashMap<usize, (u64, Vec<u64>)> = HashMap::new();
    let mut choices = choices.iter().cycle();
    let mut choose = |among: usize| *choices.next().unwrap_or(&0) % among.max(1);
    for (number, call) in calls.iter().enumerate() {
        // Some of the running calls make some progress.
        for _ in 0..choose(6) {
            let mut running: Vec<usize> = left.keys().copied().collect();
            running.sort_unstable();
            if running.is_empty() {
                break;
            }
            let one = running[choose(running.len())];
            if let Some((entry, elements)) = left.get_mut(&one) {
                let at = elements.swap_remove(choose(elements.len()));
                world.step(one, &calls[one], at);
                if elements.is_empty() {
                    pending.leave(*entry);
                    left.remove(&one);
                }
            }
        }
        for before in before(&pending, &access_set(call)) {
            if let Some((entry, elements)) = left.remove(&before) {
                for at in elements {
                    world.step(before, &calls[before], at);
                }
                pending.leave(entry);
            }
        }
        let elements: Vec<u64> = elements_of(call).collect();
        if !elements.is_empty() {
            left.insert(
                number,
                (
                    pending.enter(COPY, vec![access_set(call)], number),
                    elements,
                ),
            );
        }
    }
    for (number, (_, elements)) in left {
        for at in elements {
            world.step(number, &calls[number], at);
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_interleaving_gives_what_the_serial_program_gives(
        calls in prop::collection::vec(call(), 1..12),
        choices in prop::collection::vec(0usize..97, 1..64),
    ) {
        prop_assert_eq!(in_the_background(&calls, &choices), one_after_the_other(&calls));
    }
}
