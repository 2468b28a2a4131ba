//! The file of a trace, in Chrome's JSON array format, which is complete whenever it is closed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, OnceLock};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::fork::{refuse_fork, watch_forks};
use crate::sync::Recover;

struct Sink {
    path: PathBuf,
    out: BufWriter<File>,
    first: bool,
    failed: Option<std::io::Error>,
}

static SINK: Mutex<Option<Sink>> = Mutex::new(None);

fn sink() -> MutexGuard<'static, Option<Sink>> {
    SINK.lock().recover()
}

/// The start of the times in a trace.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

pub(super) fn open(path: &Path) -> Result<()> {
    unsafe extern "C" fn at_exit() {
        // A forked child has a copy of the buffer, but the file belongs to its parent.
        if refuse_fork().is_err() {
            return;
        }
        // The process exits, so a failure cannot be reported.
        let _ = super::stop();
    }
    static AT_EXIT: Once = Once::new();
    watch_forks();
    close()?;
    epoch();
    let (path, file) = create(path)?;
    let path = &path;
    let mut out = BufWriter::new(file);
    out.write_all(b"[")
        .map_err(|e| Error::os(&e, "cannot write the trace").in_file(path))?;
    *sink() = Some(Sink {
        path: path.to_owned(),
        out,
        first: true,
        failed: None,
    });
    // SAFETY: the handler may run at any time until the process is gone.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(std::mem::transmute::<unsafe extern "C" fn(), extern "C" fn()>(at_exit));
    });
    Ok(())
}

/// Creates the file. If another process, such as the parent of a forked child, writes a trace to
/// this file, creates one whose name ends in the number of this process.
fn create(path: &Path) -> Result<(PathBuf, File)> {
    let failed = |e, path: &Path| Error::os(&e, "cannot create the trace file").in_file(path);
    let open = |path: &Path| {
        let mut options = File::options();
        let created = options.write(true).create(true).truncate(false).open(path);
        created.map_err(|e| failed(e, path))
    };
    let mut path = path.to_owned();
    let mut file = open(&path)?;
    if !is_ours(&file) {
        path.as_mut_os_string()
            .push(format!(".{}", std::process::id()));
        file = open(&path)?;
    }
    // What is not a regular file cannot be truncated.
    if file.metadata().is_ok_and(|status| status.is_file()) {
        file.set_len(0).map_err(|e| failed(e, &path))?;
    }
    Ok((path, file))
}

/// Locks the file for this process. Returns false if another process has locked it. Forked children
/// do not inherit the lock (fcntl(2), F_SETLK).
fn is_ours(file: &File) -> bool {
    // SAFETY: all zeros is a valid value, the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: the descriptor is open, and the lock is a valid struct.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    let locked = [libc::EACCES, libc::EAGAIN].map(Some);
    status == 0 || !locked.contains(&std::io::Error::last_os_error().raw_os_error())
}

pub(super) fn close() -> Result<()> {
    let Some(mut sink) = sink().take() else {
        return Ok(());
    };
    let ended = sink.out.write_all(b"\n]\n").and_then(|()| sink.out.flush());
    let failed = sink.failed.take().or(ended.err());
    match failed {
        None => Ok(()),
        Some(e) => Err(Error::os(&e, "cannot write the trace").in_file(&sink.path)),
    }
}

/// A complete event ("ph":"X") from `start` until now, on this thread's row.
pub(super) fn event(name: &str, category: &str, start: Instant, numbers: &[(&str, u64)]) {
    let begin = start.saturating_duration_since(epoch()).as_nanos() as f64 / 1e3;
    let length = start.elapsed().as_nanos() as f64 / 1e3;
    // SAFETY: gettid has no preconditions. glibc has a function for it since 2.30 only.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let arguments: serde_json::Map<String, serde_json::Value> = numbers
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).into()))
        .collect();
    let line = serde_json::json!({
        "name": name, "cat": category, "ph": "X", "ts": begin, "dur": length,
        "pid": std::process::id(), "tid": thread, "args": arguments,
    });
    let mut guard = sink();
    let Some(sink) = guard.as_mut() else { return };
    let separator = if sink.first { "\n" } else { ",\n" };
    sink.first = false;
    // A failure must not disturb the transfer, and is reported when the trace is stopped.
    if let Err(e) = write!(sink.out, "{separator}{line}") {
        sink.failed.get_or_insert(e);
    }
}
