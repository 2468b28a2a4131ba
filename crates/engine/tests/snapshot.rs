//! Copies of memory as it is when they are taken.

mod common;

use std::time::Duration;

use common::pending::{alone, sharing};
use common::standin::standin;
use common::stream::CallerStream;
use common::{Place, pattern};
use penstock_engine::MemoryKind;
use penstock_engine::allocate;
use penstock_engine::error::Kind;
use penstock_engine::snapshot::{Snapshot, Taken};

const LENGTH: usize = (9 << 20) + 5;

fn places() -> &'static [Place] {
    const PLACES: [Place; 4] = [Place::Host, Place::Pinned, Place::Managed, Place::Device];
    if common::has_gpu() {
        &PLACES
    } else {
        &PLACES[..1]
    }
}

/// The bytes of a copy.
fn bytes_of(snapshot: &Snapshot, from: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; length];
    // SAFETY: the copy holds these bytes.
    unsafe {
        let address = snapshot.address() + from;
        allocate::copy(bytes.as_mut_ptr() as usize, address, length as u64).unwrap();
    }
    bytes
}

fn take(memory: &common::Memory) -> Taken {
    // SAFETY: the memory has so many bytes.
    unsafe { Snapshot::take(memory.address(), 0..LENGTH as u64, None).unwrap() }
}

#[test]
fn a_snapshot_does_not_change_with_the_memory() {
    let _sharing = sharing();
    for place in places() {
        let memory = place.memory(LENGTH + 20, 3);
        let content = pattern(LENGTH, 13);
        memory.fill(&content);
        let taken = take(&memory);
        memory.fill(&pattern(LENGTH, 99));
        assert!(taken.after.is_none());
        assert!(bytes_of(&taken.snapshot, 0, LENGTH) == content, "{place:?}");
    }
}

#[test]
fn a_snapshot_of_parts_has_them_side_by_side() {
    let _sharing = sharing();
    for (size, part) in [(24, 4..12), (1024, 0..8), (7, 6..7)] {
        let elements = LENGTH / size;
        let content = pattern(elements * size, 17);
        let touched = (3 * size) as u64..content.len() as u64;
        let (from, size) = (content.as_ptr() as usize, size as u64);
        // SAFETY: the content has these elements.
        let taken = unsafe { Snapshot::take_parts(from, touched, size, part.clone()).unwrap() };
        let part = part.start as usize..part.end as usize;
        let parts = content.chunks(size as usize).map(|one| &one[part.clone()]);
        let expected: Vec<u8> = parts.skip(3).flatten().copied().collect();
        let found = bytes_of(&taken.snapshot, 3 * part.len(), expected.len());
        assert!(found == expected, "{part:?} of {size}");
    }
}

#[test]
fn gpu_memory_is_copied_into_gpu_memory_and_other_memory_into_pageable() {
    let _sharing = sharing();
    for place in places() {
        let expected = match place {
            Place::Host | Place::Pinned => MemoryKind::Host,
            Place::Managed | Place::Device => MemoryKind::Device,
        };
        let taken = take(&place.memory(LENGTH, 0));
        assert_eq!(taken.snapshot.kind(), expected, "{place:?}");
    }
}

#[test]
fn only_the_requested_bytes_are_touched() {
    let page = 4096;
    // SAFETY: a fresh mapping, whose first and last page are then closed.
    let start = unsafe {
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(std::ptr::null_mut(), 3 * page, access, flags, -1, 0);
        libc::mprotect(start, page, libc::PROT_NONE);
        libc::mprotect(start.byte_add(2 * page), page, libc::PROT_NONE);
        start as usize
    };
    let touched = page as u64..2 * page as u64;
    // SAFETY: the page in the middle is valid.
    let taken = unsafe { Snapshot::take(start, touched, None).unwrap() };
    assert_eq!(bytes_of(&taken.snapshot, page, page), vec![0; page]);
    // SAFETY: unmaps the mapping above.
    unsafe { libc::munmap(start as *mut _, 3 * page) };
}

#[test]
fn no_bytes_can_be_copied_and_a_null_pointer_is_refused() {
    // SAFETY: no byte is touched.
    unsafe {
        assert!(Snapshot::take(0, 0..0, None).is_ok());
        let refused = Snapshot::take(0, 0..1, None).err();
        assert_eq!(refused.map(|e| e.kind()), Some(Kind::Invalid));
    }
}

#[test]
fn a_copy_comes_after_the_work_of_the_stream_that_is_given_and_before_later_work() {
    if !common::has_gpu() {
        return;
    }
    let _alone = alone();
    let (memory, content) = (Place::Device.memory(LENGTH, 0), pattern(LENGTH, 5));
    let written = Place::Device.memory(LENGTH, 0);
    written.fill(&content);
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    // SAFETY: all of it lives until the stream is idle.
    let taken = unsafe {
        stream.copy(memory.address(), written.address(), LENGTH);
        let touched = 0..LENGTH as u64;
        let taken = Snapshot::take(memory.address(), touched, Some(stream.raw())).unwrap();
        stream.fill(memory.address(), 0, LENGTH);
        taken
    };
    assert!(!stream.is_idle(), "taking the copy waited for the stream");
    assert!(
        taken
            .after
            .is_some_and(|order| order.after && !order.before)
    );
    gate.open();
    stream.synchronize();
    assert!(bytes_of(&taken.snapshot, 0, LENGTH) == content);
    assert!(memory.bytes(LENGTH) == vec![0; LENGTH]);
}

#[test]
fn a_copy_dropped_while_in_progress_returns_its_memory_afterwards() {
    if !common::has_gpu() {
        return;
    }
    let _alone = alone();
    let memory = Place::Device.memory(LENGTH, 0);
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    // SAFETY: the memory lives until the stream is idle.
    let taken =
        unsafe { Snapshot::take(memory.address(), 0..LENGTH as u64, Some(stream.raw())).unwrap() };
    let dropping = std::thread::spawn(move || drop(taken));
    std::thread::sleep(common::pending::A_WHILE);
    assert!(
        !dropping.is_finished(),
        "the memory is used by a copy that is yet to be made"
    );
    gate.open();
    dropping.join().unwrap();
    stream.synchronize();
}

#[test]
fn a_copy_for_which_the_gpu_has_no_room_is_in_host_memory() {
    let Some(standin) = standin() else { return };
    let _alone = alone();
    // Larger than what other tests leave behind.
    let length = LENGTH + (4 << 20);
    let (memory, content) = (Place::Device.memory(length, 0), pattern(length, 21));
    memory.fill(&content);
    let failing = standin.fail("alloc:*");
    // SAFETY: the memory has so many bytes.
    let taken = unsafe { Snapshot::take(memory.address(), 0..length as u64, None).unwrap() };
    drop(failing);
    assert_eq!(taken.snapshot.kind(), MemoryKind::Host);
    assert!(bytes_of(&taken.snapshot, 0, length) == content);
}

#[test]
fn kept_memory_is_freed_when_an_allocation_fails() {
    let Some(standin) = standin() else { return };
    let _alone = alone();
    let length = LENGTH + (6 << 20);
    let (memory, content) = (Place::Device.memory(length, 0), pattern(length, 21));
    memory.fill(&content);
    // SAFETY: the memory has so many bytes.
    let take =
        |bytes: usize| unsafe { Snapshot::take(memory.address(), 0..bytes as u64, None).unwrap() };
    drop(take(LENGTH));
    let before = standin.alive().allocations;
    let failing = standin.fail("alloc:1");
    let taken = take(length);
    drop(failing);
    assert_eq!(taken.snapshot.kind(), MemoryKind::Device);
    assert!(
        standin.alive().allocations <= before,
        "what was kept is left"
    );
    assert!(bytes_of(&taken.snapshot, 0, length) == content);
}

#[test]
fn many_copies_in_gpu_memory_hold_no_streams() {
    let Some(standin) = standin() else { return };
    let _alone = alone();
    let memory = Place::Device.memory(4096, 0);
    memory.fill(&pattern(4096, 21));
    // SAFETY: the memory has so many bytes.
    let take = || unsafe { Snapshot::take(memory.address(), 0..4096, None).unwrap() };
    drop(take());
    let (streams, allocations) = (standin.alive().streams, standin.alive().allocations);
    let copies: Vec<Taken> = (0..500).map(|_| take()).collect();
    assert_eq!(standin.alive().streams, streams);
    assert_eq!(standin.alive().allocations, allocations + copies.len());
    for taken in &copies {
        assert!(bytes_of(&taken.snapshot, 0, 4096) == pattern(4096, 21));
    }
    drop(copies);
    assert_eq!(standin.alive().streams, streams);
    assert!(
        standin.alive().allocations <= allocations,
        "small ones are not kept"
    );
}

#[test]
fn kept_gpu_memory_is_freed_after_a_while_without_use() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let memory = Place::Device.memory(LENGTH, 0);
    let before = {
        // What earlier tests have left goes back, too.
        await_allocations(|now, last| now == last);
        standin.alive().allocations
    };
    for _ in 0..10 {
        drop(take(&memory));
        assert_eq!(standin.alive().allocations, before + 1);
        std::thread::sleep(Duration::from_millis(200));
    }
    await_allocations(|now, _| now == before);
    // The next copy takes memory again.
    drop(take(&memory));
    assert_eq!(standin.alive().allocations, before + 1);
}

/// Waits until the number of allocations satisfies `is_reached`, given that of 3 seconds before.
fn await_allocations(is_reached: impl Fn(usize, usize) -> bool) {
    let allocations = || standin().map_or(0, |standin| standin.alive().allocations);
    for _ in 0..20 {
        let last = allocations();
        std::thread::sleep(Duration::from_secs(3));
        if is_reached(allocations(), last) {
            return;
        }
    }
    panic!("{} allocations stay", allocations());
}
