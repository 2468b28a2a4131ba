//! Replacing a whole file atomically: temporary name, write, fsync, rename, fsync of the folder.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::file::{Access, File, open_fd};
use crate::options::Options;

/// Which file a save to `target` replaces: an absolute path, so that a later change of the working
/// folder does not matter, with links followed, so that what a link points to is replaced.
pub(crate) fn destination(target: &Path) -> Result<PathBuf> {
    if target.file_name().is_none() {
        return Err(Error::invalid("the path names no file").in_file(target));
    }
    let absolute = std::path::absolute(target)
        .map_err(|e| Error::os(&e, "cannot find the working folder").in_file(target))?;
    let path = resolved(absolute);
    match fs::metadata(&path) {
        Ok(present) if present.is_dir() => {
            let error = std::io::Error::from_raw_os_error(libc::EISDIR);
            Err(Error::os(&error, "cannot replace the file").in_file(target))
        }
        Ok(present) if !present.is_file() => Err(Error::invalid(
            "the path is no regular file, so it cannot be replaced",
        )
        .remedy("open it and write to it instead")
        .in_file(target)),
        _ => Ok(path),
    }
}

/// Opens a new temporary file beside `destination`, so that a rename can put it in place. If that
/// exists, nobody may read the new contents who may not read the old ones.
pub(crate) fn temporary(destination: &Path, options: Options) -> Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = destination.with_file_name(format!(".penstock-{}-{number}", std::process::id()));
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
        match open_fd(&path, flags) {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => continue,
            Err(e) => {
                return Err(
                    Error::os(&e, "cannot create a temporary file beside the target")
                        .in_file(destination),
                );
            }
        }
        if let Ok(present) = fs::metadata(destination) {
            // Best effort, as for any program that replaces a file: the owner may differ. The
            // writer needs access in any case.
            let mode = present.permissions().mode() | 0o600;
            let _ = fs::set_permissions(&path, Permissions::from_mode(mode));
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
fn resolved(mut path: PathBuf) -> PathBuf {
    /// As the kernel has it.
    const MAX_LINKS: usize = 40;
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            // Relative to the folder of the link; an absolute one replaces it all.
            Ok(next) => path = path.with_file_name("").join(next),
            Err(_) => break,
        }
    }
    path
}

/// Puts the written temporary file in the place of `destination`, with its mode.
pub(crate) fn publish(file: &File, destination: &Path, durable: bool) -> Result<()> {
    if durable {
        // Before the rename: else a power failure could leave the new name with old contents.
        file.sync()?;
    }
    if let Ok(present) = fs::metadata(destination) {
        let _ = fs::set_permissions(file.path(), present.permissions());
    }
    fs::rename(file.path(), destination)
        .map_err(|e| Error::os(&e, "cannot put the new file in place").in_file(destination))?;
    if durable {
        sync_folder_of(destination)?;
    }
    Ok(())
}

/// Removes a temporary file whose request failed.
pub(crate) fn discard(file: &File) {
    // The failure of the request is what the caller gets to see.
    let _ = fs::remove_file(file.path());
}

fn sync_folder_of(target: &Path) -> Result<()> {
    let folder = target.parent().unwrap_or(Path::new("/"));
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = open_fd(folder, flags)
        .map_err(|e| Error::os(&e, "cannot open the folder to sync it").in_file(target))?;
    // SAFETY: fsync on an open descriptor touches no memory of this process.
    match unsafe { libc::fsync(fd.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Error::last_os("cannot bring the folder to the medium").in_file(target)),
    }
}
