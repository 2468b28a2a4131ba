//! Rings and transfers by themselves.

use std::os::fd::AsRawFd;

use io_uring::{opcode, types};

use super::*;
use crate::file::position::Call;
use crate::file::side::FileSide;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::report::Counters;
use crate::routes::uring::ring::IoRing;
use crate::routes::uring::transfers::{FileTransfer, Transfers};
use crate::routes::{Direct, Work};
use crate::staging::Ring;

#[test]
fn the_page_cache_replaces_refused_direct_io_unless_the_caller_requires_it() {
    if !has_uring() {
        return;
    }
    let sample = Sample::new(MIB);
    for (direct, succeeds) in [(Direct::Preferred, true), (Direct::Always, false)] {
        let gate = Refusing;
        let counters = Counters::default();
        let plan = Plan::default();
        let mut work = work(&sample, &plan, &counters);
        work.side.direct = direct;
        work.side.gate = Some(&gate);
        let mut buffer = Buffer::new(MIB, 0);
        let mut io = Transfers::new(work).unwrap();
        add_reads(&mut io, &mut buffer, 64 << 10, true);
        let outcome = finish(&mut io);
        drop(io);
        assert_eq!(outcome.is_ok(), succeeds);
        assert_eq!(buffer.inside() == sample.contents, succeeds);
    }
}

/// Refuses calls of the size of a block, as direct I/O makes them, once each.
struct Refusing;

impl crate::file::position::Gate for Refusing {
    fn before(&self, call: Call) -> std::io::Result<u64> {
        thread_local!(static REFUSED: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) });
        if REFUSED.replace(call.offset) == call.offset {
            return Ok(call.length);
        }
        Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

fn work<'a>(sample: &'a Sample, plan: &'a Plan, counters: &'a Counters) -> Work<'a> {
    static HERE: Memory = Memory::HOST;
    Work {
        side: FileSide {
            direct: Direct::Always,
            ..FileSide::new(&sample.file, Operation::Read, counters)
        },
        plan,
        memory: &HERE,
        queue_depth: 8,
        slots: 2,
        ring: Box::leak(Box::new(Ring::new(1 << 20))),
        mappings: None,
    }
}

/// Reads the sample's first bytes into a buffer, by transfers of `each` bytes.
fn add_reads(io: &mut Transfers<'_>, buffer: &mut Buffer, each: usize, direct: bool) {
    let memory = buffer.address();
    for start in (0..buffer.bytes).step_by(each) {
        let transfer = FileTransfer {
            stage: None,
            buffer: (memory + start) as *mut u8,
            offset: start as u64,
            length: each as u64,
            needed: each as u64,
            direct,
            fixed: false,
        };
        // SAFETY: each caller drops the transfers before it reads the buffer or drops it.
        unsafe { io.add(transfer) };
    }
}

fn finish(io: &mut Transfers<'_>) -> Result<u64> {
    let mut bytes = 0;
    while !io.is_empty() {
        io.wait()?;
        while let Some(done) = io.next_done() {
            bytes += done.bytes;
        }
    }
    Ok(bytes)
}

#[test]
fn dropped_transfers_touch_no_memory_afterwards() {
    if !has_uring() {
        return;
    }
    let sample = Sample::new(16 * MIB);
    let (counters, plan) = (Counters::default(), Plan::default());
    for direct in [true, false] {
        for _ in 0..8 {
            let mut buffer = Buffer::new(16 * MIB, 0);
            let mut io = Transfers::new(work(&sample, &plan, &counters)).unwrap();
            add_reads(&mut io, &mut buffer, 2 * MIB, direct);
            io.advance().unwrap();
            drop(io);
            assert!(stays_untouched(&mut buffer));
        }
    }
}

#[test]
fn a_ring_used_after_an_unfinished_lane_has_no_completions_left_over() {
    if !has_uring() {
        return;
    }
    let sample = Sample::new(4 * MIB);
    let (counters, plan) = (Counters::default(), Plan::default());
    for _ in 0..20 {
        let mut buffer = Buffer::new(4 * MIB, 0);
        let mut io = Transfers::new(work(&sample, &plan, &counters)).unwrap();
        add_reads(&mut io, &mut buffer, 256 << 10, true);
        io.advance().unwrap();
        drop(io);
        let mut io = Transfers::new(work(&sample, &plan, &counters)).unwrap();
        add_reads(&mut io, &mut buffer, 256 << 10, true);
        assert_eq!(finish(&mut io).unwrap(), 4 << 20);
        drop(io);
        assert!(buffer.inside() == sample.contents);
    }
}

#[test]
fn an_entry_that_was_not_submitted_is_never_carried_out() {
    if !has_uring() {
        return;
    }
    let sample = Sample::new(4096);
    let mut buffer = Buffer::new(4096, 0);
    let fd = std::fs::File::open(&sample.path).unwrap();
    let memory = buffer.address() as *mut u8;
    let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), memory, 4096).build();
    let mut ring = IoRing::lease(2).unwrap();
    // SAFETY: buffer and descriptor outlive the ring.
    unsafe { ring.push(&entry) }.unwrap();
    assert_eq!(ring.in_flight(), 1);
    drop(ring);
    for _ in 0..4 {
        let mut next = IoRing::lease(2).unwrap();
        next.submit().unwrap();
        assert!(next.pop().is_none());
    }
    assert!(stays_untouched(&mut buffer));
}

#[test]
fn requests_on_many_threads_at_a_time_share_the_rings() {
    let sample = Sample::new(2 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let sample = &sample;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_read(
                        sample,
                        thread,
                        MIB,
                        thread,
                        "direct=yes;block=64KiB;queue_depth=4",
                    );
                }
            });
        }
    });
}
