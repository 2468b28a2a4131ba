//! Files of all sizes and on several file systems, and what is refused.

mod common;

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::scene::{MAPPED, OF_USER, nth, run_case_on_mounted};
use common::stream::CallerStream;
use common::ways::{assert_reads, ways};
use common::{Extras, Place, Sandbox, open, options, pattern, plain, process, repetitions};
use penstock_engine::Extent;
use penstock_engine::error::{Error, Kind};
use penstock_engine::fault::Fault;
use penstock_engine::file::position::Operation;
use penstock_engine::file::{Access, File};
use penstock_engine::options::Options;
use penstock_engine::report::Path;
use penstock_engine::request::{Order, run};

/// Writes and reads a file in a folder every way that there is.
fn assert_round_trip(folder: &FilePath) {
    let sandbox = Sandbox::within(folder);
    for length in [1, 4096, 300_001] {
        let file = sandbox.file("trip.bin", b"");
        for (i, (place, set)) in ways(&file).into_iter().enumerate() {
            let content = pattern(length, i as u8);
            let memory = place.memory(length, 0);
            memory.fill(&content);
            let whole = [(0, length as u64, 0)];
            memory
                .transfer(&file, Operation::Write, &whole, set)
                .unwrap();
            assert!(plain(file.path()) == content, "{place:?} {set:?}");
        }
        assert_reads(&file, 0, &plain(file.path()));
    }
}

fn opened(path: &FilePath, access: Access) -> Result<File, Error> {
    File::open(path, access, Options::default())
}

const READ: Access = Access {
    read: true,
    write: false,
    create: false,
    truncate: false,
};
const WRITE: Access = Access {
    read: false,
    write: true,
    create: false,
    truncate: false,
};

// -- sizes --------------------------------------------------------------------------------------

#[test]
fn a_transfer_of_no_bytes_does_nothing() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("empty.bin", b"");
    for (place, set) in ways(&file) {
        let memory = place.memory(16, 0);
        for operation in [Operation::Read, Operation::Write] {
            for pieces in [&[][..], &[(0, 0, 0)], &[(1 << 40, 0, 0), (5, 0, 7)]] {
                let report = memory.transfer(&file, operation, pieces, set).unwrap();
                assert_eq!(report.bytes(), 0);
            }
        }
        assert!(memory.frame_is_intact(0));
        assert_eq!(file.size().unwrap(), 0);
    }
}

#[test]
fn a_file_of_one_byte_is_read_and_written() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("one.bin", b"x");
    assert_reads(&file, 0, b"x");
    for (place, set) in ways(&file) {
        std::fs::write(file.path(), b"x").unwrap();
        let memory = place.memory(1, 0);
        memory.fill(b"y");
        memory
            .transfer(&file, Operation::Write, &[(1, 1, 0)], set)
            .unwrap();
        assert_eq!(plain(file.path()), b"xy");
    }
}

#[test]
fn holes_read_as_zero() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("sparse.bin", b"start");
    let plain_file = std::fs::OpenOptions::new().write(true).open(file.path());
    plain_file
        .unwrap()
        .write_all_at(b"middle", 700_001)
        .unwrap();
    file.truncate(1_500_003).unwrap();
    let mut wanted = vec![0; 1_500_003];
    wanted[..5].copy_from_slice(b"start");
    wanted[700_001..700_007].copy_from_slice(b"middle");
    assert_reads(&file, 0, &wanted);
}

#[test]
fn bytes_behind_four_gibibytes_are_reached() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("long.bin", b"");
    let offset = (4u64 << 30) - 1000;
    let content = pattern(200_000, 3);
    let plain_file = std::fs::OpenOptions::new().write(true).open(file.path());
    plain_file.unwrap().write_all_at(&content, offset).unwrap();
    assert_reads(&file, offset, &content);
    for (place, set) in ways(&file) {
        let far = (5u64 << 30) + 77;
        let memory = place.memory(content.len(), 0);
        memory.fill(&content);
        let piece = (far, content.len() as u64, 0);
        memory
            .transfer(&file, Operation::Write, &[piece], set)
            .unwrap();
        let mut got = vec![0; content.len()];
        let plain_file = std::fs::File::open(file.path()).unwrap();
        plain_file.read_exact_at(&mut got, far).unwrap();
        assert!(got == content, "{place:?} {set:?}");
        file.truncate(offset).unwrap();
    }
}

/// Address space without memory behind it until it is touched.
struct Region(*mut libc::c_void, usize);

impl Region {
    fn new(bytes: usize) -> Region {
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Region(start, bytes)
    }

    fn slice(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.1);
        // SAFETY: within the mapping, and no request is under way.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>().add(at), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which is not used any more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
#[ignore = "needs 5 GiB of memory and several seconds"]
fn one_request_moves_more_than_four_gibibytes() {
    let sandbox = Sandbox::new();
    let length = (4usize << 30) + 4097;
    let file = sandbox.file("long.bin", b"");
    file.truncate(length as u64).unwrap();
    let plain_file = std::fs::OpenOptions::new().write(true).open(file.path());
    plain_file
        .unwrap()
        .write_all_at(b"the end", length as u64 - 7)
        .unwrap();
    for text in ["io=threads;direct=no", "io=uring;direct=no"] {
        let region = Region::new(length);
        let extents = [Extent {
            offset: 0,
            length: length as u64,
            memory: region.0 as usize,
        }];
        let order = Order::new(Operation::Read, &extents, options(text));
        // SAFETY: the region is that long and outlives the call.
        let report = unsafe { run(&file, order).unwrap() };
        assert_eq!(report.bytes(), length as u64);
        assert_eq!(region.slice(length - 8, 8), b"\0the end");
        assert!(region.slice(2 << 30, 4096).iter().all(|b| *b == 0));
    }
}

#[test]
fn a_read_past_the_end_is_an_error_with_the_length_of_the_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("short.bin", &pattern(10_000, 1));
    for (place, set) in ways(&file) {
        let memory = place.memory(20_000, 0);
        for piece in [(0, 10_001, 0), (10_000, 1, 0), (1 << 40, 5, 0)] {
            let read = memory.transfer(&file, Operation::Read, &[piece], set);
            let error = read.unwrap_err();
            assert_eq!(error.kind(), Kind::EndOfFile, "{place:?} {set:?}");
            assert!(error.cause().contains("10000"), "{error}");
            assert_eq!((error.offset(), error.length()), (piece.0, piece.1));
        }
    }
}

#[test]
fn ranges_that_no_file_can_have_are_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("file.bin", b"content");
    let memory = Place::Host.memory(16, 0);
    for (offset, length) in [(u64::MAX, 1), (i64::MAX as u64, 1), (1, u64::MAX)] {
        for operation in [Operation::Read, Operation::Write] {
            let piece = (offset, length, 0);
            let refused = memory.transfer(&file, operation, &[piece], options(""));
            assert!(refused.is_err(), "{operation:?} {offset} {length}");
        }
    }
    assert_eq!(plain(file.path()), b"content");
}

#[test]
fn a_null_pointer_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("file.bin", b"content");
    for operation in [Operation::Read, Operation::Write] {
        let extents = [Extent {
            offset: 0,
            length: 7,
            memory: 0,
        }];
        let order = Order::new(operation, &extents, options(""));
        // SAFETY: the engine refuses the address.
        let error = unsafe { run(&file, order) }.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
}

// -- file systems -------------------------------------------------------------------------------

#[test]
fn files_of_the_tests_folder_are_written_and_read() {
    assert_round_trip(&Sandbox::parent());
}

#[test]
fn files_in_memory_are_written_and_read() {
    let folder = FilePath::new("/dev/shm");
    if !folder.is_dir() {
        eprintln!("SKIPPED: there is no /dev/shm");
        return;
    }
    assert_round_trip(folder);
}

#[test]
#[ignore = "a case"]
fn files_of_a_mounted_folder() {
    assert_round_trip(&Sandbox::parent());
}

#[test]
fn the_descriptors_of_workers_are_few_among_those_that_a_process_may_open() {
    process::run_case("many_files_that_are_read_by_workers", &[]);
}

#[test]
#[ignore = "a case"]
fn many_files_that_are_read_by_workers() {
    const MOST: usize = 256;
    let limit = libc::rlimit {
        rlim_cur: MOST as libc::rlim_t,
        rlim_max: MOST as libc::rlim_t,
    };
    // SAFETY: `limit` is a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let sandbox = Sandbox::new();
    let rows: Vec<_> = (0..5000).map(|i| (i * 8200, 8, i * 8)).collect();
    let memory = Place::Host.memory(rows.len() * 8, 0);
    let read = |number: usize| {
        let file = sandbox.file(&number.to_string(), b"");
        file.truncate(rows.len() as u64 * 8200).unwrap();
        let set = options("threads=4;io=threads");
        memory.transfer(&file, Operation::Read, &rows, set).unwrap();
        file
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop(read(0));
    let before = descriptors();
    let files: Vec<_> = (0..60).map(read).collect();
    assert!(descriptors() <= before + files.len() + MOST / 8);
    drop(files);
    assert!(common::eventually(|| descriptors() <= before));
    let _file = read(0);
    assert!(descriptors() > before + 1, "no worker has a descriptor");
}

/// On machines with two cores, each process would have one in any case.
#[test]
fn processes_that_write_rows_of_one_local_file_have_a_worker_each() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("shared.bin", b"");
    if !["ext4", "xfs", "btrfs", "tmpfs"].contains(&file.system().name()) {
        return;
    }
    file.set_writers(2);
    let rows: Vec<_> = (0..20_000).map(|i| (i * 4096, 2048, i * 2048)).collect();
    let memory = Place::Host.memory(rows.len() * 2048, 0);
    let written = memory.transfer(&file, Operation::Write, &rows, Options::default());
    assert_eq!(written.unwrap().threads, 1);
}

/// Mounts with this command in namespaces of its own, `$0` being the folder, and runs the case
/// there.
fn on_mounted(mount: &str) {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("mounted");
    run_case_on_mounted("files_of_a_mounted_folder", &folder, &OF_USER, mount);
}

#[test]
fn files_of_an_overlay_are_written_and_read() {
    // An overlay cannot lie on another one, so its layers are put into a tmpfs.
    on_mounted(
        "mount -t tmpfs tmpfs \"$0\" && mkdir \"$0/low\" \"$0/up\" \"$0/work\" \"$0/all\" && \
         mount -t overlay -o \"lowerdir=$0/low,upperdir=$0/up,workdir=$0/work\" overlay \"$0/all\" \
         && PENSTOCK_TEST_DIR=\"$0/all\" && export PENSTOCK_TEST_DIR",
    );
}

#[test]
fn files_of_a_system_without_direct_io_are_written_and_read() {
    on_mounted("mount -t ramfs ramfs \"$0\"");
}

#[test]
fn required_direct_io_that_the_file_system_lacks_is_unavailable() {
    let path = FilePath::new("/proc/self/cmdline");
    let file = Arc::new(opened(path, READ).unwrap());
    assert_eq!(file.system().direct, None);
    // stat(2) reports size 0, so even a read of no bytes has to be refused for this reason.
    let memory = Place::Host.memory(16, 0);
    let sandbox = Sandbox::new();
    let mut files = vec![file];
    if let Some(ramfs) = without_direct(&sandbox) {
        files.push(ramfs);
    }
    for file in files {
        let extents = (0, file.size().unwrap().min(16), 0);
        let refused = memory.transfer(&file, Operation::Read, &[extents], options("direct=yes"));
        if extents.1 == 0 {
            assert!(refused.is_ok(), "a transfer of no bytes does nothing");
            continue;
        }
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.remedy_text().contains("direct=auto"), "{error}");
        for text in ["direct=auto", "direct=no", "direct=auto;io=uring"] {
            memory
                .transfer(&file, Operation::Read, &[extents], options(text))
                .unwrap();
        }
    }
}

/// A file with a size and contents on a file system that has no direct I/O.
fn without_direct(_sandbox: &Sandbox) -> Option<Arc<File>> {
    // Files of sysfs report a length of one page.
    let path = FilePath::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let file = opened(path, READ).ok()?;
    file.system().direct.is_none().then(|| Arc::new(file))
}

// -- what is refused ----------------------------------------------------------------------------

#[test]
fn a_path_without_byte_ranges_is_refused_at_once() {
    let sandbox = Sandbox::new();
    let fifo = sandbox.path("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let start = Instant::now();
    for (path, words) in [
        (fifo.as_path(), "a FIFO"),
        (FilePath::new("/dev/null"), "a character device"),
    ] {
        let error = opened(path, READ).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.cause().contains(words), "{error}");
        assert_eq!(error.path(), Some(path));
    }
    let folder = fifo.parent().unwrap();
    for access in [READ, WRITE] {
        let error = opened(folder, access).unwrap_err();
        assert_eq!(error.os_errno(), libc::EISDIR, "{error}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "a FIFO made it wait"
    );
}

#[test]
fn a_missing_file_is_not_found() {
    let sandbox = Sandbox::new();
    for path in [sandbox.path("missing.bin"), sandbox.path("no/folder.bin")] {
        let error = opened(&path, READ).unwrap_err();
        assert_eq!(
            (error.kind(), error.os_errno()),
            (Kind::NotFound, libc::ENOENT)
        );
        assert_eq!(error.path(), Some(&*path));
    }
    let through_file = sandbox.file("file.bin", b"").path().join("below");
    let error = opened(&through_file, READ).unwrap_err();
    assert_eq!(
        (error.kind(), error.os_errno()),
        (Kind::NotFound, libc::ENOTDIR)
    );
}

#[test]
fn access_that_the_file_was_not_opened_for_is_refused() {
    let sandbox = Sandbox::new();
    let path = sandbox
        .file("file.bin", &pattern(10_000, 1))
        .path()
        .to_owned();
    for (place, set) in ways(&open(&path)) {
        let memory = place.memory(10_000, 0);
        let whole = [(0, 10_000, 0)];
        for (access, operation, word) in [
            (READ, Operation::Write, "writing"),
            (WRITE, Operation::Read, "reading"),
        ] {
            let file = Arc::new(opened(&path, access).unwrap());
            let error = memory.transfer(&file, operation, &whole, set).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.cause().contains(word), "{error}");
        }
    }
    assert!(plain(&path) == pattern(10_000, 1));
}

#[test]
fn a_file_open_for_writing_only_can_be_written_each_way() {
    let sandbox = Sandbox::new();
    let path = sandbox.file("file.bin", b"").path().to_owned();
    for (i, (place, set)) in ways(&open(&path)).into_iter().enumerate() {
        let file = Arc::new(opened(&path, WRITE).unwrap());
        let content = pattern(100_001, i as u8);
        let memory = place.memory(content.len(), 0);
        memory.fill(&content);
        let whole = [(0, content.len() as u64, 0)];
        memory
            .transfer(&file, Operation::Write, &whole, set)
            .unwrap();
        assert!(plain(&path) == content, "{place:?} {set:?}");
    }
}

#[test]
fn a_file_that_was_removed_can_still_be_read() {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 1);
    let file = sandbox.file("gone.bin", &content);
    std::fs::remove_file(file.path()).unwrap();
    // Another file of that name is another file.
    std::fs::write(file.path(), b"another").unwrap();
    assert_reads(&file, 0, &content);
}

/// A descriptor of a library, opened again by the engine.
fn taken_up(file: &std::fs::File, path: &FilePath) -> Arc<File> {
    Arc::new(File::of_descriptor(file.as_raw_fd(), path, true, Options::default()).unwrap())
}

fn open_elsewhere(path: &FilePath) -> std::fs::File {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

#[test]
fn a_descriptor_of_a_removed_file_can_be_opened_again() {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 1);
    let path = sandbox.path("gone.h5");
    std::fs::write(&path, &content).unwrap();
    let elsewhere = open_elsewhere(&path);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"another").unwrap();
    let file = taken_up(&elsewhere, &path);
    drop(elsewhere);
    assert_reads(&file, 0, &content);
}

/// Opens the file, and then takes the right to open it again from everybody but root.
fn open_and_close_to_others(path: &FilePath) -> std::fs::File {
    let set_mode = |mode| {
        let permissions: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions).unwrap();
    };
    set_mode(0o600);
    let opened = open_elsewhere(path);
    set_mode(0o000);
    opened
}

/// As [`taken_up`], without the rights of root.
fn duplicated(elsewhere: &std::fs::File, path: &FilePath) -> Arc<File> {
    // SAFETY: both only concern this thread.
    let file = unsafe {
        let before = libc::setfsuid(65_534) as libc::uid_t;
        assert!(std::fs::File::open(path).is_err());
        let file = taken_up(elsewhere, path);
        libc::setfsuid(before);
        file
    };
    assert!(file.is_duplicate());
    file
}

#[test]
fn a_descriptor_whose_file_may_not_be_opened_any_more_is_duplicated() {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 2);
    let path = sandbox.path("secret.h5");
    std::fs::write(&path, &content).unwrap();
    let elsewhere = open_and_close_to_others(&path);
    let file = duplicated(&elsewhere, &path);
    assert_reads(&file, 0, &content);
    drop(elsewhere);
    assert_reads(&file, 0, &content);
}

#[test]
fn a_finished_request_keeps_no_lock_of_a_file_that_its_opener_has_closed() {
    // Other tests here start processes, and until such a child executes its program, it shares all
    // descriptors, and so their locks.
    process::run_case("locks_of_finished_requests", &[]);
}

#[test]
#[ignore = "needs a process of its own"]
fn locks_of_finished_requests() {
    const LENGTH: u64 = 300_000;
    let sandbox = Sandbox::new();
    let path = sandbox.path("locked.h5");
    std::fs::write(&path, pattern(LENGTH as usize, 3)).unwrap();
    let flock = |file: &std::fs::File, how| {
        // SAFETY: flock on an open descriptor touches no memory.
        unsafe { libc::flock(file.as_raw_fd(), how) == 0 }
    };
    let next = open_and_close_to_others(&path);
    let all_ways = ways(&open(&path));
    let stream = common::has_gpu().then(CallerStream::new);
    for round in 0..repetitions::or_more(1000, 3000) {
        let (place, set) = all_ways[round % all_ways.len()];
        let operation = if round % 4 == 0 && set.route != options(MAPPED).route {
            Operation::Write
        } else {
            Operation::Read
        };
        let elsewhere = open_and_close_to_others(&path);
        assert!(flock(&elsewhere, libc::LOCK_SH | libc::LOCK_NB));
        let file = duplicated(&elsewhere, &path);
        let memory = place.memory(LENGTH as usize, 0);
        let extras = Extras {
            faults: (round % 5 == 0).then(|| nth(1, Fault::Errno(libc::EIO))),
            // Pinned pages are not released while a stream waits for a request.
            stream: stream.as_ref().map(CallerStream::held),
            ..Extras::default()
        };
        let whole = [(0, LENGTH, 0)];
        let request = memory
            .start_with(&file, operation, &whole, set, extras)
            .unwrap();
        drop((file, elsewhere));
        if round % 3 == 0 {
            request.cancel();
        }
        while request.test().finished().is_none() {}
        // The kernel releases the file of io_uring a moment after the completion.
        let by_kernel = set.io == options("io=uring").io;
        let deadline = Instant::now() + Duration::from_secs(by_kernel.into());
        while !flock(&next, libc::LOCK_EX | libc::LOCK_NB) {
            assert!(Instant::now() < deadline, "{round}: {place:?} {set:?}");
        }
        flock(&next, libc::LOCK_UN);
    }
}

/// Calls `act` on a thread for which nothing is in /proc; `None` if that takes rights that are missing.
fn without_proc<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    let hide = || {
        let none = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let (root, proc, kind) = (c"/".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr());
        // SAFETY: these change the mount namespace of this thread alone.
        unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, root, none, private, none.cast()) == 0
                && libc::mount(kind, proc, kind, 0, none.cast()) == 0
        }
    };
    let done =
        std::thread::scope(|scope| scope.spawn(|| hide().then(act)).join().expect("no panic"));
    if done.is_none() {
        eprintln!("SKIPPED: /proc cannot be hidden without rights");
    }
    done
}

#[test]
fn without_proc_a_descriptor_is_opened_again_by_its_name_if_that_is_the_same_file() {
    let sandbox = Sandbox::new();
    let (path, other) = (sandbox.path("field.h5"), sandbox.path("other.h5"));
    std::fs::write(&path, pattern(5000, 1)).unwrap();
    std::fs::write(&other, b"another").unwrap();
    let elsewhere = open_elsewhere(&path);
    let taken_up = || (taken_up(&elsewhere, &path), taken_up(&elsewhere, &other));
    let Some((by_name, of_another_name)) = without_proc(taken_up) else {
        return;
    };
    assert!(!by_name.is_duplicate());
    assert!(of_another_name.is_duplicate());
    assert_reads(&by_name, 0, &pattern(5000, 1));
    assert_reads(&of_another_name, 0, &pattern(5000, 1));
}

#[test]
fn without_proc_direct_io_opens_the_file_by_its_name_if_that_is_the_same_file() {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 4);
    let [path, lost, replaced] = ["named.bin", "lost.bin", "replaced.bin"].map(|n| sandbox.path(n));
    for path in [&path, &lost, &replaced] {
        std::fs::write(path, &content).unwrap();
    }
    let files = [&path, &lost, &replaced].map(|path| open(path));
    std::fs::remove_file(&lost).unwrap();
    // The new file cannot have the number of the old one, which is open.
    std::fs::remove_file(&replaced).unwrap();
    std::fs::write(&replaced, pattern(300_000, 5)).unwrap();
    let there = files[0].system().direct.is_some();
    let Some(direct) = without_proc(|| files.each_ref().map(|file| file.has_direct())) else {
        return;
    };
    assert_eq!(direct, [there, false, false]);
    for file in files {
        let memory = Place::Host.memory(content.len(), 0);
        let whole = [(0, content.len() as u64, 0)];
        memory
            .transfer(&file, Operation::Read, &whole, options("direct=auto"))
            .unwrap();
        assert!(memory.bytes(content.len()) == content);
    }
}

#[test]
fn a_number_that_is_not_a_descriptor_is_an_error() {
    let none = File::of_descriptor(-1, FilePath::new("a.h5"), false, Options::default());
    assert_eq!(none.unwrap_err().os_errno(), libc::EBADF);
}

fn lent(file: &std::fs::File, write: bool) -> penstock_engine::error::Result<File> {
    let access = Access {
        read: !write,
        write,
        ..Access::default()
    };
    File::of_borrowed_descriptor(file.as_raw_fd(), access, Options::default())
}

#[test]
fn a_borrowed_descriptor_gives_no_more_access_than_it_has() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("lent.bin");
    std::fs::write(&path, b"content").unwrap();
    let reads = std::fs::File::open(&path).unwrap();
    assert_reads(&Arc::new(lent(&reads, false).unwrap()), 0, b"content");
    let refused = lent(&reads, true).unwrap_err();
    assert!(refused.to_string().contains("not open for writing"));
    assert!(refused.to_string().contains("lent.bin"));
    let writes = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    assert!(lent(&writes, false).is_err());
    assert!(lent(&writes, true).is_ok());
}

#[test]
fn a_borrowed_descriptor_whose_file_may_not_be_opened_again_is_duplicated_unless_its_flags_prevent_it()
 {
    let sandbox = Sandbox::new();
    let content = pattern(300_000, 2);
    let path = sandbox.path("secret.bin");
    std::fs::write(&path, &content).unwrap();
    let reads = std::fs::File::open(&path).unwrap();
    let appends = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    let closed: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o0);
    std::fs::set_permissions(&path, closed).unwrap();
    // SAFETY: both only concern this thread. Without the rights of root, which may open all.
    let (served, refused) = unsafe {
        let before = libc::setfsuid(65_534) as libc::uid_t;
        let answers = (lent(&reads, false), lent(&appends, true));
        libc::setfsuid(before);
        answers
    };
    assert_reads(&Arc::new(served.unwrap()), 0, &content);
    assert_eq!(refused.unwrap_err().os_errno(), libc::EACCES);
}

#[test]
fn a_borrowed_descriptor_with_o_path_gives_no_access() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("named.bin"), b"content").unwrap();
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_PATH);
    let named = options.read(true).open(sandbox.path("named.bin")).unwrap();
    assert!(lent(&named, false).is_err());
    assert!(lent(&named, true).is_err());
}

#[test]
fn a_borrowed_number_that_is_not_a_descriptor_is_an_error() {
    let none = File::of_borrowed_descriptor(-1, Access::default(), Options::default());
    assert_eq!(none.unwrap_err().os_errno(), libc::EBADF);
}

#[test]
fn a_durable_write_of_any_way_is_in_the_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("durable.bin", b"");
    for (i, (place, set)) in ways(&file).into_iter().enumerate() {
        let content = pattern(200_003, i as u8);
        let memory = place.memory(content.len(), 0);
        memory.fill(&content);
        let whole = [(0, content.len() as u64, 0)];
        let set = options("durable=yes").or(set);
        let report = memory
            .transfer(&file, Operation::Write, &whole, set)
            .unwrap();
        assert!(plain(file.path()) == content);
        if set.direct == options("direct=yes").direct {
            let direct = report.bytes_by(Path::HostDirect) + report.bytes_by(Path::StagedDirect);
            assert_eq!(direct, 200_003 / 4096 * 4096, "{report:?}");
        }
    }
}

/// As [`ways`], with that of cuFile.
fn all_ways(file: &File) -> Vec<(Place, Options)> {
    let cufile = (Place::Device, options("route=gds"));
    let gpu = common::has_gpu().then_some(cufile);
    ways(file).into_iter().chain(gpu).collect()
}

#[test]
fn an_overlapping_write_of_any_way_is_refused_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("file.bin", &[1; 100]);
    for (place, set) in all_ways(&file) {
        let memory = place.memory(100, 0);
        let pieces = [(0, 10, 0), (9, 10, 50)];
        let error = memory
            .transfer(&file, Operation::Write, &pieces, set)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{place:?} {set:?}");
        assert_eq!(plain(file.path()), [1; 100]);
    }
}

#[test]
fn where_ranges_of_a_read_overlap_in_memory_each_byte_is_of_one_of_them() {
    let sandbox = Sandbox::new();
    let content = pattern(400_000, 5);
    let file = sandbox.file("file.bin", &content);
    // Few long ranges, and so many short ones that they could be planned as rows.
    for (count, length, step, pitch) in [(3, 100_000, 130_000, 70_000), (2000, 100, 150, 60)] {
        let pieces: Vec<_> = (0..count).map(|i| (i * step, length, i * pitch)).collect();
        let bytes = ((count - 1) * pitch + length) as usize;
        for (place, set) in all_ways(&file) {
            let memory = place.memory(bytes, 0);
            match memory.transfer(&file, Operation::Read, &pieces, set) {
                Err(error) if error.kind() == Kind::Unavailable => continue,
                done => drop(done.unwrap()),
            }
            for (at, found) in (0..).zip(memory.bytes(bytes)) {
                let last = (at / pitch).min(count - 1);
                let mut of = (0..=last)
                    .rev()
                    .map(|i| (i, at - i * pitch))
                    .take_while(|(_, inside)| *inside < length);
                let is_of =
                    |(i, inside): (u64, u64)| content[(i * step + inside) as usize] == found;
                assert!(of.any(is_of), "{place:?} {set:?}: byte {at}");
            }
        }
    }
}

#[test]
fn lengthening_never_makes_a_file_shorter() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("f", b"ten bytes.");
    for (to, expected) in [(0, 10), (4, 10), (10, 10), (5000, 5000), (100, 5000)] {
        file.lengthen(to).unwrap();
        assert_eq!(file.size().unwrap(), expected);
    }
    let found = plain(file.path());
    assert!(found.starts_with(b"ten bytes.") && found[10..].iter().all(|b| *b == 0));
}
