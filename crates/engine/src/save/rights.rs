//! What a new file takes over from the one that it replaces: owner, group, mode, POSIX ACL, and the extended
//! attributes of users.
//!
//! New contents are never run with the rights of another user: setuid and setgid bits are not taken over, as
//! a write by an ordinary user clears them. Where the process may not give the group away, the members of
//! the old group and of the new one may do what both the group and all others could.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::calls::{entry_of, stat_of};
use crate::file::{answer, uninterrupted};

const ACL: &CStr = c"system.posix_acl_access";
const USER: &[u8] = b"user.";

/// The rights of a file.
pub(super) struct Rights {
    owner: u32,
    group: u32,
    mode: u32,
    acl: Acl,
    attributes: Vec<(CString, Vec<u8>)>,
}

enum Acl {
    /// The mode says everything.
    None,
    /// The group's bits of the mode are the upper limit of several entries.
    Present(Vec<u8>),
    /// There is no /proc. The group's bits may be such a limit.
    Unknown,
}

impl Rights {
    /// Those of an open file. A descriptor with `O_PATH` will do.
    pub(super) fn of(file: &OwnedFd) -> io::Result<Rights> {
        let stat = stat_of(file)?;
        let entry = entry_of(file.as_raw_fd());
        let acl = match attribute(&entry, ACL) {
            Ok(Some(acl)) => Acl::Present(acl),
            Ok(None) => Acl::None,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Acl::Unknown,
            Err(e) => return Err(e),
        };
        Ok(Rights {
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o1777,
            acl,
            attributes: attributes(&entry),
        })
    }

    /// Gives them to a file that only its owner can open, or to a folder for files that have them.
    pub(super) fn give(mut self, new: RawFd) -> io::Result<()> {
        let stat = stat_of(&new)?;
        let keeps_group = stat.st_gid == self.group || give_to(new, u32::MAX, self.group)?;
        if stat.st_uid != self.owner {
            give_to(new, self.owner, u32::MAX)?;
        }
        if !keeps_group || matches!(self.acl, Acl::Unknown) {
            self.narrow();
        }
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            self.be_of_folder();
        }
        // Before the mode, whose group bits then limit the entries.
        match &self.acl {
            Acl::Present(acl) => set_attribute(new, ACL, acl)?,
            _ => remove_acl(new)?,
        }
        if stat_of(&new)?.st_mode & 0o7777 != self.mode {
            // SAFETY: fchmod on an open descriptor touches no memory of this process.
            uninterrupted(|| answer(unsafe { libc::fchmod(new, self.mode) }))?;
        }
        for (name, value) in &self.attributes {
            match set_attribute(new, name, value) {
                Err(e) if is_denied(&e) => {}
                set => set?,
            }
        }
        Ok(())
    }

    /// Leaves to group and others what both have.
    fn narrow(&mut self) {
        let mut both = self.mode & self.mode >> 3 & 7;
        let Acl::Present(acl) = &mut self.acl else {
            self.mode = self.mode & 0o1700 | both << 3 | both;
            return;
        };
        for entry in entries(acl).filter(|entry| tag(entry) == GROUP) {
            both &= u32::from(entry[PERMISSIONS]);
        }
        for entry in entries(acl).filter(|entry| [GROUP, OTHERS].contains(&tag(entry))) {
            entry[PERMISSIONS] = both as u8;
        }
        self.mode = self.mode & 0o1770 | both;
    }

    /// Makes them those of a folder in which only its owner makes files, and others find those that they may
    /// read.
    fn be_of_folder(&mut self) {
        let searchable = |bits: u32| bits & 0o444 | (bits & 0o444) >> 2;
        self.mode = 0o700 | searchable(self.mode & 0o077);
        self.attributes.clear();
        let Acl::Present(acl) = &mut self.acl else {
            return;
        };
        for entry in entries(acl) {
            entry[PERMISSIONS] = match tag(entry) {
                OWNER => 7,
                _ => searchable(entry[PERMISSIONS].into()) as u8,
            };
        }
    }
}

// An ACL is a version of four bytes, and entries of eight: tag, permissions, identifier (<linux/posix_acl_xattr.h>).
const PERMISSIONS: usize = 2;
const OWNER: u8 = 0x01;
const GROUP: u8 = 0x04;
const OTHERS: u8 = 0x20;

fn entries(acl: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    let start = acl.len().min(4);
    acl[start..].chunks_exact_mut(8)
}

fn tag(entry: &[u8]) -> u8 {
    entry[0]
}

/// Gives a file to a user or a group; `u32::MAX` leaves one as it is. Returns false if the process may not, or
/// the file system has no owners.
fn give_to(file: RawFd, owner: u32, group: u32) -> io::Result<bool> {
    // SAFETY: fchown on an open descriptor touches no memory of this process.
    match uninterrupted(|| answer(unsafe { libc::fchown(file, owner, group) })) {
        Ok(()) => Ok(true),
        // EINVAL: the user namespace does not know the number.
        Err(e) if is_denied(&e) || e.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_denied(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

/// The extended attributes of users that the process may read. What it may not read, it cannot keep.
fn attributes(entry: &CStr) -> Vec<(CString, Vec<u8>)> {
    // SAFETY: the buffer is valid for the length that is passed.
    let listed =
        sized(|buffer, length| unsafe { libc::listxattr(entry.as_ptr(), buffer.cast(), length) });
    let names = listed.unwrap_or_default();
    let names = names.split_inclusive(|byte| *byte == 0);
    names
        .filter(|name| name.starts_with(USER))
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
        .filter_map(|name| Some((name.to_owned(), attribute(entry, name).ok()??)))
        .collect()
}

/// The value of an extended attribute; `None` if there is none.
fn attribute(entry: &CStr, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    // SAFETY: the strings are C strings, and the buffer is valid for the length that is passed.
    let value = sized(|buffer, length| unsafe {
        libc::getxattr(entry.as_ptr(), name.as_ptr(), buffer, length)
    });
    match value {
        Ok(value) => Ok(Some(value)),
        Err(e) if has_none(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What a call gives that tells how much there is if it is given no room.
fn sized(call: impl Fn(*mut libc::c_void, usize) -> isize) -> io::Result<Vec<u8>> {
    loop {
        let length = call(std::ptr::null_mut(), 0);
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let mut bytes = vec![0_u8; length];
        match usize::try_from(call(bytes.as_mut_ptr().cast(), length)) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            // It has grown meanwhile.
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE) => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
}

fn set_attribute(file: RawFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    let pointer = value.as_ptr().cast();
    uninterrupted(|| {
        // SAFETY: the name is a C string, and the value is valid for its length.
        answer(unsafe { libc::fsetxattr(file, name.as_ptr(), pointer, value.len(), 0) })
    })
}

/// Removes the ACL that a file may have from its folder.
fn remove_acl(file: RawFd) -> io::Result<()> {
    // SAFETY: the name is a C string.
    let removed = uninterrupted(|| answer(unsafe { libc::fremovexattr(file, ACL.as_ptr()) }));
    match removed {
        Err(e) if has_none(&e) => Ok(()),
        removed => removed,
    }
}

/// Whether a file has no such attribute, or none at all.
fn has_none(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ENOSYS))
}
