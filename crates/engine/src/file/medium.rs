//! Brings files and their names to the medium.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::{answer, is_unable, metadata_of, open_fd, path_of, uninterrupted};
use crate::error::{Error, Result};
use crate::recent::Recent;

/// A file by device, inode and the time of its creation, which distinguishes it from a later file with the inode.
type Identity = (u64, u64, SystemTime);

/// The files whose names [`sync`] has brought to the medium.
static NAMED: Recent<Identity> = Recent::new();

/// Brings data and size of an open file to the medium and, the first time in this process, its name, since the file may
/// be new. `path` is the name in errors, and leads to the file where there is no /proc.
///
/// # Errors
/// The failed system call. An unknown part of the data is then on the medium.
pub fn sync(descriptor: RawFd, path: &Path) -> Result<()> {
    // SAFETY: fdatasync on an open descriptor touches no memory of this process.
    uninterrupted(|| answer(unsafe { libc::fdatasync(descriptor) }))
        .map_err(|e| Error::os(&e, "cannot bring the data to the medium").in_file(path))?;
    sync_name(descriptor, path).map_err(|e| {
        let action = "the data are on the medium, but a new file may not survive a power failure, \
                      because its folder cannot be brought to the medium";
        Error::os(&e, action)
            .remedy("look at the kernel log (dmesg), then repeat the call")
            .in_file(path)
    })
}

fn sync_name(descriptor: RawFd, path: &Path) -> io::Result<()> {
    let about = metadata_of(descriptor)?;
    if !about.is_file() || about.nlink() == 0 {
        return Ok(());
    }
    let identity = identity_of(&about);
    if identity.is_some_and(|file| NAMED.has(&file)) {
        return Ok(());
    }
    let found = fs::read_link(path_of(descriptor)).or_else(|_| fs::canonicalize(path));
    let folder = found.and_then(|file| {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        open_fd(file.parent().unwrap_or(&file), flags)
    });
    sync_folder(folder, descriptor)?;
    if let Some(file) = identity {
        NAMED.add(file);
    }
    Ok(())
}

/// `None` if the file system does not record when files were created.
fn identity_of(about: &Metadata) -> Option<Identity> {
    Some((about.dev(), about.ino(), about.created().ok()?))
}

/// Brings the names in a folder to the medium. If it could not be opened, because it may be written but not read or no
/// descriptor is left, syncs the whole file system of `file`.
pub(crate) fn sync_folder(folder: io::Result<OwnedFd>, file: RawFd) -> io::Result<()> {
    match folder {
        Ok(folder) => sync_all(folder.as_raw_fd()),
        Err(_) => sync_system(file),
    }
}

/// Brings a file, with its rights, or a folder to the medium, or its whole file system where that cannot sync less.
pub(crate) fn sync_all(fd: RawFd) -> io::Result<()> {
    // SAFETY: fsync on an open descriptor touches no memory of this process.
    match uninterrupted(|| answer(unsafe { libc::fsync(fd) })) {
        Err(e) if is_unable(&e) => sync_system(fd),
        synced => synced,
    }
}

fn sync_system(fd: RawFd) -> io::Result<()> {
    // SAFETY: syncfs on an open descriptor touches no memory of this process.
    uninterrupted(|| answer(unsafe { libc::syncfs(fd) }))
}
