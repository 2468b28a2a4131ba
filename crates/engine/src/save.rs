//! Replaces a whole file atomically.
//!
//! The new contents are a file without a name (O_TMPFILE), if the file system can make one: then
//! nobody can open it, and nothing remains of a process that is killed. Otherwise they are a
//! private file with a hidden name in the folder of the target. Before the file gets its name, it
//! gets the mode of the file that it replaces, or that of a new file.

mod hidden;

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::file::{File, answer, open_fd, open_with, uninterrupted};
use crate::options::Options;

/// The new contents of a file, which are removed when this is dropped, unless they are published.
pub(crate) struct Replacement {
    target: PathBuf,
    file: Arc<File>,
    /// The hidden name of the new file, while it has one.
    hidden: Mutex<Option<PathBuf>>,
    /// The process that may remove the file: not a forked child, which has a copy of this.
    process: u32,
}

impl Replacement {
    /// Creates an empty file in the folder of `target`, which [`destination`] found.
    pub(crate) fn begin(target: PathBuf, options: Options) -> Result<Replacement> {
        let folder = folder_of(&target);
        hidden::clear(folder);
        let failed =
            |e| Error::os(&e, "cannot create a file in the folder of the target").in_file(&target);
        let (opened, hidden) = match unnamed(folder).map_err(failed)? {
            Some(opened) => (opened, None),
            None => {
                let (opened, name) = hidden::create(folder).map_err(failed)?;
                (opened, Some(name))
            }
        };
        let file = File::of_new(opened, &target, options).inspect_err(|_| {
            hidden.iter().for_each(|name| drop(fs::remove_file(name)));
        })?;
        Ok(Replacement {
            target,
            file: Arc::new(file),
            hidden: Mutex::new(hidden),
            process: std::process::id(),
        })
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Puts the new file in the place of the target. If this fails, the target is as before, unless
    /// the error says otherwise.
    pub(crate) fn publish(&self, durable: bool) -> Result<()> {
        if durable {
            // The data comes before the name: otherwise a power failure could leave the name with
            // less.
            self.file.sync()?;
        }
        self.put_in_place()?;
        if durable {
            self.sync_folder().map_err(|e| {
                let action = "the new file is in place, but may not survive a power failure, \
                              because its folder cannot be brought to the medium";
                Error::os(&e, action)
                    .remedy("look at the kernel log (dmesg), then save again")
                    .in_file(&self.target)
            })?;
        }
        Ok(())
    }

    /// Removes the new file, if it was not published.
    pub(crate) fn discard(&self) {
        if self.process != std::process::id() {
            return;
        }
        if let Some(name) = self.hidden().take() {
            // The caller gets the failure of the request.
            let _ = uninterrupted(|| fs::remove_file(&name));
        }
    }

    fn hidden(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.hidden.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn put_in_place(&self) -> Result<()> {
        let failed = |e| Error::os(&e, "cannot put the new file in place").in_file(&self.target);
        let mut hidden = self.hidden();
        let is_new = self.take_mode(hidden.is_some())?;
        let name = match &*hidden {
            Some(name) => name.clone(),
            None => {
                let fd = self.file.buffered_fd();
                if is_new {
                    match link(fd, &self.target) {
                        Err(e) if e.kind() == ErrorKind::AlreadyExists => self.take_mode(false)?,
                        linked => return linked.map_err(failed),
                    };
                }
                // A link cannot replace a file, but a rename can.
                let name = hidden::link(fd, folder_of(&self.target)).map_err(failed)?;
                hidden.insert(name).clone()
            }
        };
        uninterrupted(|| fs::rename(&name, &self.target)).map_err(failed)?;
        *hidden = None;
        hidden::unlock(self.file.buffered_fd());
        Ok(())
    }

    /// Gives the new file its mode. Returns whether there is no target yet.
    fn take_mode(&self, is_private: bool) -> Result<bool> {
        let failed = |e| {
            Error::os(&e, "cannot give the new file the mode of the target").in_file(&self.target)
        };
        let present = match uninterrupted(|| fs::metadata(&self.target)) {
            Ok(present) => Some(present.permissions().mode()),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        let wanted = match present {
            None if is_private => hidden::usual_mode(folder_of(&self.target)).map_err(failed)?,
            // The file has the mode of a new file already.
            None => return Ok(true),
            Some(mode) => mode,
        };
        let wanted = wanted & 0o7777;
        if self.file.stat()?.st_mode & 0o7777 != wanted {
            // SAFETY: fchmod on an open descriptor touches no memory of this process.
            uninterrupted(|| answer(unsafe { libc::fchmod(self.file.buffered_fd(), wanted) }))
                .map_err(failed)?;
        }
        Ok(present.is_none())
    }

    /// Brings the entry of the folder to the medium. A folder that may be written but not read, and
    /// a file system that cannot sync folders, is synced as a whole.
    fn sync_folder(&self) -> io::Result<()> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let synced = open_fd(folder_of(&self.target), flags).map(|folder| {
            // SAFETY: fsync on an open descriptor touches no memory of this process.
            uninterrupted(|| answer(unsafe { libc::fsync(folder.as_raw_fd()) }))
        });
        match synced {
            Ok(Err(e)) if !is_unable(&e) => Err(e),
            Ok(Ok(())) => Ok(()),
            // SAFETY: syncfs on an open descriptor touches no memory of this process.
            _ => uninterrupted(|| answer(unsafe { libc::syncfs(self.file.buffered_fd()) })),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The file that a save to `target` replaces. The path is absolute, so that a later change of the
/// working folder does not matter, and links are followed, so that the file behind a link is
/// replaced.
pub(crate) fn destination(target: &Path) -> Result<PathBuf> {
    if target.file_name().is_none() {
        return Err(Error::invalid("the path names no file").in_file(target));
    }
    let absolute = std::path::absolute(target)
        .map_err(|e| Error::os(&e, "cannot find the working folder").in_file(target))?;
    let path = resolved(absolute);
    match uninterrupted(|| fs::metadata(&path)) {
        Ok(present) if present.is_dir() => {
            let error = io::Error::from_raw_os_error(libc::EISDIR);
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

/// The end of a chain of symbolic links, whether a file is there or not; the path itself if it is
/// no link.
fn resolved(mut path: PathBuf) -> PathBuf {
    /// The limit of the kernel.
    const MAX_LINKS: usize = 40;
    for _ in 0..MAX_LINKS {
        match uninterrupted(|| fs::read_link(&path)) {
            // A target is relative to the folder of the link; an absolute one replaces the whole
            // path.
            Ok(next) => path = path.with_file_name("").join(next),
            Err(_) => break,
        }
    }
    path
}

fn folder_of(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

/// A file without a name, if the system can make one and give it a name later. It has the mode of a
/// new file, since nobody can open it before.
fn unnamed(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let opened = match open_with(folder, flags | libc::O_TMPFILE, 0o666) {
        Ok(opened) => opened,
        Err(e) if is_unable(&e) || e.raw_os_error() == Some(libc::EISDIR) => return Ok(None),
        Err(e) => return Err(e),
    };
    let entry = entry_of(opened.as_raw_fd());
    if fs::symlink_metadata(&entry).is_err() {
        return Ok(None);
    }
    // A descriptor keeps O_TMPFILE in its flags, for which cuFile refuses it. A second one is without.
    // It does not open where the umask denies the owner access; cuFile alone is lost then.
    Ok(Some(open_fd(&entry, flags).unwrap_or(opened)))
}

/// Whether a system call failed because the file system lacks the feature.
fn is_unable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
    )
}

/// Gives a file without a name the name `path`, which no other file has.
fn link(fd: RawFd, path: &Path) -> io::Result<()> {
    let name = |path: &Path| {
        CString::new(path.as_os_str().as_bytes())
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    };
    let (from, to) = (name(&entry_of(fd))?, name(path)?);
    uninterrupted(|| {
        // SAFETY: both are C strings that outlive the call.
        answer(unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        })
    })
}

/// The path of a descriptor under /proc.
fn entry_of(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

#[cfg(test)]
mod tests;
