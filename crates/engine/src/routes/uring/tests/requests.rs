//! Whole requests on host memory.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::*;
use crate::error::Kind;
use crate::file::position::Call;
use crate::report::Path;
use crate::routes::fault::Fault;

#[test]
fn buffered_reads_of_any_alignment_return_the_right_bytes() {
    let sample = Sample::new(3 * MIB + 77);
    for (offset, bytes, shift) in [
        (0, 3 * MIB + 77, 0),
        (1, 3 * MIB, 3),
        (4095, 4098, 1),
        (3 * MIB + 76, 1, 5),
    ] {
        let report = assert_read(&sample, offset, bytes, shift, "block=64KiB;direct=no");
        assert_eq!(report.bytes_by(Path::HostBuffered), bytes as u64);
    }
}

#[test]
fn an_aligned_direct_read_bypasses_the_page_cache_without_a_copy() {
    let sample = Sample::new(4 * MIB);
    let report = assert_read(
        &sample,
        0,
        4 * MIB,
        0,
        "block=64KiB;direct=yes;queue_depth=4",
    );
    assert_eq!(report.bytes_by(Path::HostDirect), 4 << 20);
    assert_eq!(report.copies, 0);
    assert_served(&report, 1..=4);
}

#[test]
fn a_direct_read_of_any_alignment_up_to_the_ragged_end_of_the_file_is_right() {
    let sample = Sample::new(2 * MIB + 1234);
    for (offset, shift) in [(0, 1), (513, 0), (513, 513), (4096, 7)] {
        let bytes = sample.contents.len() - offset;
        for options in [
            "block=64KiB;direct=yes;threads=1",
            "block=256KiB;direct=yes",
        ] {
            let report = assert_read(&sample, offset, bytes, shift, options);
            assert!(report.bytes_by(Path::HostDirect) > MIB as u64);
        }
    }
}

#[test]
fn files_in_memory_are_read_as_well() {
    let sample = Sample::within(FilePath::new("/dev/shm"), pattern(MIB + 5));
    assert_read(&sample, 3, MIB + 2, 1, "block=64KiB");
    if sample.file.direct_fd().is_some() {
        assert_read(&sample, 3, MIB + 2, 1, "block=64KiB;direct=yes");
    }
}

#[test]
fn holes_read_as_zero() {
    let mut contents = vec![0; 3 * MIB];
    contents[MIB..MIB + 9].copy_from_slice(b"something");
    let sample = Sample::within(&std::env::temp_dir(), Vec::new());
    sample.file.truncate(3 << 20).unwrap();
    let sparse = std::fs::OpenOptions::new().write(true).open(&sample.path);
    std::os::unix::fs::FileExt::write_all_at(&sparse.unwrap(), b"something", 1 << 20).unwrap();
    let sample = Sample { contents, ..sample };
    for direct in ["no", "yes"] {
        assert_read(
            &sample,
            0,
            3 * MIB,
            2,
            &format!("direct={direct};block=64KiB"),
        );
    }
}

#[test]
fn many_far_ranges_of_one_call_all_arrive() {
    let sample = Sample::new(8 * MIB);
    for direct in ["no", "yes"] {
        let mut buffer = Buffer::new(2000 * 100, 1);
        let memory = buffer.address();
        let at = |i: usize| (i * 4001 + i % 7) as u64;
        let extents: Vec<Extent> = (0..2000)
            .map(|i| Extent {
                offset: at(i),
                length: 100,
                memory: memory + i * 100,
            })
            .collect();
        let options = uring(&format!("direct={direct};queue_depth=5;threads=2"));
        let report = transfer(&sample.file, Operation::Read, &extents, options, None).unwrap();
        for (i, got) in buffer.inside().chunks(100).enumerate() {
            assert!(
                got == &sample.contents[at(i) as usize..][..100],
                "range {i}"
            );
        }
        assert!(buffer.guards_are_whole());
        assert_eq!(report.bytes(), 200_000);
        assert_served(&report, 2..=5);
    }
}

#[test]
fn writes_of_any_alignment_change_just_their_range() {
    for options in [
        "direct=no",
        "direct=yes",
        "direct=yes;queue_depth=1;threads=1",
    ] {
        for (offset, bytes, shift) in [(0, 2 * MIB, 0), (1000, MIB + 1, 1000), (4096, MIB, 3)] {
            let sample = Sample::new(3 * MIB);
            let mut buffer = Buffer::new(bytes, shift);
            let new: Vec<u8> = pattern(bytes).iter().map(|b| !b).collect();
            buffer.fill(&new);
            let options = format!("block=64KiB;{options}");
            let extents = [buffer.extent(offset as u64)];
            let written = transfer(
                &sample.file,
                Operation::Write,
                &extents,
                uring(&options),
                None,
            );
            let report = written.unwrap();
            let mut expected = sample.contents.clone();
            expected[offset..offset + bytes].copy_from_slice(&new);
            assert!(sample.on_medium() == expected);
            assert_eq!(report.bytes(), bytes as u64);
            assert_served(&report, 1..=16);
            let direct = report.bytes_by(Path::HostDirect) > 0;
            assert_eq!(direct, options.contains("direct=yes"));
        }
    }
}

#[test]
fn a_failing_call_fails_the_request_once_and_nothing_is_written_afterwards() {
    let sample = Sample::new(8 * MIB);
    for (direct, shift) in [("no", 0), ("yes", 0), ("yes", 9)] {
        let failures = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&failures);
        let decide = move |call, _: Call| match call {
            20 => {
                counted.fetch_add(1, SeqCst);
                Fault::Errno(libc::EIO)
            }
            _ => Fault::None,
        };
        let mut buffer = Buffer::new(8 * MIB, shift);
        let options = format!("direct={direct};block=64KiB;threads=2");
        let error = faulty(Operation::Read, &sample, &mut buffer, &options, decide).unwrap_err();
        assert_eq!((error.kind(), error.os_errno()), (Kind::Io, libc::EIO));
        assert_eq!(error.path(), Some(sample.path.as_path()));
        assert!(error.length() > 0);
        assert_eq!(failures.load(SeqCst), 1);
        assert!(stays_untouched(&mut buffer));
    }
}

#[test]
fn a_short_call_is_continued() {
    let sample = Sample::new(MIB + 100);
    for (direct, most) in [("no", 1000), ("yes", 4096), ("yes", 12288)] {
        let faults = move |call, _: Call| match call % 3 {
            0 => Fault::Short(most),
            _ => Fault::None,
        };
        let mut buffer = Buffer::new(MIB + 100, 5);
        let options = format!("direct={direct};block=64KiB;queue_depth=3");
        faulty(Operation::Read, &sample, &mut buffer, &options, faults).unwrap();
        assert!(buffer.inside() == sample.contents);
    }
}

#[test]
fn calls_of_one_byte_each_move_everything() {
    let sample = Sample::new(5000);
    for operation in [Operation::Read, Operation::Write] {
        let mut buffer = Buffer::new(5000, 1);
        if operation == Operation::Write {
            buffer.fill(&sample.contents);
        }
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let faults = move |_, _: Call| {
            counted.fetch_add(1, SeqCst);
            Fault::Short(1)
        };
        faulty(operation, &sample, &mut buffer, "direct=no", faults).unwrap();
        assert!(buffer.inside() == sample.contents && sample.on_medium() == sample.contents);
        assert_eq!(calls.load(SeqCst), 5000);
    }
}

#[test]
fn an_interrupted_call_is_made_again() {
    let sample = Sample::new(MIB);
    let mut buffer = Buffer::new(MIB, 0);
    let faults = |call, _: Call| match call % 2 {
        0 => Fault::Errno(libc::EINTR),
        _ => Fault::None,
    };
    let options = "direct=no;block=64KiB";
    faulty(Operation::Read, &sample, &mut buffer, options, faults).unwrap();
    assert!(buffer.inside() == sample.contents);
}

#[test]
fn a_full_medium_is_a_no_space_error() {
    let sample = Sample::new(MIB);
    let mut buffer = Buffer::new(MIB, 0);
    let faults = |call, _: Call| match call {
        7 => Fault::Errno(libc::ENOSPC),
        _ => Fault::None,
    };
    let options = "direct=no;block=64KiB";
    let outcome = faulty(Operation::Write, &sample, &mut buffer, options, faults);
    assert_eq!(outcome.unwrap_err().kind(), Kind::NoSpace);
}

#[test]
fn a_file_cut_off_while_it_is_read_is_an_error() {
    for direct in ["no", "yes"] {
        let sample = Sample::new(4 * MIB);
        let file = Arc::clone(&sample.file);
        let faults = move |call, _: Call| {
            if call == 0 {
                file.truncate(1000).unwrap();
            }
            Fault::None
        };
        let mut buffer = Buffer::new(4 * MIB, 0);
        let options = format!("direct={direct};block=64KiB");
        let outcome = faulty(Operation::Read, &sample, &mut buffer, &options, faults);
        assert_eq!(outcome.unwrap_err().kind(), Kind::EndOfFile);
        assert!(stays_untouched(&mut buffer));
    }
}
