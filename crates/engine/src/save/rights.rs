//! The properties that a new file takes over from the one that it replaces: owner, group, mode,
//! ACL, and the extended attributes of users.
//!
//! New contents never run with the rights of another user: setuid and setgid bits are not taken
//! over, as a write by an ordinary user clears them. If the process cannot set the group, the group
//! and other users each get only the permissions that both had.
//!
//! A POSIX ACL is kept. An ACL of another kind, such as that of NFSv4, is copied as a whole. Where
//! that is not possible, the group and other users are limited as above. An ACL that is not an
//! extended attribute, such as that of GPFS, is not seen.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::calls::entry_of;
use crate::file::{answer, stat_of, uninterrupted};

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
    /// There is no ACL: the mode has all permissions.
    None,
    /// The group's bits of the mode are the upper limit of several entries.
    Present(Vec<u8>),
    /// The attribute of an ACL of another kind. It applies as a whole, with the same owner and
    /// group.
    Other(CString, Vec<u8>),
    /// There is no /proc, or the ACL cannot be copied. The group's bits may be such a limit.
    Unknown,
}

impl Rights {
    /// The rights of an open file. A descriptor with `O_PATH` is enough.
    pub(super) fn of(file: &OwnedFd) -> io::Result<Rights> {
        let stat = stat_of(file)?;
        let entry = entry_of(file.as_raw_fd());
        let names = names_of_attributes(&entry);
        let acl = match attribute(&entry, ACL) {
            Ok(Some(acl)) => Acl::Present(acl),
            Ok(None) => other_acl(&entry, &names),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Acl::Unknown,
            Err(e) => return Err(e),
        };
        Ok(Rights {
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode & 0o1777,
            acl,
            attributes: attributes(&entry, names),
        })
    }

    /// Sets these rights on a file that only its owner can open, or on a folder for files that have
    /// them.
    pub(super) fn give(mut self, new: RawFd) -> io::Result<()> {
        let stat = stat_of(&new)?;
        let keeps_group = stat.st_gid == self.group || give_to(new, u32::MAX, self.group)?;
        if stat.st_uid != self.owner {
            give_to(new, self.owner, u32::MAX)?;
        }
        let is_folder = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if let Acl::Other(name, value) = &self.acl
            && (is_folder || !keeps_group || set_attribute(new, name, value).is_err())
        {
            self.acl = Acl::Unknown;
        }
        if !keeps_group || matches!(self.acl, Acl::Unknown) {
            self.narrow();
        }
        if is_folder {
            self.be_of_folder();
        }
        // The ACL precedes the mode, whose group bits then limit its entries.
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

    /// Limits group and other users to the permissions that both have.
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

    /// Converts the rights of a file to those of its folder: the owner has all rights, and each
    /// class that may read the file may list and enter the folder.
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

/// The extended attributes of users that the process may read. Attributes that it may not read are
/// lost.
fn attributes(entry: &CStr, names: Vec<CString>) -> Vec<(CString, Vec<u8>)> {
    let of_users = names
        .into_iter()
        .filter(|name| name.to_bytes().starts_with(USER));
    of_users
        .filter_map(|name| {
            let value = attribute(entry, &name).ok()??;
            Some((name, value))
        })
        .collect()
}

/// An ACL of another kind than POSIX.
fn other_acl(entry: &CStr, names: &[CString]) -> Acl {
    let Some(name) = names.iter().find(|name| is_other_acl(name)) else {
        return Acl::None;
    };
    match attribute(entry, name) {
        Ok(Some(value)) => Acl::Other(name.clone(), value),
        _ => Acl::Unknown,
    }
}

/// Whether an attribute is an ACL, such as `system.nfs4_acl`. `system.nfs4_dacl` and
/// `system.nfs4_sacl` are parts of it, which only some users may read.
fn is_other_acl(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"system.") && (name.ends_with(b"_acl") || name == b"system.richacl")
}

fn names_of_attributes(entry: &CStr) -> Vec<CString> {
    // SAFETY: the buffer is valid for the length that is passed.
    let listed =
        sized(|buffer, length| unsafe { libc::listxattr(entry.as_ptr(), buffer.cast(), length) });
    let names = listed.unwrap_or_default();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names.filter_map(|name| CString::new(name).ok()).collect()
}

/// The value of an extended attribute; `None` if the file does not have it.
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

/// The result of a call that returns the needed size if it gets an empty buffer.
fn sized(call: impl Fn(*mut libc::c_void, usize) -> isize) -> io::Result<Vec<u8>> {
    loop {
        let length = call(std::ptr::null_mut(), 0);
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        if length == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0_u8; length];
        match usize::try_from(call(bytes.as_mut_ptr().cast(), length)) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            // The value has grown meanwhile.
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

/// Whether an error means that a file has no such attribute, or no attributes at all.
fn has_none(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mode of a file that was given 0640 with an ACL of another kind than POSIX.
    fn mode_with_other_acl(name: &CStr) -> u32 {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let mut rights = Rights::of(&file).unwrap();
        rights.mode = 0o640;
        rights.acl = Acl::Other(name.to_owned(), b"entries".into());
        rights.give(file.as_raw_fd()).unwrap();
        stat_of(&file).unwrap().st_mode & 0o7777
    }

    #[test]
    fn an_acl_of_another_kind_is_copied_or_limits_group_and_others() {
        assert_eq!(mode_with_other_acl(c"system.nfs4_acl"), 0o600);
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        // This attribute replaces that of an ACL, which needs its file system.
        match set_attribute(file.as_raw_fd(), c"user.acl", b"entries") {
            Ok(()) => assert_eq!(mode_with_other_acl(c"user.acl"), 0o640),
            Err(_) => eprintln!("SKIPPED: the file system of the tests has no user attributes"),
        }
    }

    #[test]
    fn attributes_of_acls_are_known_by_their_names() {
        assert!(is_other_acl(c"system.nfs4_acl"));
        assert!(is_other_acl(c"system.cifs_acl"));
        for name in [c"user.acl", c"system.nfs4_sacl", c"security.selinux"] {
            assert!(!is_other_acl(name), "{name:?}");
        }
    }
}
