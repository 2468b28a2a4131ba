//! The log of a run. Each call that could continue in the background has a line, with the reason if
//! it did not continue.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_engine::error::{Error, Result};
use penstock_sys::environment;

/// A file to which lines are appended. Several processes may share it.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    /// File in which this log reports missing lines to `penstock run`, if that runs the program.
    why_incomplete: Option<PathBuf>,
}

/// When a call's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Execution {
    /// In the background, after the call has returned.
    Async,
    /// When the application waits for it, or flushes or closes the file.
    Deferred,
    /// Before the call has returned.
    Sync,
}

impl Execution {
    fn word(self) -> &'static str {
        match self {
            Execution::Async => "async",
            Execution::Deferred => "deferred",
            Execution::Sync => "sync",
        }
    }
}

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Log> {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let file = opened.map_err(|error| {
            Error::os(&error, "cannot open the log of the option log").in_file(path)
        })?;
        let folder = environment::path("PENSTOCK_REPORT_DIR").map(PathBuf::from);
        let name = format!("{}.log-error", std::process::id());
        Ok(Log {
            file,
            why_incomplete: folder.map(|folder| folder.join(name)),
        })
    }

    /// Appends a line. An error never fails a transfer.
    pub(crate) fn add(&self, call: &CStr, execution: Execution, bytes: u64, why: &str) {
        let line = line(
            since_epoch(),
            &call.to_string_lossy(),
            execution,
            bytes,
            why,
        );
        if let (Err(error), Some(path)) = (
            (&self.file).write_all(line.as_bytes()),
            &self.why_incomplete,
        ) {
            let _ = fs::write(path, error.to_string());
        }
    }
}

/// The time in microseconds since the epoch, the unit of H5ES.
pub(crate) fn since_epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |passed| passed.as_micros() as u64)
}

fn line(now: u64, call: &str, execution: Execution, bytes: u64, why: &str) -> String {
    let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
    let mut line = format!("{seconds}.{micros:06} {call} {}", execution.word());
    if bytes > 0 {
        line.push_str(&format!(" {bytes} bytes"));
    }
    if !why.is_empty() {
        line.push_str(": ");
        // The reason may quote a text with line breaks.
        line.extend(why.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_call_execution_and_reason() {
        let text = line(
            1_000_000_000_000_007,
            "H5Dwrite_async",
            Execution::Sync,
            0,
            "why\nnot",
        );
        assert_eq!(text, "1000000000.000007 H5Dwrite_async sync: why not\n");
        let text = line(5, "H5Dread_async", Execution::Async, 4096, "");
        assert_eq!(text, "0.000005 H5Dread_async async 4096 bytes\n");
    }

    #[test]
    fn lines_are_appended_to_an_existing_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for call in [c"one", c"two"] {
            let log = Log::open(&path).unwrap();
            log.add(call, Execution::Async, 0, "");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let missing = Log::open(&folder.path().join("none/log")).unwrap_err();
        assert!(missing.to_string().contains("option log"), "{missing}");
    }
}
