//! Saving a whole file: all of it or nothing, whatever the target is and whatever fails.

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::process::run_case;
use common::scene::{
    HOST, OF_USER, SETTINGS, SIZE, alone, entries, limit_file_size, run_case_on_mounted,
};
use common::standin::standin;
use common::ways::assert_reads;
use common::{Memory, Place, Sandbox, open, options, pattern, plain};
use penstock_engine::error::{Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Report;
use penstock_engine::request::save;

fn save_to(target: &Path, content: &[u8], text: &str) -> Result<()> {
    let memory = Place::Host.memory(content.len().max(1), 0);
    memory.fill(content);
    // SAFETY: the buffer outlives the call.
    unsafe {
        save(
            target,
            memory.address(),
            content.len() as u64,
            options(text),
        )
    }
    .map(drop)
}

fn names(sandbox: &Sandbox) -> Vec<PathBuf> {
    let folder = sandbox.path("x");
    let entries = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    let mut names: Vec<PathBuf> = entries.map(|e| e.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn a_save_makes_the_file_or_replaces_all_of_it() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    for text in ["", "durable=yes", "direct=yes;durable=yes", "io=uring"] {
        if text.contains("direct") && sandbox.file("d", b"").system().direct.is_none() {
            continue;
        }
        for length in [0, 1, 5000, 1_000_000, 300] {
            let content = pattern(length, length as u8);
            save_to(&target, &content, text).unwrap();
            assert!(plain(&target) == content, "{text} {length}");
        }
    }
    assert!(names(&sandbox).contains(&"saved.bin".into()));
    assert!(names(&sandbox).len() <= 2);
}

#[test]
fn readers_of_the_old_file_keep_it() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let file = sandbox.file("saved.bin", b"old contents");
    save_to(file.path(), b"new", "").unwrap();
    assert_reads(&file, 0, b"old contents");
    assert_reads(&open(file.path()), 0, b"new");
}

#[test]
fn a_save_keeps_the_mode_of_the_file() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    for mode in [0o600, 0o640, 0o755] {
        std::fs::write(&target, b"old").unwrap();
        std::fs::set_permissions(&target, PermissionsExt::from_mode(mode)).unwrap();
        save_to(&target, b"new", "").unwrap();
        let found = std::fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode);
        std::fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_save_makes_a_new_file_with_the_mode_of_the_umask() {
    let sandbox = Sandbox::new();
    let usual = sandbox.path("usual");
    std::fs::write(&usual, b"").unwrap();
    let target = sandbox.path("saved.bin");
    save_to(&target, b"new", "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&target), mode(&usual));
}

#[test]
fn a_save_onto_a_symbolic_link_replaces_what_it_points_to() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("real.bin"), b"old").unwrap();
    symlink("folder/real.bin", sandbox.path("relative")).unwrap();
    symlink(sandbox.path("relative"), sandbox.path("chain")).unwrap();
    symlink("folder/new.bin", sandbox.path("dangling")).unwrap();
    for (name, real) in [
        ("relative", "real.bin"),
        ("chain", "real.bin"),
        ("dangling", "new.bin"),
    ] {
        let link = sandbox.path(name);
        save_to(&link, name.as_bytes(), "").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(plain(&folder.join(real)), name.as_bytes());
    }
    assert_eq!(names(&sandbox).len(), 4);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn a_save_onto_a_folder_is_refused() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).unwrap();
    let error = save_to(&folder, b"new", "").unwrap_err();
    assert_eq!(error.os_errno(), libc::EISDIR, "{error}");
    assert_eq!(error.path(), Some(&*folder));
    assert_eq!(names(&sandbox), [PathBuf::from("folder")]);
}

fn save_from(memory: &Memory, length: usize, target: &Path, text: &str) -> Result<Report> {
    // SAFETY: the buffer outlives the call.
    unsafe { save(target, memory.address(), length as u64, options(text)) }
}

/// The old contents are there, and nothing else is in the folder.
fn assert_untouched(sandbox: &Sandbox, old: &[u8]) {
    assert!(
        plain(&sandbox.path("saved.bin")) == old,
        "the old file has changed"
    );
    assert_eq!(entries(sandbox.path("x").parent().unwrap()), 1);
}

#[test]
fn a_save_whose_copy_fails_leaves_the_old_file_and_nothing_else() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let memory = Place::Device.memory(SIZE as usize, 0);
    for call in ["copy:1", "copyexec:3", "copy:5+"] {
        let error = {
            let _failing = standin.fail(call);
            let text = "block=64KiB;threads=4;direct=no;route=staged";
            save_from(&memory, SIZE as usize, &target, text).unwrap_err()
        };
        assert_eq!(error.kind(), Kind::Gpu);
        assert_eq!(error.path(), Some(&*target), "{error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
#[ignore = "a case"]
fn a_save_beyond_the_limit_of_file_sizes() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let memory = Place::Host.memory(SIZE as usize, 0);
    limit_file_size(300_000);
    for text in HOST {
        let text = format!("{text};{SETTINGS}");
        let error = save_from(&memory, SIZE as usize, &target, &text).unwrap_err();
        assert_eq!(error.os_errno(), libc::EFBIG, "{text}: {error}");
        assert_eq!(error.path(), Some(&*target), "{text}: {error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
fn a_save_that_the_system_refuses_leaves_the_old_file_and_nothing_else() {
    run_case("a_save_beyond_the_limit_of_file_sizes", &[]);
}

#[test]
fn a_save_into_a_missing_folder_is_not_found() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("missing/saved.bin");
    let memory = Place::Host.memory(10, 0);
    let error = save_from(&memory, 10, &target, "").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_eq!(error.path(), Some(&*target));
}

#[test]
#[ignore = "a case"]
fn writes_that_fill_a_file_system() {
    let sandbox = Sandbox::new();
    let memory = Place::Host.memory(SIZE as usize, 0);
    for io in ["io=threads", "io=uring"] {
        let text = format!("{io};{SETTINGS}");
        let file = sandbox.file("full.bin", b"");
        let error = memory
            .transfer(&file, Operation::Write, &[(0, SIZE, 0)], options(&text))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{text}: {error}");
        file.truncate(0).unwrap();
        std::fs::remove_file(file.path()).unwrap();

        let target = sandbox.path("saved.bin");
        std::fs::write(&target, b"old").unwrap();
        let error = save_from(&memory, SIZE as usize, &target, &text).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{text}: {error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
fn a_file_system_that_is_really_full_is_an_error() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("small");
    let mount = "mount -t tmpfs -o size=512k tmpfs \"$0\"";
    run_case_on_mounted("writes_that_fill_a_file_system", &folder, &OF_USER, mount);
}
