//! Resolves a path to the folder of its file, as a descriptor, and the name in it.

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::calls::{self, is_same};
use crate::error::{Error, Kind, Result};
use crate::file::{c_string, open_in, stat_of};

/// The folder and the name of a file that exists or is to be created. Links were followed.
#[derive(Debug)]
pub struct ResolvedPath {
    folder: OwnedFd,
    pub(super) name: CString,
}

impl ResolvedPath {
    /// Finds where to put the file that replaces the one at the path, or that is new there.
    /// Symbolic links are followed, so that the file behind a link is replaced.
    ///
    /// # Errors
    /// The folder is missing, the path is not a regular file, or the caller may not write it.
    pub fn of(path: &Path) -> Result<ResolvedPath> {
        /// The most attempts, because other processes may replace links all the time.
        const TRIES: usize = 1000;
        if split(path).is_none() {
            return Err(
                Error::invalid("the path does not end in the name of a file")
                    .remedy("leave out a \"/\", \".\" or \"..\" at the end")
                    .in_file(path),
            );
        }
        for _ in 0..TRIES {
            if let Some(resolved) = found(path).map_err(|e| e.in_file(path))? {
                return Ok(resolved);
            }
        }
        let cause =
            "the path keeps changing: each attempt to follow it leads to another file, or to none";
        Err(Error::new(Kind::Io, cause)
            .remedy("pass the path of the file itself")
            .in_file(path))
    }

    /// The descriptor of the folder (`O_PATH`), and the name in it.
    pub fn into_parts(self) -> (OwnedFd, CString) {
        (self.folder, self.name)
    }

    pub(super) fn folder(&self) -> RawFd {
        self.folder.as_raw_fd()
    }
}

/// The regular file of this name in a folder, as a descriptor that neither reads nor writes; `None`
/// if no such file exists.
///
/// # Errors
/// The name is not that of a regular file, or the caller may not write the file.
pub(super) fn present(folder: RawFd, name: &CStr) -> Result<Option<OwnedFd>> {
    let opened = match open_in(folder, name, libc::O_PATH | libc::O_NOFOLLOW, 0) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(cannot_replace)?,
    };
    refuse_others(&opened)?;
    Ok(may_replace(&opened, folder, name)?.then_some(opened))
}

/// Fails unless the caller may write the file. Returns false if it was removed meanwhile.
fn may_replace(file: &OwnedFd, folder: RawFd, name: &CStr) -> Result<bool> {
    match calls::may_write(file, folder, name) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        may => may.map(|()| true).map_err(cannot_replace),
    }
}

fn cannot_replace(error: io::Error) -> Error {
    Error::os(&error, "cannot replace the file")
}

/// Rejects everything but a regular file.
fn refuse_others(opened: &OwnedFd) -> Result<()> {
    let stat = stat_of(opened).map_err(|e| Error::os(&e, "cannot read the file's status"))?;
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(cannot_replace(io::Error::from_raw_os_error(libc::EISDIR))),
        _ => Err(
            Error::invalid("the path is not a regular file, so it cannot be replaced")
                .remedy("open it and write to it instead"),
        ),
    }
}

/// Follows the path twice. The kernel follows it first, and so decides about links and permissions,
/// but it does not report in which folder the file is. The walk finds the folder. The result counts
/// only if the walk ends at the file that the kernel found. It may not if another process changes
/// the path meanwhile; then the result is `None`.
fn found(path: &Path) -> Result<Option<ResolvedPath>> {
    let name = c_string(path.as_os_str()).map_err(failed)?;
    let target = match open_in(libc::AT_FDCWD, &name, libc::O_PATH, 0) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        opened => Some(opened.map_err(failed)?),
    };
    if let Some(target) = &target {
        refuse_others(target)?;
    }
    let (resolved, last) = walk(path, target.is_some())?;
    let same = match (&target, &last) {
        (Some(target), Some(last)) => {
            is_same(target, last).map_err(failed)?
                && may_replace(last, resolved.folder(), &resolved.name)?
        }
        (target, last) => target.is_none() && last.is_none(),
    };
    Ok(same.then_some(resolved))
}

/// Follows links to the last folder, link by link. Also returns the file there, if there is one. Each folder and each link is a descriptor, so
/// that exactly the inspected folder or link is followed.
fn walk(path: &Path, kernel_has_followed: bool) -> Result<(ResolvedPath, Option<OwnedFd>)> {
    /// The limit of the kernel.
    const MOST_LINKS: usize = 40;
    const FLAGS: i32 = libc::O_PATH | libc::O_NOFOLLOW;
    let mut path = path.to_owned();
    let mut folder = None;
    for _ in 0..=MOST_LINKS {
        let resolved = below(folder.as_ref(), &path)?;
        let link = match open_in(resolved.folder(), &resolved.name, FLAGS, 0) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok((resolved, None)),
            opened => opened.map_err(failed)?,
        };
        if stat_of(&link).map_err(failed)?.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Ok((resolved, Some(link)));
        }
        if !kernel_has_followed && !may_follow(&resolved.folder, &link).map_err(failed)? {
            return Err(failed(io::Error::from_raw_os_error(libc::EACCES)));
        }
        path = calls::read_link(&link).map_err(failed)?;
        folder = Some(resolved.folder);
    }
    Err(failed(io::Error::from_raw_os_error(libc::ELOOP)))
}

fn failed(error: io::Error) -> Error {
    Error::os(&error, "cannot follow the path to the file")
}

/// Resolves a path from a folder, or from the working folder. The last name is not followed.
fn below(folder: Option<&OwnedFd>, path: &Path) -> Result<ResolvedPath> {
    let is_of_folder = || failed(io::Error::from_raw_os_error(libc::EISDIR));
    let (parent, name) = split(path).ok_or_else(is_of_folder)?;
    // In `link/.`, the link is not the last name. The kernel follows it as it does within a longer
    // path.
    let parent = [parent, b"."].concat();
    let from = folder.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let parent = c_string(OsStr::from_bytes(&parent)).map_err(failed)?;
    let opened = open_in(from, &parent, flags, 0);
    Ok(ResolvedPath {
        folder: opened.map_err(|e| Error::os(&e, "cannot open the folder of the file"))?,
        name: c_string(OsStr::from_bytes(name)).map_err(failed)?,
    })
}

/// Splits a path before its last name. Returns `None` if the path ends in `/`, `.` or `..`, and so
/// is that of a folder. [`Path::file_name`] leaves out `/` and `/.`.
fn split(path: &Path) -> Option<(&[u8], &[u8])> {
    let bytes = path.as_os_str().as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = bytes.split_at(slash.map_or(0, |at| at + 1));
    let is_name = !matches!(name, b"" | b"." | b"..");
    is_name.then_some((parent, name))
}

/// Whether a link is followed to a file that does not exist yet. The kernel has found nothing, so
/// the link may be newer than that. The kernel would check the link only when the file is created,
/// which comes last.
fn may_follow(folder: &OwnedFd, link: &OwnedFd) -> io::Result<bool> {
    let setting = std::fs::read("/proc/sys/fs/protected_symlinks");
    let is_off = setting.is_ok_and(|text| text.starts_with(b"0"));
    Ok(is_off || is_trusted(folder, link)?)
}

/// The rule of the kernel for fs.protected_symlinks.
fn is_trusted(folder: &OwnedFd, link: &OwnedFd) -> io::Result<bool> {
    const SHARED: u32 = libc::S_ISVTX | libc::S_IWOTH;
    let (folder, link) = (stat_of(folder)?, stat_of(link)?);
    // SAFETY: geteuid reads a number of this process.
    let own = unsafe { libc::geteuid() };
    Ok(folder.st_mode & SHARED != SHARED || link.st_uid == own || link.st_uid == folder.st_uid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn only_own_links_and_those_of_the_owner_of_the_folder_are_trusted_in_a_sticky_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        symlink("none", &path).unwrap();
        let open = |path: &Path, flags| {
            let name = c_string(path.as_os_str()).unwrap();
            open_in(libc::AT_FDCWD, &name, libc::O_PATH | flags, 0).unwrap()
        };
        let is_trusted = |mode, owner_of_folder, owner_of_link| {
            let permissions = PermissionsExt::from_mode(mode);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
            lchown(folder.path(), owner_of_folder, None).unwrap();
            lchown(&path, owner_of_link, None).unwrap();
            is_trusted(&open(folder.path(), 0), &open(&path, libc::O_NOFOLLOW)).unwrap()
        };
        assert!(is_trusted(0o1777, None, None));
        // SAFETY: geteuid reads a number of this process.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("SKIPPED: only root may give links to other users");
            return;
        }
        assert!(!is_trusted(0o1777, None, Some(65534)));
        assert!(is_trusted(0o777, None, Some(65534)));
        assert!(is_trusted(0o1755, None, Some(65534)));
        assert!(is_trusted(0o1777, Some(65534), Some(65534)));
    }
}
