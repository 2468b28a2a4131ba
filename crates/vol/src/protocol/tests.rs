//! The properties of [`plan`], for all of its arguments.

use super::After::{Always, IfAllocated, IfShrunk, Never, UnlessContinues};
use super::Elements::{Fixed, Hdf5s, Short, Unallocated};
use super::*;
use Operation::{Read, Write};

fn calls() -> Vec<Call> {
    let mut calls = vec![Call::Copy, Call::Delete, Call::Open];
    calls.extend([false, true].map(|fills| Call::Allocate { fills }));
    for elements in [Fixed, Short, Unallocated, Hdf5s] {
        calls.push(Call::Independent(elements));
        calls.extend([Read, Write].map(|operation| Call::Collective(operation, elements)));
    }
    calls
}

fn files() -> impl Iterator<Item = FileState> {
    (0..1 << 6).map(|bits: u8| {
        let is_set = |bit: u8| bits >> bit & 1 == 1;
        FileState {
            can_meet: is_set(0),
            is_writable: is_set(1),
            is_sieved: is_set(2),
            has_gaps: is_set(3),
            may_free: is_set(4),
            is_unfinished: is_set(5),
        }
    })
}

/// Calls `check` with each call, each state of a file, and the plan.
fn for_all(check: impl Fn(Call, FileState, Plan) -> bool) {
    for call in calls() {
        for file in files() {
            let plan = plan(call, file);
            assert!(check(call, file, plan), "{call:?} {file:?} {plan:?}");
        }
    }
}

#[test]
fn the_plan_knows_nothing_of_one_process() {
    let source = include_str!("../protocol.rs");
    let uses: Vec<&str> = source
        .lines()
        .filter(|line| line.starts_with("use "))
        .collect();
    assert_eq!(uses, ["use penstock_engine::file::position::Operation;"]);
    let code = source.lines().filter(|line| !line.trim().starts_with("//"));
    assert!(
        !code
            .into_iter()
            .any(|line| line.contains("crate::") || line.contains("super::"))
    );
}

fn is_collective_transfer(call: Call) -> bool {
    matches!(call, Call::Collective(..))
}

/// Whether processes write elements and may wait for each other.
fn is_written(file: FileState) -> bool {
    file.can_meet && file.is_writable
}

/// Whether HDF5 writes pieces between which MPI-IO may write, too, or reads elements for a copy.
fn writes_pieces(call: Call, file: FileState, plan: Plan) -> bool {
    match call {
        Call::Collective(Write, _) => plan.by == By::Hdf5 && file.is_sieved,
        Call::Allocate { fills } => fills && file.is_sieved,
        Call::Copy => true,
        Call::Collective(Read, _) | Call::Independent(_) | Call::Delete | Call::Open => false,
    }
}

#[test]
fn no_process_waits_where_hdf5_may_wait_for_its_next_call() {
    for_all(|_, file, plan| file.can_meet || !plan.meets_before && plan.after == Never);
}

#[test]
fn no_process_waits_in_a_call_that_others_need_not_make() {
    for_all(|call, _, plan| match call {
        Call::Independent(_) => !plan.meets_before && plan.after == Never,
        Call::Open => !plan.meets_before && matches!(plan.after, Never | IfAllocated),
        _ => true,
    });
}

#[test]
fn in_files_that_are_only_read_only_collective_transfers_meet() {
    for_all(|call, file, plan| {
        let meets_once = plan.meets_before == (is_collective_transfer(call) && file.can_meet);
        file.is_writable || meets_once && plan.after == Never
    });
}

#[test]
fn a_collective_transfer_has_one_agreement() {
    for_all(|call, file, plan| {
        let agrees = plan.meets_before || plan.after == UnlessContinues;
        !is_collective_transfer(call) || agrees == file.can_meet
    });
    for_all(|call, _, plan| is_collective_transfer(call) || plan.after != UnlessContinues);
}

#[test]
fn a_collective_transfer_that_continues_nowhere_is_complete_for_all() {
    for_all(|call, file, plan| {
        let is_complete = matches!(plan.after, UnlessContinues | Always);
        !is_collective_transfer(call) || !is_written(file) || is_complete
    });
}

#[test]
fn a_collective_transfer_of_an_unfinished_file_finishes_and_agrees_first() {
    for_all(|call, file, plan| {
        let is_concerned = is_collective_transfer(call) && is_written(file) && file.is_unfinished;
        !is_concerned || plan.meets_before && plan.finishes != Finish::Nothing
    });
}

#[test]
fn a_collective_transfer_of_hdf5_follows_the_agreement_and_what_conflicts() {
    for_all(|call, file, plan| {
        let is_hdf5s = is_collective_transfer(call) && plan.by == By::Hdf5;
        let finishes = plan.finishes != Finish::Nothing;
        !is_hdf5s || finishes && plan.meets_before == file.can_meet
    });
}

#[test]
fn nothing_is_in_progress_while_hdf5_writes_pieces() {
    for_all(|call, file, plan| {
        let is_alone = plan.finishes == Finish::File && plan.meets_before && plan.after == Always;
        let is_concerned = is_written(file) && writes_pieces(call, file, plan);
        !is_concerned || is_alone
    });
    // In an open, the processes meet in HDF5.
    for_all(|call, file, plan| {
        let is_concerned = is_written(file) && file.is_sieved && (file.has_gaps || file.may_free);
        let is_alone = plan.finishes == Finish::File && plan.after == IfAllocated;
        call != Call::Open || is_alone == is_concerned
    });
}

#[test]
fn storage_is_allocated_when_no_process_transfers_what_was_there() {
    for_all(|call, file, plan| {
        let allocates = match call {
            Call::Allocate { .. } => file.may_free,
            Call::Copy | Call::Collective(Write, Unallocated) => true,
            _ => false,
        };
        !is_written(file) || !allocates || plan.meets_before
    });
    for_all(|call, file, plan| match call {
        Call::Delete => plan.finishes == Finish::File && plan.meets_before == is_written(file),
        // The chunks of an extent that shrinks are free after the call.
        Call::Allocate { .. } if is_written(file) => matches!(plan.after, IfShrunk | Always),
        _ => true,
    });
}

#[test]
fn a_process_transfers_only_elements_with_fixed_addresses() {
    for_all(|call, file, plan| {
        let expected = match call {
            Call::Independent(Fixed | Short) => By::EachProcess,
            Call::Collective(_, Fixed) if file.can_meet || !file.is_writable => By::EachProcess,
            _ => By::Hdf5,
        };
        plan.by == expected
    });
}

#[test]
fn nothing_else_waits() {
    for_all(|call, file, plan| {
        let is_needed = match call {
            Call::Collective(_, Fixed) => file.is_unfinished || !file.is_writable,
            Call::Collective(..) | Call::Copy | Call::Delete => true,
            Call::Allocate { fills } => fills && file.is_sieved || file.may_free,
            Call::Independent(_) | Call::Open => false,
        };
        let is_needed_after = is_collective_transfer(call) || writes_pieces(call, file, plan);
        let is_late = matches!(plan.after, UnlessContinues | Always);
        (is_needed || !plan.meets_before) && (is_needed_after || !is_late)
    });
    for_all(|call, _, plan| match call {
        Call::Independent(Fixed | Short) => plan.finishes == Finish::Nothing,
        Call::Allocate { fills: false } => plan.finishes == Finish::Nothing,
        _ => true,
    });
}
