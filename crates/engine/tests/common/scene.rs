//! A transfer of a whole file along each way that there is, which tests make fail.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::report::Report;

use super::process;
use super::standin::{Alive, Standin};
use super::{Memory, Place, Sandbox, options, pattern, plain};

/// A way for bytes to travel.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub place: Place,
    pub text: &'static str,
}

pub const HOST: [&str; 4] = [
    "io=threads;direct=no",
    "io=threads;direct=yes",
    "io=uring;direct=no",
    "io=uring;direct=yes",
];
pub const GPU: [&str; 5] = [
    "route=staged;io=threads;direct=no",
    "route=staged;io=threads;direct=yes",
    "route=staged;io=uring;direct=no",
    "route=staged;io=uring;direct=yes",
    // The last one: it only reads.
    MAPPED,
];
pub const MAPPED: &str = "route=mapped";

pub const SIZE: u64 = (1 << 20) + 777;
/// Blocks of the whole file, and so calls at least.
pub const BLOCKS: u64 = 17;
pub const SETTINGS: &str = "block=64KiB;threads=4";

/// Failures, counts and descriptors are those of the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().recover()
}

pub fn ways(operation: Operation) -> Vec<Way> {
    let way = |place| move |text: &&'static str| Way { place, text };
    let gpu = if super::has_gpu() { &GPU[..] } else { &[] };
    HOST.iter()
        .map(way(Place::Host))
        .chain(gpu.iter().map(way(Place::Device)))
        .filter(|w| operation == Operation::Read || w.text != MAPPED)
        .filter(can_go)
        .collect()
}

/// Whether the file system of the tests has direct I/O, where the way requires it.
pub fn can_go(way: &Way) -> bool {
    let sandbox = Sandbox::new();
    let there = sandbox.file("direct.bin", b"").system().direct.is_some();
    if !there && way.text.contains("direct=yes") {
        eprintln!("SKIPPED: {}: no direct I/O in the tests' folder", way.text);
        return false;
    }
    true
}

/// A file, a buffer of the same size, and one whole transfer between them.
pub struct Scene {
    pub sandbox: Sandbox,
    pub file: Arc<File>,
    pub content: Vec<u8>,
    pub memory: Memory,
    pub way: Way,
    pub operation: Operation,
}

impl Scene {
    pub fn new(way: Way, operation: Operation) -> Scene {
        let sandbox = Sandbox::new();
        let content = pattern(SIZE as usize, 7);
        let file = sandbox.file("scene.bin", &content);
        let memory = way.place.aligned(SIZE as usize);
        Scene {
            sandbox,
            file,
            content,
            memory,
            way,
            operation,
        }
    }

    pub fn transfer(&self, settings: &str, faults: Option<Box<Decide>>) -> Result<Report> {
        let options = options(self.way.text).or(options(settings));
        let whole = [(0, SIZE, 0)];
        self.memory
            .faulty(&self.file, self.operation, &whole, options, faults)
    }

    pub fn fails(&self, settings: &str, decide: Box<Decide>) -> Error {
        match self.transfer(settings, Some(decide)) {
            Err(error) => error,
            Ok(report) => panic!("{:?} {:?}: {report:?}", self.way, self.operation),
        }
    }

    /// Moves all bytes without faults, and compares each.
    pub fn works(&self) {
        let fresh = pattern(SIZE as usize, 99);
        std::fs::write(self.file.path(), &fresh).unwrap();
        let filled = pattern(SIZE as usize, 42);
        self.memory.fill(&filled);
        self.transfer(SETTINGS, None).unwrap();
        let (got, wanted) = match self.operation {
            Operation::Read => (self.memory.bytes(SIZE as usize), fresh),
            Operation::Write => (plain(self.file.path()), filled),
        };
        assert!(got == wanted, "{:?} {:?}", self.way, self.operation);
    }

    /// What a transfer may have changed.
    pub fn target(&self) -> Vec<u8> {
        match self.operation {
            Operation::Read => self.memory.bytes(SIZE as usize),
            Operation::Write => plain(self.file.path()),
        }
    }
}

pub fn each(operations: &[Operation], check: impl Fn(Way, Operation)) {
    for operation in operations {
        for way in ways(*operation) {
            check(way, *operation);
        }
    }
}

pub const BOTH: [Operation; 2] = [Operation::Read, Operation::Write];

pub fn nth(number: u64, fault: Fault) -> Box<Decide> {
    Box::new(move |n, _| if n == number { fault } else { Fault::None })
}

/// All that a request could leave behind.
#[derive(Debug)]
pub struct Remains {
    pub descriptors: usize,
    pub files: usize,
    pub gpu: Option<Alive>,
}

pub fn remains(sandbox: &Sandbox, standin: Option<&Standin>) -> Remains {
    Remains {
        descriptors: entries(Path::new("/proc/self/fd")),
        files: entries(sandbox.path("x").parent().unwrap()),
        gpu: standin.map(Standin::alive),
    }
}

pub fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A lane of either mechanism then has two stages at most.
pub const TWO_STAGES: &str = "block=64KiB;queue_depth=2";

/// Nothing is left but what `lanes` lanes may have come to keep for reuse: a copy queue, two slots
/// and two events each, and the descriptors of an io_uring.
pub fn assert_nothing_left(before: &Remains, after: &Remains, lanes: usize, what: &str) {
    let grown = |after: usize, before: usize| after.saturating_sub(before);
    assert_eq!(after.files, before.files, "{what}");
    assert!(
        grown(after.descriptors, before.descriptors) <= lanes,
        "{what}: {after:?} {before:?}"
    );
    if let (Some(before), Some(after)) = (before.gpu, after.gpu) {
        assert_eq!(after.allocations, before.allocations, "{what}");
        assert!(grown(after.streams, before.streams) <= lanes, "{what}");
        assert!(grown(after.events, before.events) <= 2 * lanes, "{what}");
        assert!(
            grown(after.registrations, before.registrations) <= 2 * lanes,
            "{what}"
        );
    }
}

/// Runs the ignored function `name` in `folder` after this command, in a namespace of its own, has mounted
/// something there. `$0` is the folder.
pub fn run_case_on_mounted(name: &str, folder: &Path, namespaces: &[&str], mount: &str) {
    std::fs::create_dir(folder).unwrap();
    let script = format!("{{ {mount}; }} || {{ echo no mount; exit 1; }}; exec \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(namespaces)
        .args(["--mount", "sh", "-c", &script])
        .arg(folder)
        .arg(std::env::current_exe().unwrap())
        .args(process::case_arguments(name))
        .env("PENSTOCK_TEST_DIR", folder);
    if Command::new("unshare").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no unshare(1) to mount with");
        return;
    }
    let (passed, text) = process::run(command);
    if text.contains("no mount") || text.contains("unshare: ") {
        eprintln!("SKIPPED: may not mount: {text}");
        return;
    }
    assert!(passed, "{text}");
}

/// Namespaces in which a user without rights may mount.
pub const OF_USER: [&str; 2] = ["--user", "--map-root-user"];

/// Makes writes beyond this size of a file fail. Changes this process, which runs nothing else.
pub fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the signal gets no handler, and the limit is a valid struct.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}
