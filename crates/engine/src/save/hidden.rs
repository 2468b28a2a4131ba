//! Hidden names of files that are not in their place yet.
//!
//! The writer of such a file holds a lock on it (flock) as long as it has that name. A file without
//! a lock was left by a dead process, and may be removed. On some file systems, locks do not show
//! those of other machines, so the name tells which run of which system made it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::file::system::FileSystem;
use crate::file::{answer, open_with, uninterrupted};

const PREFIX: &str = ".penstock-";
const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;

/// Creates a file that nobody else may read.
pub(super) fn create(folder: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    loop {
        let (opened, path) = unused(folder, |path| open_with(path, CREATE, 0o600))?;
        // A process that cleared the folder before the file was locked has removed it, or is about
        // to.
        let is_locked = lock(opened.as_raw_fd()) != Some(false);
        let is_ours = is_named(&opened, &path)
            .inspect_err(|_| drop(uninterrupted(|| fs::remove_file(&path))))?;
        if is_locked && is_ours {
            return Ok((opened, path));
        }
    }
}

/// Gives a file without a name a hidden name.
pub(super) fn link(fd: RawFd, folder: &Path) -> io::Result<PathBuf> {
    lock(fd);
    unused(folder, |path| super::link(fd, path)).map(|((), path)| path)
}

/// The mode of a new file in the folder. No system call tells it, so an empty file is made.
pub(super) fn usual_mode(folder: &Path) -> io::Result<u32> {
    let (opened, path) = unused(folder, |path| open_with(path, CREATE, 0o666))?;
    let file = fs::File::from(opened);
    let mode = uninterrupted(|| file.metadata()).map(|m| m.mode());
    match uninterrupted(|| fs::remove_file(&path)) {
        // A process that clears the folder removes this file as well, since nobody locks it.
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => mode,
    }
}

/// Releases the lock of a file that is in its place.
pub(super) fn unlock(fd: RawFd) {
    // SAFETY: flock on an open descriptor touches no memory of this process.
    unsafe { libc::flock(fd, libc::LOCK_UN) };
}

/// Removes what dead processes left in a folder. A process looks through a folder once, since it
/// can be large. What fails is left to the next process.
pub(super) fn clear(folder: &Path) {
    static DONE: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let Ok(stat) = fs::metadata(folder) else {
        return;
    };
    let mut done = DONE.lock().unwrap_or_else(|e| e.into_inner());
    if done.contains(&(stat.dev(), stat.ino())) {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if let Some(boot) = entry.file_name().to_str().and_then(boot_of) {
            remove_if_dead(&entry.path(), boot == this_boot());
        }
    }
    done.insert((stat.dev(), stat.ino()));
}

/// The run of the system that a hidden name comes from.
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

fn remove_if_dead(path: &Path, is_of_this_boot: bool) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // NFS locks only descriptors that are open for writing, but the mode may allow reading only.
    let opened = open_with(path, flags | libc::O_RDWR, 0)
        .or_else(|_| open_with(path, flags | libc::O_RDONLY, 0));
    let Ok(opened) = opened else { return };
    let fd = opened.as_raw_fd();
    let tells = is_of_this_boot || FileSystem::of(fd).is_of_one_machine();
    // The name stays that of this file as long as its lock is held.
    if tells && lock(fd) == Some(true) && is_named(&opened, path).unwrap_or(false) {
        let _ = fs::remove_file(path);
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

/// Whether the path is a name of this regular file.
fn is_named(opened: &OwnedFd, path: &Path) -> io::Result<bool> {
    let file = fs::File::from(opened.try_clone()?);
    let here = uninterrupted(|| file.metadata())?;
    match uninterrupted(|| fs::symlink_metadata(path)) {
        Ok(there) => Ok(here.is_file() && (here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Calls `make` with hidden names until one is new in the folder. Returns the result and the name.
fn unused<T>(
    folder: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let process = std::process::id();
        let path = folder.join(format!("{PREFIX}{}-{process}-{number}", this_boot()));
        match make(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            made => return made.map(|made| (made, path)),
        }
    }
}

/// Sixteen hexadecimal digits that neither another machine nor a later run of this one has.
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
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (alive, kept) = create(folder).unwrap();
        let (dead, _) = create(folder).unwrap();
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
        clear(folder);
        let mut found = names(folder);
        found.sort();
        let mut wanted: Vec<_> = others.map(str::to_owned).into();
        wanted.push("target".into());
        wanted.push(".penstock-0123456789abcdef-77-4".into());
        wanted.push(kept.file_name().unwrap().to_str().unwrap().into());
        if !FileSystem::of(alive.as_raw_fd()).is_of_one_machine() {
            wanted.push(".penstock-0123456789abcdef-77-3".into());
        }
        wanted.sort();
        assert_eq!(found, wanted);
        drop(alive);
    }

    #[test]
    fn the_usual_mode_is_told_though_others_clear_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    for name in names(folder) {
                        remove_if_dead(&folder.join(name), true);
                    }
                }
            });
            let told: Vec<_> = (0..3000).map(|_| usual_mode(folder)).collect();
            is_over.store(true, Relaxed);
            assert!(told.iter().all(|mode| mode.is_ok()), "{told:?}");
        });
    }

    #[test]
    fn a_hidden_file_is_private_and_the_usual_mode_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (opened, path) = create(folder.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let usual = folder.path().join("usual");
        fs::write(&usual, b"").unwrap();
        let mode = fs::metadata(&usual).unwrap().mode();
        assert_eq!(usual_mode(folder.path()).unwrap(), mode);
        assert_eq!(names(folder.path()).len(), 2);
        drop(opened);
    }
}
