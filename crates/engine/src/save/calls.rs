//! System calls on names in a folder that is a descriptor, repeated when a signal interrupts them.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::file::{answer, stat_of, uninterrupted};

/// Whether both descriptors are of the same file.
pub(super) fn is_same(one: &impl AsRawFd, other: &impl AsRawFd) -> io::Result<bool> {
    let (one, other) = (stat_of(one)?, stat_of(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Fails unless the effective user may write the file, which has the name in the folder. Unlike
/// open(2), it wakes no watcher of the file, and closing the file releases no lock of this process
/// on it.
pub(super) fn may_write(file: &OwnedFd, folder: RawFd, name: &CStr) -> io::Result<()> {
    let entry = entry_of(file.as_raw_fd());
    // The C library emulates the flag AT_SYMLINK_NOFOLLOW from the mode alone where faccessat2(2)
    // is missing.
    let may = match access(libc::AT_FDCWD, &entry, libc::AT_EACCESS) {
        // A seccomp filter may deny faccessat2(2), which faccessat(3) calls with any flags.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && has_one_user() => {
            // SAFETY: `entry` is a C string that outlives the call.
            uninterrupted(|| answer(unsafe { libc::access(entry.as_ptr(), libc::W_OK) }))
        }
        may => may,
    };
    match may {
        // There is no /proc here.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            access(folder, name, libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW)
        }
        may => may,
    }
}

fn access(folder: RawFd, name: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: `name` is a C string that outlives the call.
    uninterrupted(|| answer(unsafe { libc::faccessat(folder, name.as_ptr(), libc::W_OK, flags) }))
}

/// Whether the real user and group are the effective ones.
fn has_one_user() -> bool {
    // SAFETY: these read numbers of this process.
    unsafe { libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid() }
}

/// The target of an opened symbolic link.
pub(super) fn read_link(link: &OwnedFd) -> io::Result<PathBuf> {
    let mut text = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer is valid for the length that is passed.
    let length = unsafe {
        libc::readlinkat(
            link.as_raw_fd(),
            c"".as_ptr(),
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    text.truncate(length);
    Ok(OsString::from_vec(text).into())
}

pub(super) fn remove(folder: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is a C string that outlives the call.
    uninterrupted(|| answer(unsafe { libc::unlinkat(folder, name.as_ptr(), 0) }))
}

/// Renames a file within its folder, and replaces the file that has the new name.
pub(super) fn rename(folder: RawFd, from: &CStr, to: &CStr) -> io::Result<()> {
    uninterrupted(|| {
        // SAFETY: both are C strings that outlive the call.
        answer(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) })
    })
}

/// Closes a second descriptor of a file. NFS then sends what was written, and may only now report
/// that the disk is full.
pub(super) fn close_copy(fd: RawFd) -> io::Result<()> {
    // SAFETY: this makes and closes a descriptor that nothing else has.
    unsafe {
        let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
        answer(copy)?;
        answer(libc::close(copy))
    }
}

/// Names a file that has no name. No file of the folder has the name yet.
pub(super) fn link(fd: RawFd, folder: RawFd, name: &CStr) -> io::Result<()> {
    let from = entry_of(fd);
    uninterrupted(|| {
        // SAFETY: both are C strings that outlive the call.
        answer(unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                from.as_ptr(),
                folder,
                name.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        })
    })
}

/// The path of a descriptor under /proc. It leads to the file under any name.
pub(super) fn entry_of(fd: RawFd) -> CString {
    CString::new(format!("/proc/self/fd/{fd}")).expect("no zero byte")
}
