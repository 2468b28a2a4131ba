//! Direct writes beyond the end of a file that fail: what they leave, to others and of themselves.

mod common;

use std::process::Command;

use common::pending::{Latch, Latched};
use common::process::run_case;
use common::scene::{limit_file_size, run_case_on_mounted};
use common::{Extras, Place, Sandbox, eventually, open, options, pattern, plain};
use penstock_engine::error::Kind;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::position::{Call, Operation};

const BLOCK: u64 = 64 << 10;
const DIRECT: &str = "direct=yes;io=threads;threads=1;block=64KiB";

fn has_direct(sandbox: &Sandbox) -> bool {
    let there = sandbox.file("direct.bin", b"").system().direct.is_some();
    std::fs::remove_file(sandbox.path("direct.bin")).unwrap();
    if !there {
        eprintln!("SKIPPED: no direct I/O in the tests' folder");
    }
    there
}

/// A direct write of 16 blocks behind the first 16, which ends early while another handle has
/// written these.
fn another_writer_keeps_its_bytes(cancelled: bool) {
    let sandbox = Sandbox::new();
    if !has_direct(&sandbox) {
        return;
    }
    let file = sandbox.file("shared.bin", b"");
    let (theirs, ours) = (pattern(16 * BLOCK as usize, 1), 16 * BLOCK);
    let memory = Place::Host.aligned(ours as usize);
    let latch = Latch::default();
    let latched = Latched(latch.clone());
    let held = latch.at_call(0);
    let faults: Box<Decide> = Box::new(move |number, call: Call| match held(number, call) {
        Fault::None if !cancelled && number == 1 => Fault::Errno(libc::EIO),
        fault => fault,
    });
    let extras = Extras {
        faults: Some(faults),
        ..Extras::default()
    };
    let pieces = [(16 * BLOCK, ours, 0)];
    let request = memory
        .start_with(&file, Operation::Write, &pieces, options(DIRECT), extras)
        .unwrap();
    assert!(eventually(|| latch.calls() > 0));

    let other = Place::Host.aligned(theirs.len());
    other.fill(&theirs);
    let durable = options("direct=yes;durable=yes");
    let first = [(0, theirs.len() as u64, 0)];
    other
        .transfer(&open(file.path()), Operation::Write, &first, durable)
        .unwrap();
    if cancelled {
        request.cancel();
    }
    drop(latched);
    let kind = request.finish().unwrap_err().kind();
    assert_eq!(kind, if cancelled { Kind::Cancelled } else { Kind::Io });
    let found = plain(file.path());
    assert!(found.len() >= theirs.len(), "cut to {} bytes", found.len());
    assert!(found[..theirs.len()] == theirs);
}

#[test]
fn a_direct_write_that_is_cancelled_leaves_what_another_handle_wrote() {
    another_writer_keeps_its_bytes(true);
}

#[test]
fn a_direct_write_that_fails_leaves_what_another_handle_wrote() {
    another_writer_keeps_its_bytes(false);
}

#[test]
#[ignore = "a case"]
fn direct_writes_on_a_full_file_system() {
    let sandbox = Sandbox::new();
    let old = pattern(10_000, 3);
    let size = 64 << 20;
    let memory = Place::Host.aligned(size);
    for at in [10_000, 12_288, 1 << 20] {
        let file = sandbox.file("full.bin", &old);
        let free = free_blocks(&sandbox);
        let error = memory
            .transfer(
                &file,
                Operation::Write,
                &[(at, size as u64, 0)],
                options(DIRECT),
            )
            .unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        assert_eq!(error.os_errno(), libc::ENOSPC, "{error}");
        assert!(plain(file.path()) == old, "written at {at}");
        assert!(free_blocks(&sandbox) + 64 > free, "room is kept, at {at}");
    }
    // Blocks that the file has already are not requested again.
    let file = sandbox.file("full.bin", &old);
    let most = (free_blocks(&sandbox) - 512) * 4096;
    let allocated = Command::new("fallocate")
        .args(["--keep-size", "--length", &most.to_string()])
        .arg(file.path())
        .status();
    assert!(allocated.unwrap().success());
    let length = most - (1 << 20);
    let memory = Place::Host.aligned(length as usize);
    memory
        .transfer(&file, Operation::Write, &[(0, length, 0)], options(DIRECT))
        .unwrap();
}

fn free_blocks(sandbox: &Sandbox) -> u64 {
    let text = Command::new("stat")
        .args(["--file-system", "--format=%a"])
        .arg(sandbox.path(""))
        .output();
    String::from_utf8(text.unwrap().stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// ext4 keeps the blocks that an allocation got before it failed, which other systems undo.
#[test]
fn a_direct_write_for_which_there_is_no_room_changes_nothing() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("mounted");
    let mount = "truncate -s 48M \"$0.image\" && mkfs.ext4 -q -b 4096 -F \"$0.image\" && \
                 mount -o loop \"$0.image\" \"$0\"";
    run_case_on_mounted("direct_writes_on_a_full_file_system", &folder, &[], mount);
}

#[test]
#[ignore = "a case"]
fn a_direct_write_beyond_the_limit() {
    let sandbox = Sandbox::new();
    if !has_direct(&sandbox) {
        return;
    }
    let file = sandbox.file("limit.bin", b"old");
    let memory = Place::Host.aligned(1 << 20);
    limit_file_size(300_000);
    let error = memory
        .transfer(&file, Operation::Write, &[(0, 1 << 20, 0)], options(DIRECT))
        .unwrap_err();
    assert_eq!(error.os_errno(), libc::EFBIG, "{error}");
    assert_eq!(plain(file.path()), b"old");
}

#[test]
fn a_direct_write_beyond_the_limit_of_file_sizes_changes_nothing() {
    run_case("a_direct_write_beyond_the_limit", &[]);
}
