//! Counts the driver's calls, bytes and time for one file, by the path of the bytes.
//!
//! If `PENSTOCK_REPORT_DIR` names a folder, the driver appends a line of JSON to the file
//! `PID.jsonl` in it when a file is opened and when it is closed. A file without the second line
//! was open when the process crashed.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use penstock_engine::Recover;
use penstock_engine::file::position::Operation;
use penstock_engine::report::{PATHS, Path, Report};
use penstock_sys::environment;
use serde_json::{Map, Value, json};

use crate::sieve::Joined;

/// A path between the file and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// HDF5's own data, in host memory.
    Metadata,
    /// GPU data through a pageable buffer, without the engine.
    Pageable,
    /// GPU data through a pinned buffer, without the engine.
    Pinned,
    /// Raw data by one of the paths of the engine's reports.
    By(Path),
}

const WAYS: usize = 3 + PATHS.len();

impl Way {
    fn index(self) -> usize {
        match self {
            Way::Metadata => 0,
            Way::Pageable => 1,
            Way::Pinned => 2,
            Way::By(path) => 3 + path as usize,
        }
    }

    fn all() -> impl Iterator<Item = Way> {
        let own = [Way::Metadata, Way::Pageable, Way::Pinned];
        own.into_iter().chain(PATHS.map(Way::By))
    }

    fn name(self) -> &'static str {
        match self {
            Way::Metadata => "metadata",
            Way::Pageable => "pageable",
            Way::Pinned => "pinned",
            Way::By(path) => path.name(),
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    calls: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl Line {
    fn add(&self, bytes: u64, ns: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
    }

    /// Returns the counts as JSON; `None` if there were no calls.
    fn json(&self) -> Option<Value> {
        let calls = self.calls.load(Relaxed);
        let (bytes, ns) = (self.bytes.load(Relaxed), self.ns.load(Relaxed));
        (calls > 0).then(|| json!({"calls": calls, "bytes": bytes, "ns": ns}))
    }
}

#[derive(Debug)]
pub(crate) struct Account {
    /// Number of the file in this process, from 1.
    number: u64,
    opened: Instant,
    read: [Line; WAYS],
    write: [Line; WAYS],
    /// Copies to or from GPU memory, by [`H5FD_CTL_MEM_COPY`](penstock_sys::hdf5::driver).
    copies: Line,
    notes: Mutex<Vec<String>>,
}

/// Largest number of notes; each is stored once.
const MAX_NOTES: usize = 16;

impl Account {
    pub(crate) fn new() -> Account {
        static FILES: AtomicU64 = AtomicU64::new(0);
        Account {
            number: FILES.fetch_add(1, Relaxed) + 1,
            opened: Instant::now(),
            read: Default::default(),
            write: Default::default(),
            copies: Line::default(),
            notes: Mutex::default(),
        }
    }

    fn lines(&self, operation: Operation) -> &[Line; WAYS] {
        match operation {
            Operation::Read => &self.read,
            Operation::Write => &self.write,
        }
    }

    /// Counts one call that moved `bytes` and began at `since`.
    pub(crate) fn moved(&self, operation: Operation, way: Way, bytes: u64, since: Instant) {
        self.lines(operation)[way.index()].add(bytes, nanoseconds(since));
    }

    /// Counts ranges of host memory that the sieve moved together. Ranges to be written count when
    /// the sieve takes them.
    pub(crate) fn joined(&self, operation: Operation, joined: &Joined) {
        if joined.calls > 0 {
            let line = &self.lines(operation)[Way::By(Path::HostBuffered).index()];
            line.calls.fetch_add(joined.calls, Relaxed);
            line.bytes.fetch_add(joined.bytes, Relaxed);
            if joined.ns > 0 {
                line.ns.fetch_add(joined.ns, Relaxed);
            }
        }
    }

    /// Counts one transfer by the engine. If it took several paths, each gets its share of the
    /// time.
    pub(crate) fn moved_by_engine(&self, operation: Operation, report: &Report, since: Instant) {
        let total = report.bytes().max(1);
        let elapsed = nanoseconds(since);
        for path in PATHS {
            let bytes = report.bytes_by(path);
            if bytes > 0 {
                let share = (u128::from(elapsed) * u128::from(bytes) / u128::from(total)) as u64;
                self.lines(operation)[Way::By(path).index()].add(bytes, share);
            }
        }
        if !report.note.is_empty() {
            self.note(&report.note);
        }
    }

    /// Counts one copy to or from GPU memory. Copies within host memory are not counted: HDF5
    /// requests one for each row of a chunk, and counting would take as long as the copy.
    pub(crate) fn copied(&self, bytes: u64, since: Instant) {
        self.copies.add(bytes, nanoseconds(since));
    }

    pub(crate) fn note(&self, text: &str) {
        let mut notes = self.notes.lock().recover();
        if notes.len() < MAX_NOTES && !notes.iter().any(|note| note == text) {
            notes.push(text.to_owned());
        }
    }

    fn begin(&self, event: &str, path: &FilePath, mode: &str) -> Value {
        let (file, path) = (self.number, path.to_string_lossy());
        json!({"event": event, "file": file, "path": path, "driver": "penstock", "mode": mode})
    }

    /// Returns all counts so far as JSON.
    pub(crate) fn json(&self, event: &str, path: &FilePath, mode: &str) -> Value {
        let by_way = |lines: &[Line; WAYS]| -> Map<String, Value> {
            let counted = Way::all().filter_map(|way| {
                let line = lines[way.index()].json()?;
                Some((way.name().to_owned(), line))
            });
            counted.collect()
        };
        let mut report = self.begin(event, path, mode);
        report["open_ns"] = nanoseconds(self.opened).into();
        report["read"] = by_way(&self.read).into();
        report["write"] = by_way(&self.write).into();
        if let Some(copies) = self.copies.json() {
            report["copies"] = copies;
        }
        report["notes"] = self.notes.lock().recover().clone().into();
        report
    }

    /// Appends the line of an opened file to the report, if one is requested.
    pub(crate) fn report_opened(&self, path: &FilePath, mode: &str) {
        if let Some(folder) = report_folder() {
            add_line(folder, &self.begin("opened", path, mode));
        }
    }

    pub(crate) fn report_closed(&self, path: &FilePath, mode: &str) {
        if let Some(folder) = report_folder() {
            add_line(folder, &self.json("closed", path, mode));
        }
    }
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn report_folder() -> Option<&'static FilePath> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| environment::path("PENSTOCK_REPORT_DIR").map(PathBuf::from))
        .as_deref()
}

/// Appends a line with one write, so that lines of different threads do not mix. If the write
/// fails, the line is missing: a report must not fail the program's own I/O.
fn add_line(folder: &FilePath, line: &Value) {
    let name = folder.join(format!("{}.jsonl", std::process::id()));
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(name) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_were_taken_are_reported() {
        let account = Account::new();
        account.moved(Operation::Read, Way::Metadata, 512, Instant::now());
        account.moved(Operation::Read, Way::Metadata, 96, Instant::now());
        account.moved(Operation::Write, Way::Pinned, 7, Instant::now());
        account.note("a note");
        account.note("a note");
        let json = account.json("closed", FilePath::new("a.h5"), "sec2+pinned");
        assert_eq!(json["read"]["metadata"]["calls"], 2);
        assert_eq!(json["read"]["metadata"]["bytes"], 608);
        assert_eq!(json["write"]["pinned"]["bytes"], 7);
        assert_eq!(json["read"].as_object().map(Map::len), Some(1));
        assert_eq!(json["mode"], "sec2+pinned");
        assert_eq!(json["notes"], json!(["a note"]));
    }

    #[test]
    fn each_path_has_its_own_index_and_name() {
        let mut names: Vec<&str> = Way::all().map(Way::name).collect();
        let indices: Vec<usize> = Way::all().map(Way::index).collect();
        assert_eq!(indices, (0..WAYS).collect::<Vec<_>>());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WAYS);
    }
}
