//! The log of a run: a line for each call that could have gone on in the background, and why it did
//! not.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_engine::error::{Error, Result};

/// A file that lines are added to. Processes may share it.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Its bytes move in the background.
    Async,
    /// It is done when it is waited for, or when its file is flushed or closed.
    Deferred,
    /// It was done when it returned.
    Sync,
}

impl Manner {
    fn word(self) -> &'static str {
        match self {
            Manner::Async => "async",
            Manner::Deferred => "deferred",
            Manner::Sync => "sync",
        }
    }
}

impl Journal {
    pub fn open(path: &Path) -> Result<Journal> {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let file = opened.map_err(|error| {
            Error::os(&error, "cannot open the log of the option log").in_file(path)
        })?;
        Ok(Journal { file })
    }

    /// Adds a line. What cannot be written is left out: the log is not worth failing a transfer.
    pub fn tell(&self, call: &CStr, manner: Manner, bytes: u64, why: &str) {
        let line = line(since_epoch(), &call.to_string_lossy(), manner, bytes, why);
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

/// Microseconds, as H5ES counts them.
pub fn since_epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |passed| passed.as_micros() as u64)
}

fn line(now: u64, call: &str, manner: Manner, bytes: u64, why: &str) -> String {
    let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
    let mut line = format!("{seconds}.{micros:06} {call} {}", manner.word());
    if bytes > 0 {
        line.push_str(&format!(" {bytes} bytes"));
    }
    if !why.is_empty() {
        line.push_str(": ");
        // One line a call, whatever the reason quotes.
        line.extend(why.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_time_call_manner_and_reason() {
        let text = line(
            1_000_000_000_000_007,
            "H5Dwrite_async",
            Manner::Sync,
            0,
            "why\nnot",
        );
        assert_eq!(text, "1000000000.000007 H5Dwrite_async sync: why not\n");
        let text = line(5, "H5Dread_async", Manner::Async, 4096, "");
        assert_eq!(text, "0.000005 H5Dread_async async 4096 bytes\n");
    }

    #[test]
    fn lines_are_added_to_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for call in [c"one", c"two"] {
            let journal = Journal::open(&path).unwrap();
            journal.tell(call, Manner::Async, 0, "");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let missing = Journal::open(&folder.path().join("none/log")).unwrap_err();
        assert!(missing.to_string().contains("option log"), "{missing}");
    }
}
