//! Detects, without a call of HDF5, that HDF5 has closed a file.
//!
//! HDF5 does not report that it closes a file, and its descriptor may then belong to another file, or
//! to the same file opened again. So the open file description of the descriptor gets a mark, which a
//! later one lacks: the signal that the system would send when input becomes possible (`F_SETSIG`). The
//! system sends it only with `O_ASYNC`, which has no effect on files of file systems.

use std::os::fd::RawFd;

/// Linux' number of `F_SETSIG`, which the bindings of the C library lack.
const F_SETSIG: i32 = 10;
/// Linux' number of `F_GETSIG`, which the bindings of the C library lack.
const F_GETSIG: i32 = 11;

/// The mark: a signal that is ignored by default. Unmarked files have 0.
const MARK: i32 = libc::SIGURG;

/// An open file that was marked.
#[derive(Clone, Copy, Debug)]
pub(in crate::transfer) struct MarkedFile {
    /// The descriptor; `None` if the system has no marks.
    descriptor: Option<RawFd>,
}

impl MarkedFile {
    /// Marks the open file of a descriptor.
    pub(in crate::transfer) fn mark(descriptor: RawFd) -> MarkedFile {
        // SAFETY: F_SETSIG on a descriptor touches no memory.
        let status = unsafe { libc::fcntl(descriptor, F_SETSIG, MARK) };
        MarkedFile {
            descriptor: (status == 0).then_some(descriptor),
        }
    }

    /// Returns whether the file is open; true if the system has no marks.
    pub(in crate::transfer) fn is_open(self) -> bool {
        // SAFETY: F_GETSIG on a descriptor, even on one that is closed, touches no memory.
        self.descriptor
            .is_none_or(|descriptor| unsafe { libc::fcntl(descriptor, F_GETSIG) } == MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_file_is_open_until_its_descriptor_is_closed_or_of_another_file() {
        let file = File::open("/proc/self/exe").unwrap();
        // Far from the descriptors that other tests get.
        // SAFETY: the descriptors are this test's own.
        let descriptor = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) };
        let marked = MarkedFile::mark(descriptor);
        assert!(marked.is_open());

        let again = File::open("/proc/self/exe").unwrap().into_raw_fd();
        // SAFETY: as above.
        unsafe {
            libc::dup2(again, descriptor);
            libc::close(again);
        }
        assert!(!marked.is_open(), "the same file, opened again");

        // SAFETY: as above.
        unsafe { libc::close(descriptor) };
        assert!(!marked.is_open());
    }
}
