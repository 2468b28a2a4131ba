//! Hidden names of files that are not in their place yet.
//!
//! The process that writes such a file holds a lock on it (flock) as long as the file has that
//! name. A file without a lock was left by a dead process, and may be removed. On some file
//! systems, locks of other machines are not visible, so the name identifies the boot of the machine
//! that made it.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::calls::{self, entry_of, is_same};
use super::rights::Rights;
use crate::file::system::FileSystem;
use crate::file::{answer, c_string, open_in, stat_of, uninterrupted};
use crate::recent::Recent;

const PREFIX: &str = ".penstock-";
const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;

/// Creates a file that other users cannot open.
pub(super) fn create(folder: RawFd) -> io::Result<(OwnedFd, CString)> {
    loop {
        let (opened, name) = unused(|name| open_in(folder, name, CREATE, 0o600))?;
        // A process that cleared the folder before the file was locked has removed the file, or is
        // about to.
        let is_locked = lock(opened.as_raw_fd()) != Some(false);
        let is_ours =
            is_named(&opened, folder, &name).inspect_err(|_| drop(calls::remove(folder, &name)))?;
        if is_locked && is_ours {
            return Ok((opened, name));
        }
    }
}

/// Gives a file without a name a hidden name.
pub(super) fn link(fd: RawFd, folder: RawFd) -> io::Result<CString> {
    lock(fd);
    unused(|name| calls::link(fd, folder, name)).map(|((), name)| name)
}

/// The rights of a new file in the folder. They depend on the umask and the folder's default ACL,
/// so this creates an empty file and reads its rights.
pub(super) fn usual_rights(folder: RawFd) -> io::Result<Rights> {
    let (opened, name) = unused(|name| open_in(folder, name, CREATE, 0o666))?;
    let rights = Rights::of(&opened);
    match calls::remove(folder, &name) {
        // Another process that clears the folder may have removed the file, because it has no lock.
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => rights,
    }
}

/// Releases the lock of a file that is in its place.
pub(super) fn unlock(fd: RawFd) {
    // SAFETY: flock on an open descriptor touches no memory of this process.
    unsafe { libc::flock(fd, libc::LOCK_UN) };
}

/// The folders that this process has searched, by device and inode.
static SEARCHED: Recent<(u64, u64)> = Recent::new();

/// Removes the files that dead processes left in a folder. A process searches a folder once, as a
/// rule, since it can be large. Failures are left to the next process.
pub(super) fn clear(folder: RawFd) {
    let Ok(stat) = stat_of(&folder) else {
        return;
    };
    let identity = (stat.st_dev, stat.st_ino);
    if SEARCHED.has(&identity) {
        return;
    }
    SEARCHED.add(identity);
    let Ok(entries) = fs::read_dir(OsStr::from_bytes(entry_of(folder).as_bytes())) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some(boot) = name.to_str().and_then(boot_of) {
            let name = c_string(&name).expect("no zero byte in the name of a file");
            remove_if_dead(folder, &name, boot == this_boot());
        }
    }
}

/// The boot of the machine from which a hidden name comes.
fn boot_of(name: &str) -> Option<&str> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (boot, process, number) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let is_ours = boot.len() == 16
        && u64::from_str_radix(boot, 16).is_ok()
        && is_number(process)
        && is_number(number)
        && parts.next().is_none();
    is_ours.then_some(boot)
}

fn remove_if_dead(folder: RawFd, name: &CStr, is_of_this_boot: bool) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // NFS locks only descriptors that are open for writing, while the mode may allow reading only.
    let opened = open_in(folder, name, flags | libc::O_RDWR, 0)
        .or_else(|_| open_in(folder, name, flags | libc::O_RDONLY, 0));
    let Ok(opened) = opened else { return };
    let fd = opened.as_raw_fd();
    let is_reliable = is_of_this_boot || FileSystem::of(fd).is_of_one_machine();
    // The file keeps that name as long as its lock is held.
    if is_reliable && lock(fd) == Some(true) && is_named(&opened, folder, name).unwrap_or(false) {
        let _ = calls::remove(folder, name);
    }
}

/// Whether the lock was free; `None` if the file system has no locks.
fn lock(fd: RawFd) -> Option<bool> {
    // SAFETY: flock on an open descriptor touches no memory of this process.
    let locked =
        uninterrupted(|| answer(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }));
    match locked {
        Ok(()) => Some(true),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Some(false),
        Err(_) => None,
    }
}

/// Whether this is a regular file with that name.
fn is_named(opened: &OwnedFd, folder: RawFd, name: &CStr) -> io::Result<bool> {
    let is_file = stat_of(opened)?.st_mode & libc::S_IFMT == libc::S_IFREG;
    match open_in(folder, name, libc::O_PATH | libc::O_NOFOLLOW, 0) {
        Ok(there) => Ok(is_file && is_same(opened, &there)?),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Calls `make` with hidden names until one is unused. Returns the result and the name.
fn unused<T>(mut make: impl FnMut(&CStr) -> io::Result<T>) -> io::Result<(T, CString)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let process = std::process::id();
        let name = CString::new(format!("{PREFIX}{}-{process}-{number}", this_boot()))?;
        match make(&name) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            made => return made.map(|made| (made, name)),
        }
    }
}

/// Sixteen hexadecimal digits that neither another machine nor a later boot of this one has.
fn this_boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = text.chars().filter(char::is_ascii_hexdigit);
        format!("{:0>16}", digits.take(16).collect::<String>())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    fn opened(folder: &Path) -> OwnedFd {
        fs::File::open(folder).unwrap().into()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let fd = opened(folder);
        let (alive, kept) = create(fd.as_raw_fd()).unwrap();
        let (dead, _) = create(fd.as_raw_fd()).unwrap();
        drop(dead);
        let elsewhere = folder.join(".penstock-0123456789abcdef-77-3");
        fs::write(&elsewhere, b"of another run of the system").unwrap();
        let others = [".penstock-notes", ".penstock-1-2", ".penstock-a-b-c"];
        for name in others {
            fs::write(folder.join(name), b"").unwrap();
        }
        let target = folder.join("target");
        fs::write(&target, b"").unwrap();
        let linked = folder.join(".penstock-0123456789abcdef-77-4");
        std::os::unix::fs::symlink(&target, linked).unwrap();
        clear(fd.as_raw_fd());
        let mut found = names(folder);
        found.sort();
        let mut wanted: Vec<_> = others.map(str::to_owned).into();
        wanted.push("target".into());
        wanted.push(".penstock-0123456789abcdef-77-4".into());
        wanted.push(kept.to_str().unwrap().into());
        if !FileSystem::of(alive.as_raw_fd()).is_of_one_machine() {
            wanted.push(".penstock-0123456789abcdef-77-3".into());
        }
        wanted.sort();
        assert_eq!(found, wanted);
        drop(alive);
    }

    #[test]
    fn files_and_the_usual_rights_are_made_while_other_processes_clear_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let fd = opened(folder);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    for name in names(folder) {
                        let name = CString::new(name).unwrap();
                        remove_if_dead(fd.as_raw_fd(), &name, true);
                    }
                }
            });
            let fd = fd.as_raw_fd();
            let failures = (0..3000).filter_map(|_| {
                let (made, name) = create(fd).unwrap();
                let is_there = is_named(&made, fd, &name).unwrap();
                calls::remove(fd, &name).unwrap();
                usual_rights(fd)
                    .err()
                    .map(|e| e.to_string())
                    .or((!is_there).then(|| "removed".into()))
            });
            let failures: Vec<String> = failures.collect();
            is_over.store(true, Relaxed);
            assert!(failures.is_empty(), "{failures:?}");
        });
    }

    #[test]
    fn a_hidden_file_is_private_and_the_usual_rights_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let fd = opened(folder.path());
        let (made, name) = create(fd.as_raw_fd()).unwrap();
        let path = folder.path().join(name.to_str().unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode();
        assert_eq!(mode(&path) & 0o7777, 0o600);
        let usual = folder.path().join("usual");
        fs::write(&usual, b"").unwrap();
        let rights = usual_rights(fd.as_raw_fd()).unwrap();
        rights.give(made.as_raw_fd()).unwrap();
        assert_eq!(mode(&path), mode(&usual));
        assert_eq!(names(folder.path()).len(), 2);
    }
}
