//! Descriptors that workers do not share.
//!
//! Each system call changes the count of references to the open file description. Threads that shared
//! one made 5 million reads a second together, 8 as many as 16, and those of two processes 7 million
//! (Linux 6.18, an H200 host).

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::room::limit;
use super::{File, open_again};
use crate::sync::Recover;

/// The descriptors of single workers that all files hold.
static HELD: AtomicU64 = AtomicU64::new(0);
/// They are at most one in so many of those that the process may open.
const SHARE: u64 = 8;

/// A count in [`HELD`].
struct Held;

impl Held {
    /// `None` if the files hold as many as they may.
    fn take() -> Option<Held> {
        let most = limit(libc::RLIMIT_NOFILE)? / SHARE;
        let one_more = |held| (held < most).then_some(held + 1);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()
            .map(|_| Held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor that one worker at a time uses.
pub(super) struct OwnDescriptor {
    fd: OwnedFd,
    _held: Held,
}

/// A descriptor of a file, for reads by one worker.
pub(crate) struct Reader<'a> {
    file: &'a File,
    descriptor: Option<OwnDescriptor>,
}

impl File {
    /// A descriptor for the sole use of one worker; `None` if the file cannot be opened again, or all
    /// files hold many already.
    ///
    /// The file keeps it until it is closed, since closing any descriptor of a file releases the POSIX
    /// record locks of the process on that file.
    pub(crate) fn reader(&self) -> Option<Reader<'_>> {
        let idle = self.readers.lock().recover().pop();
        let open = || {
            let _held = Held::take()?;
            let fd = open_again(self.buffered_fd(), &self.path, libc::O_RDONLY).ok()?;
            Some(OwnDescriptor { fd, _held })
        };
        let descriptor = idle.or_else(open)?;
        Some(Reader {
            file: self,
            descriptor: Some(descriptor),
        })
    }
}

impl Reader<'_> {
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(|own| own.fd.as_raw_fd())
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.file
            .readers
            .lock()
            .recover()
            .extend(self.descriptor.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::file::Access;
    use crate::options::Options;

    #[test]
    fn workers_read_by_descriptors_that_later_ones_take_over() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(file.path(), Access::READ, Options::default()).unwrap();
        let (one, other) = (file.reader().unwrap(), file.reader().unwrap());
        let mut first = [one.fd(), other.fd()];
        assert!(one.fd() != other.fd() && !first.contains(&Some(file.buffered_fd())));
        drop((one, other));
        let (one, other) = (file.reader().unwrap(), file.reader().unwrap());
        let mut later = [one.fd(), other.fd()];
        first.sort_unstable();
        later.sort_unstable();
        assert_eq!(first, later);
    }

    #[test]
    fn a_file_that_has_lost_its_name_is_opened_again() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(named.path(), Access::READ, Options::default()).unwrap();
        drop(named);
        assert!(file.reader().is_some());
    }
}
