//! Replacing a whole file atomically: temporary name, write, fsync, rename, fsync of the folder.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::file::{Access, File, open_fd};
use crate::options::Options;

/// Opens a new temporary file in the folder of `target`, so that a rename can put it in place.
pub(crate) fn temporary(target: &Path, options: Options) -> Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if target.file_name().is_none() {
        return Err(Error::invalid("the path names no file").in_file(target));
    }
    if target.is_dir() {
        return Err(Error::os(
            &std::io::Error::from_raw_os_error(libc::EISDIR),
            "cannot replace the file",
        )
        .in_file(target));
    }
    // A symbolic link stays, and what it points to is replaced.
    let target = resolved(target);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = target.with_file_name(format!(".penstock-{}-{number}", std::process::id()));
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
        match open_fd(&path, flags) {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => continue,
            Err(e) => {
                return Err(
                    Error::os(&e, "cannot create a temporary file beside the target")
                        .in_file(&target),
                );
            }
        }
        let access = Access {
            read: true,
            write: true,
            ..Access::default()
        };
        return File::open(&path, access, options).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        });
    }
}

/// Where a chain of symbolic links ends, be there a file or not; the path itself if it is none.
pub(crate) fn resolved(target: &Path) -> PathBuf {
    /// As the kernel has it.
    const MAX_LINKS: usize = 40;
    let mut path = target.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            // Relative to the folder of the link; an absolute one replaces it all.
            Ok(next) => path = path.with_file_name("").join(next),
            Err(_) => break,
        }
    }
    path
}

/// Puts the written temporary file in the place of `target`.
pub(crate) fn publish(file: &File, target: &Path, durable: bool) -> Result<()> {
    if durable {
        // Before the rename: else a power failure could leave the new name with old contents.
        file.sync()?;
    }
    let target = resolved(target);
    if let Ok(present) = fs::metadata(&target) {
        // Best effort, as for any program that replaces a file: the owner may differ.
        let _ = fs::set_permissions(file.path(), present.permissions());
    }
    fs::rename(file.path(), &target)
        .map_err(|e| Error::os(&e, "cannot put the new file in place").in_file(&target))?;
    if durable {
        sync_folder_of(&target)?;
    }
    Ok(())
}

/// Removes a temporary file whose request failed.
pub(crate) fn discard(file: &File) {
    // The failure of the request is what the caller gets to see.
    let _ = fs::remove_file(file.path());
}

fn sync_folder_of(target: &Path) -> Result<()> {
    let folder = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = open_fd(folder, flags)
        .map_err(|e| Error::os(&e, "cannot open the folder to sync it").in_file(target))?;
    // SAFETY: fsync on an open descriptor touches no memory of this process.
    match unsafe { libc::fsync(fd.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Error::last_os("cannot bring the folder to the medium").in_file(target)),
    }
}
