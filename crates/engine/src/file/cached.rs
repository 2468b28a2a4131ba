//! Reads of bytes that the page cache has, without waiting for a medium.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use super::File;

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
        match unsafe { read_now(self.buffered_fd(), buffer, offset, length) } {
            Ok(read) => read == length,
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
unsafe fn read_now(fd: RawFd, buffer: *mut u8, offset: u64, length: u64) -> Result<u64, i32> {
    let place = libc::iovec {
        iov_base: buffer.cast(),
        iov_len: length as usize,
    };
    // SAFETY: the caller vouches for the buffer.
    let read = unsafe { libc::preadv2(fd, &place, 1, offset as libc::off_t, libc::RWF_NOWAIT) };
    u64::try_from(read).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
