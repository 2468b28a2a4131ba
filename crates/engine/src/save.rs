//! Replaces a whole file atomically. This is the one place that decides which file a path means,
//! which users may replace it, and which rights the new file gets.
//!
//! The new contents are a file without a name (O_TMPFILE), if the file system supports that. No
//! other process can then open it, and nothing remains of a process that is killed. Otherwise they
//! are a private file with a hidden name in the folder of the target. Before the file gets its
//! name, it gets the rights of the file that it replaces, or those of a new file.
//!
//! The folder is a descriptor from the beginning to the end, so that replacing a folder or a link
//! meanwhile does not redirect the save to another file.

mod calls;
mod hidden;
mod resolved_path;
mod rights;

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::file::medium::{sync_all, sync_folder};
use crate::file::{File, is_unable, open_in};
use crate::fork::forked;
use crate::options::Options;
use crate::sync::Recover;
use calls::entry_of;
pub use resolved_path::ResolvedPath;
use rights::Rights;

/// The new contents of a file. Dropping this removes them, unless they were published.
pub struct Replacement {
    path: ResolvedPath,
    /// The new file. Errors name it by the path that the caller gave.
    file: Arc<File>,
    name: Mutex<Name>,
    /// The process that may publish or remove the file. A forked child has a copy of this value, and
    /// must not: its parent may still write.
    process: u32,
}

/// What a new file is called.
enum Name {
    /// Nothing: a file without a name.
    None,
    /// A hidden name, until the file gets that of the target.
    Hidden(CString),
    /// It is in place.
    Published,
}

impl Replacement {
    /// Creates an empty file beside the one that `target` leads to.
    ///
    /// # Errors
    /// The path is refused as [`ResolvedPath::of`] says, or the folder takes no file.
    pub fn begin(target: &Path, options: Options) -> Result<Replacement> {
        let path = ResolvedPath::of(target)?;
        hidden::clear(path.folder());
        let opened = unnamed(path.folder()).map_err(|e| cannot_create(&e, target))?;
        Replacement::of(path, target, opened, options)
    }

    /// As [`begin`](Self::begin), with the file without a name, or with one that gets a hidden
    /// name.
    fn of(
        path: ResolvedPath,
        target: &Path,
        file: Option<OwnedFd>,
        options: Options,
    ) -> Result<Self> {
        let (opened, hidden) = match file {
            Some(opened) => (opened, None),
            None => {
                let made = hidden::create(path.folder());
                let (opened, name) = made.map_err(|e| cannot_create(&e, target))?;
                (opened, Some(name))
            }
        };
        let file = File::of_new(opened, target, options).inspect_err(|_| {
            let hidden = hidden.iter();
            hidden.for_each(|name| drop(calls::remove(path.folder(), name)));
        })?;
        Ok(Replacement {
            path,
            file: Arc::new(file),
            name: Mutex::new(hidden.map_or(Name::None, Name::Hidden)),
            process: std::process::id(),
        })
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Puts the new file in the place of the target. If this fails, the target is as before, unless
    /// the error says otherwise. A file that is in place already is only brought to the medium.
    ///
    /// # Errors
    /// The rights cannot be set, or a system call failed, also one that wrote data before. In a child
    /// of the process that began: [`Kind::Forked`](crate::error::Kind::Forked).
    pub fn publish(&self, durable: bool) -> Result<()> {
        if self.process != std::process::id() {
            return Err(forked().in_file(self.file.path()));
        }
        self.put_in_place(durable)
            .map_err(|e| e.in_file(self.file.path()))?;
        if durable {
            self.sync_folder().map_err(|e| {
                let action = "the new file is in place, but may not survive a power failure, \
                              because its folder cannot be brought to the medium";
                Error::os(&e, action)
                    .remedy("look at the kernel log (dmesg), then save again")
                    .in_file(self.file.path())
            })?;
        }
        Ok(())
    }

    /// Removes the new file, if it was not published.
    pub(crate) fn discard(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut name = self.name.lock().recover();
        if let Name::Hidden(hidden) = &*name {
            // The caller gets the failure of the request instead.
            let _ = calls::remove(self.path.folder(), hidden);
            *name = Name::None;
        }
    }

    fn put_in_place(&self, durable: bool) -> Result<()> {
        let failed = |e: io::Error| Error::os(&e, "cannot put the new file in place");
        let (fd, folder) = (self.file.buffered_fd(), self.path.folder());
        let mut name = self.name.lock().recover();
        if matches!(*name, Name::Published) {
            return self.sync(durable);
        }
        // A file without a name has the rights of a new file already.
        let is_private = matches!(*name, Name::Hidden(_));
        let is_new = !take_rights_of_present(fd, folder, &self.path.name)?;
        if is_new && is_private {
            take_usual_rights(fd, folder)?;
        }
        self.sync(durable)?;
        if is_new && !is_private {
            match calls::link(fd, folder, &self.path.name) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    take_rights_of_present(fd, folder, &self.path.name)?;
                    self.sync(durable)?;
                }
                linked => {
                    linked.map_err(failed)?;
                    *name = Name::Published;
                    return Ok(());
                }
            }
        }
        if !is_private {
            // A link cannot replace a file, while a rename can.
            *name = Name::Hidden(hidden::link(fd, folder).map_err(failed)?);
        }
        if let Name::Hidden(hidden) = &*name {
            calls::rename(folder, hidden, &self.path.name).map_err(failed)?;
        }
        *name = Name::Published;
        hidden::unlock(fd);
        Ok(())
    }

    /// With `durable`, brings data and rights to the medium before the name. Otherwise a power
    /// failure could leave the name with an incomplete file. Without it, still gets the error of a
    /// write that NFS delayed.
    fn sync(&self, durable: bool) -> Result<()> {
        let fd = self.file.buffered_fd();
        let done = if durable {
            sync_all(fd)
        } else {
            calls::close_copy(fd)
        };
        done.map_err(|e| Error::os(&e, "cannot bring the data to the medium"))
    }

    fn sync_folder(&self) -> io::Result<()> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let folder = open_in(self.path.folder(), c".", flags, 0);
        sync_folder(folder, self.file.buffered_fd())
    }
}

impl AsRawFd for Replacement {
    fn as_raw_fd(&self) -> RawFd {
        self.file.buffered_fd()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Removes the files that dead processes left in the folder of a path.
pub fn clear_folder(path: &ResolvedPath) {
    hidden::clear(path.folder());
}

/// Gives an open file, which only its owner can open, the rights of the file `name` of a folder, or
/// those of a new file if it does not exist. A folder gets the rights with which other users find in it
/// the files that they may read.
///
/// # Errors
/// `name` is not a regular file, the caller may not write it, or the rights cannot be set.
pub fn take_rights(new: RawFd, folder: RawFd, name: &CStr) -> Result<()> {
    if take_rights_of_present(new, folder, name)? {
        Ok(())
    } else {
        take_usual_rights(new, folder)
    }
}

/// Returns false if there is no file of this name.
fn take_rights_of_present(new: RawFd, folder: RawFd, name: &CStr) -> Result<bool> {
    let Some(present) = resolved_path::present(folder, name)? else {
        return Ok(false);
    };
    let given = Rights::of(&present).and_then(|rights| rights.give(new));
    given.map(|()| true).map_err(|e| cannot_give(&e))
}

fn take_usual_rights(new: RawFd, folder: RawFd) -> Result<()> {
    let given = hidden::usual_rights(folder).and_then(|rights| rights.give(new));
    given.map_err(|e| cannot_give(&e))
}

fn cannot_give(error: &io::Error) -> Error {
    Error::os(error, "cannot set the rights of the target on the new file")
}

fn cannot_create(error: &io::Error, target: &Path) -> Error {
    Error::os(error, "cannot create a file in the folder of the target").in_file(target)
}

/// A file without a name, if the system can create one and name it later. It has the rights of a
/// new file, since no process can open it before it has a name.
fn unnamed(folder: RawFd) -> io::Result<Option<OwnedFd>> {
    let flags = libc::O_RDWR;
    let opened = match open_in(folder, c".", flags | libc::O_TMPFILE, 0o666) {
        Ok(opened) => opened,
        Err(e) if is_unable(&e) || e.raw_os_error() == Some(libc::EISDIR) => return Ok(None),
        Err(e) => return Err(e),
    };
    // A descriptor keeps O_TMPFILE in its flags, for which cuFile rejects it. A second descriptor
    // is without.
    let entry = entry_of(opened.as_raw_fd());
    if let Ok(again) = open_in(libc::AT_FDCWD, &entry, flags, 0) {
        return Ok(Some(again));
    }
    // It does not open where the umask denies the owner access; only cuFile is unavailable then.
    // Without /proc, the file could not be named.
    let linked = open_in(libc::AT_FDCWD, &entry, libc::O_PATH | libc::O_NOFOLLOW, 0);
    Ok(linked.is_ok().then_some(opened))
}

#[cfg(test)]
mod tests;
