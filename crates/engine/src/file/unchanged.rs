//! Whether bytes that were read from a file may be kept for later reads.
//!
//! They may be kept for [`MAX_AGE`], and longer only if the status of the file shows no change
//! since.
//! A lock does not replace this check, because programs that take no lock can write. But a lock
//! guarantees that no program that takes locks is in the middle of a write.

use std::fs::Metadata;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::stat_of;
use super::system::FileSystem;

/// How long bytes of a file are kept while other processes may change it. Also the age limit of the
/// blocks of the HDF5 driver's sieve.
pub const MAX_AGE: Duration = Duration::from_millis(20);

/// Time after which a change of a file without a lock counts as complete: the system sets the times
/// when a write begins, before its bytes can be read.
const SETTLED: Duration = Duration::from_secs(10);

/// The longest step of the clock by which Linux sets the times of a file.
const STEP: Duration = Duration::from_millis(20);

/// As [`STEP`], for a file system without fractions of seconds.
const COARSE_STEP: Duration = Duration::from_secs(2);

/// The state of an open file at the time of a read.
#[derive(Debug)]
pub struct Unchanged {
    descriptor: RawFd,
    before: Option<Status>,
    /// The time at which `before` was queried, since 1970.
    queried: Duration,
    /// Whether no write was in progress, determined on first use.
    is_settled: OnceLock<bool>,
    /// When the file was last known to be unchanged.
    checked: AtomicI64,
}

impl Unchanged {
    /// Records the state of the file. Must be called before the read of what is to be kept. The
    /// descriptor may be closed afterwards.
    pub fn since_now(descriptor: RawFd) -> Unchanged {
        let checked = AtomicI64::new(milliseconds());
        let queried = SystemTime::now().duration_since(UNIX_EPOCH);
        Unchanged {
            descriptor,
            queried: queried.unwrap_or_default(),
            before: Status::of(descriptor),
            is_settled: OnceLock::new(),
            checked,
        }
    }

    /// Returns whether the bytes that were read may still be used. Makes at most one system call
    /// per [`MAX_AGE`].
    #[inline]
    pub fn holds(&self) -> bool {
        let now = milliseconds();
        now - self.checked.load(Relaxed) <= MAX_AGE.as_millis() as i64 || self.is_same(now)
    }

    #[cold]
    fn is_same(&self, now: i64) -> bool {
        let is_same = self.before.is_some()
            && Status::of(self.descriptor) == self.before
            && self.is_settled();
        if is_same {
            self.checked.store(now, Relaxed);
        }
        is_same
    }

    /// Returns the status of the file if every later change gives it another status, also after the
    /// lock is released. Of two changes within one step of the clock, the second leaves the times
    /// as they are. The descriptor must still be open.
    pub fn status(&self) -> Option<Status> {
        let before = self.before?;
        (self.age()? > before.step() && self.is_settled()).then_some(before)
    }

    /// Returns whether no write was in progress. A lock excludes writers that take locks.
    fn is_settled(&self) -> bool {
        let is_old = || self.age().is_some_and(|age| age > SETTLED);
        let find = || is_old() || keeps_writers_out(self.descriptor);
        *self.is_settled.get_or_init(find)
    }

    /// Returns the time from the last change to the query of the status.
    fn age(&self) -> Option<Duration> {
        self.before?.age(self.queried)
    }
}

/// The parts of a file's status that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Device and inode.
    pub file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Status {
    /// Returns the status of the file at a path, if a later change by another program gives it another
    /// one: not of a file that changed within the last step of the clock.
    pub fn settled(meta: &Metadata) -> Option<Status> {
        let status = Status {
            file: (meta.dev(), meta.ino()),
            size: meta.size() as i64,
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        (status.age(now)? > status.step()).then_some(status)
    }

    /// Returns the time from the last change to `now`, both since 1970.
    fn age(&self, now: Duration) -> Option<Duration> {
        let (seconds, nanoseconds) = self.changed.max(self.modified);
        let last = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        Some(now.saturating_sub(last))
    }

    /// Returns the step of the clock that sets the times of the file.
    fn step(&self) -> Duration {
        let is_coarse = self.changed.1 == 0 || self.modified.1 == 0;
        if is_coarse { COARSE_STEP } else { STEP }
    }

    fn of(descriptor: RawFd) -> Option<Status> {
        let stat = stat_of(&descriptor).ok()?;
        Some(Status {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

/// Returns whether an open file holds a lock (`flock`), which excludes writers that take one. The
/// lock is looked up, because HDF5 may be set to lock a file whose file system has no locks. Locks
/// of a network file system may apply to one host only.
fn keeps_writers_out(descriptor: RawFd) -> bool {
    FileSystem::has_locks_for_all(descriptor)
        && std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).is_ok_and(|about| {
            let is_lock = |line: &str| line.starts_with("lock:") && line.contains("FLOCK");
            about.lines().any(is_lock)
        })
}

/// The coarse clock, in milliseconds. It takes a tenth of the time of the precise one, with an
/// error of some milliseconds.
fn milliseconds() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::thread::sleep;

    fn flock(file: &File, how: i32) {
        // SAFETY: flock on an open descriptor touches no memory.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    }

    fn modified_long_ago(file: &File) -> Unchanged {
        Unchanged {
            is_settled: true.into(),
            ..Unchanged::since_now(file.as_raw_fd())
        }
    }

    #[test]
    fn bytes_under_a_lock_are_kept() {
        let file = tempfile::tempfile().unwrap();
        flock(&file, libc::LOCK_SH);
        let known = Unchanged::since_now(file.as_raw_fd());
        sleep(2 * MAX_AGE);
        assert!(known.holds());
        flock(&file, libc::LOCK_UN);
        assert_eq!(Unchanged::since_now(file.as_raw_fd()).status(), None);
    }

    #[test]
    fn a_change_by_a_program_that_takes_no_lock_is_seen_under_a_lock() {
        let mut file = tempfile::tempfile().unwrap();
        flock(&file, libc::LOCK_SH);
        sleep(2 * STEP);
        let known = Unchanged::since_now(file.as_raw_fd());
        file.write_all(b"new").unwrap();
        sleep(2 * MAX_AGE);
        assert!(!known.holds());
    }

    #[test]
    fn without_a_lock_bytes_are_kept_until_a_change_is_seen() {
        let mut file = tempfile::tempfile().unwrap();
        let known = modified_long_ago(&file);
        sleep(2 * MAX_AGE);
        assert!(known.holds());
        file.write_all(b"new").unwrap();
        sleep(2 * MAX_AGE);
        assert!(!known.holds());
    }

    #[test]
    fn bytes_of_a_file_that_has_just_changed_are_kept_briefly() {
        let file = tempfile::tempfile().unwrap();
        let known = Unchanged::since_now(file.as_raw_fd());
        sleep(2 * MAX_AGE);
        assert!(!known.holds());
    }
}
