//! Keeps writes through mappings of rows apart from writes that bypass the page cache, among all
//! processes of a machine.
//!
//! A mapped page of rows also has the gaps between them. The system writes it back whole, over what
//! another process has meanwhile written to the medium into a gap. The processes need not know of
//! each other: they may have opened the file by other paths, or in another group. So the kernel
//! keeps *marks*: locks of an open file description on single bytes far beyond all data.
//!
//! 1. A request that maps rows sets a mark of its kind, and then looks for the other kind. If it
//!    finds one, it removes its own and maps nothing.
//! 2. A request that bypasses the page cache sets a mark, and then waits until no request maps rows.
//!    The system has then unmapped the pages, and writes them back before it writes directly.
//!
//! Each sets its own mark first, so of two requests at least one sees the other. No request waits
//! for one that bypasses the page cache. The kernel removes the marks of a process that ends. A stopped
//! process keeps them, so the wait has a limit.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::File;

/// The bytes for the marks of one kind.
#[derive(Clone, Copy)]
struct Place(libc::off_t);

impl Place {
    /// Whether a lock is a mark, or several, and not a larger one, such as of the whole file, under which
    /// no mark can be set.
    fn holds(self, lock: &libc::flock) -> bool {
        let places = self.0..self.0 + PLACES;
        places.contains(&lock.l_start) && (1..=places.end - lock.l_start).contains(&lock.l_len)
    }
}

const PLACES: libc::off_t = 1 << 60;
const ROWS: Place = Place(1 << 61);
const BYPASS: Place = Place((1 << 61) + PLACES);

/// A mark, which is removed when this value is dropped. The file must be open until then.
pub(crate) struct Mark {
    fd: RawFd,
    at: libc::off_t,
    /// The process that set it. A forked child has the same open file description.
    process: u32,
}

impl File {
    /// Marks the file for a request that maps rows; `None` if rows must not be mapped now.
    pub(crate) fn mark_rows(&self) -> Option<Mark> {
        let fd = self.buffered_fd();
        let mark = Mark::set(fd, ROWS)?;
        lock_in(fd, BYPASS).is_none().then_some(mark)
    }

    /// Marks the file for a request that bypasses the page cache, which begins when no other
    /// [`has_rows`](Self::has_rows). `None` on file systems where no rows are mapped.
    pub(crate) fn mark_bypass(&self) -> Option<Mark> {
        let fd = self.direct_fd()?;
        let may_map = self.system().may_map_rows();
        may_map.then(|| Mark::set(fd, BYPASS)).flatten()
    }

    /// Whether a request maps rows.
    pub(crate) fn has_rows(&self) -> bool {
        self.system().may_map_rows()
            && self
                .direct_fd()
                .and_then(|fd| lock_in(fd, ROWS))
                .is_some_and(|lock| ROWS.holds(&lock))
    }
}

impl Mark {
    /// `None` if another program has locked all places, or the file system has no locks.
    fn set(fd: RawFd, place: Place) -> Option<Mark> {
        static NEXT: AtomicI64 = AtomicI64::new(0);
        // Processes in containers may have the same number.
        const TRIALS: usize = 16;
        (0..TRIALS).find_map(|_| {
            let process = std::process::id();
            let own = i64::from(process) << 28;
            // The kernel joins locks of one owner that touch.
            let at = place.0 + (own + NEXT.fetch_add(2, Relaxed)) % PLACES;
            let mut lock = lock_of(libc::F_WRLCK, at, 1);
            // SAFETY: fcntl reads the description of the lock.
            let status = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw mut lock) };
            (status == 0).then_some(Mark { fd, at, process })
        })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut lock = lock_of(libc::F_UNLCK, self.at, 1);
        // SAFETY: as above.
        unsafe { libc::fcntl(self.fd, libc::F_OFD_SETLK, &raw mut lock) };
    }
}

/// Returns a lock of another open file description in these places.
fn lock_in(fd: RawFd, place: Place) -> Option<libc::flock> {
    let mut lock = lock_of(libc::F_WRLCK, place.0, PLACES);
    // SAFETY: fcntl replaces the description by that of a lock in its way.
    let status = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) };
    (status == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock)
}

fn lock_of(kind: libc::c_int, start: libc::off_t, length: libc::off_t) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::file::Access;
    use crate::options::Options;

    fn open(path: &std::path::Path) -> Arc<File> {
        let access = Access {
            create: true,
            ..Access::READ_WRITE
        };
        Arc::new(File::open(path, access, Options::default()).unwrap())
    }

    /// Two openings, the second by another name.
    fn twice(folder: &tempfile::TempDir) -> Option<(Arc<File>, Arc<File>)> {
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        let first = open(&path);
        std::fs::hard_link(&path, &link).unwrap();
        let second = open(&link);
        if second.direct_fd().is_none() {
            eprintln!("SKIPPED: the file system of the tests has no direct I/O");
            return None;
        }
        Some((first, second))
    }

    #[test]
    fn rows_are_not_mapped_while_another_opening_bypasses_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let Some((first, second)) = twice(&folder) else {
            return;
        };
        let bypass = [second.mark_bypass(), second.mark_bypass()];
        assert!(bypass.iter().all(Option::is_some));
        assert!(first.mark_rows().is_none());
        assert!(second.mark_rows().is_none());
        let [one, other] = bypass;
        drop(one);
        assert!(first.mark_rows().is_none());
        drop(other);
        let rows = [first.mark_rows(), first.mark_rows(), second.mark_rows()];
        assert!(rows.iter().all(Option::is_some));
    }

    #[test]
    fn a_file_has_rows_until_all_requests_that_map_them_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let Some((first, second)) = twice(&folder) else {
            return;
        };
        let [one, other] = [first.mark_rows().unwrap(), first.mark_rows().unwrap()];
        let bypass = second.mark_bypass();
        assert!(bypass.is_some() && second.has_rows());
        assert!(first.has_rows(), "its descriptors differ");
        drop(one);
        assert!(second.has_rows());
        drop(other);
        assert!(!second.has_rows());
    }

    #[test]
    fn a_forked_child_removes_no_mark() {
        let folder = tempfile::tempdir().unwrap();
        let Some((first, second)) = twice(&folder) else {
            return;
        };
        let (rows, mut status) = (first.mark_rows(), 0);
        assert!(rows.is_some());
        // SAFETY: the child only drops its copy of the mark, which frees no memory, and exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                drop(rows);
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert_eq!(status, 0);
        assert!(second.has_rows());
        drop(rows);
        assert!(!second.has_rows());
    }

    #[test]
    fn a_lock_of_the_whole_file_stops_mappings_and_no_direct_write() {
        let folder = tempfile::tempdir().unwrap();
        let Some((first, second)) = twice(&folder) else {
            return;
        };
        let mut whole = lock_of(libc::F_WRLCK, 0, 0);
        let third = open(first.path());
        // SAFETY: fcntl reads the description of the lock.
        let status = unsafe { libc::fcntl(third.buffered_fd(), libc::F_OFD_SETLK, &raw mut whole) };
        assert_eq!(status, 0);
        assert!(first.mark_rows().is_none());
        assert!(second.mark_bypass().is_none() && !second.has_rows());
    }
}
