//! Reads of bytes that the page cache has, without waiting for a medium.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use super::{File, FileSystem};

impl File {
    /// Whether [`read_cached`](Self::read_cached) may succeed.
    pub fn may_read_cached(&self) -> bool {
        !self.refuses_cached_reads.load(Relaxed)
    }

    /// Reads a range if the page cache has all of it. Otherwise returns false, with an unknown part
    /// of the buffer changed.
    ///
    /// # Safety
    /// `buffer` is writable for `length` bytes of host memory, which no other code touches until
    /// the call returns.
    pub unsafe fn read_cached(&self, buffer: *mut u8, offset: u64, length: u64) -> bool {
        // SAFETY: passed on.
        match unsafe { read_now(self.buffered_fd(), buffer, offset, length, libc::RWF_NOWAIT) } {
            Ok(read) => read == length,
            // A file in memory has no medium, and tmpfs does not know the flag.
            Err(libc::EOPNOTSUPP) if FileSystem::has_no_medium(self.buffered_fd()) => {
                // SAFETY: passed on.
                unsafe { read_now(self.buffered_fd(), buffer, offset, length, 0) == Ok(length) }
            }
            // An old kernel or the file system does not know the flag, or a sandbox refuses the
            // call.
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM) => {
                self.refuses_cached_reads.store(true, Relaxed);
                false
            }
            Err(_) => false,
        }
    }
}

/// Returns the number of bytes read, or the error number.
///
/// # Safety
/// As for [`File::read_cached`].
unsafe fn read_now(
    fd: RawFd,
    buffer: *mut u8,
    offset: u64,
    length: u64,
    flags: i32,
) -> Result<u64, i32> {
    let place = libc::iovec {
        iov_base: buffer.cast(),
        iov_len: length as usize,
    };
    // SAFETY: the caller vouches for the buffer.
    let read = unsafe { libc::preadv2(fd, &place, 1, offset as libc::off_t, flags) };
    u64::try_from(read).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;
    use crate::file::{Access, path_of};
    use crate::options::Options;

    #[test]
    fn a_file_in_memory_is_read_as_one_in_the_page_cache() {
        // SAFETY: the name is a C string; the descriptor is this test's own.
        let mut memory = unsafe {
            std::fs::File::from_raw_fd(libc::memfd_create(c"cached".as_ptr(), libc::MFD_CLOEXEC))
        };
        memory.write_all(b"bytes").unwrap();
        let path = path_of(memory.as_raw_fd());
        let file = File::open(&path, Access::READ, Options::default()).unwrap();
        let mut found = [0; 4];
        // SAFETY: the buffer is this test's own.
        let mut read = |offset| unsafe { file.read_cached(found.as_mut_ptr(), offset, 4) };
        assert!(read(1));
        assert!(!read(3), "beyond the end");
        assert_eq!(&found[..2], b"es");
    }
}
