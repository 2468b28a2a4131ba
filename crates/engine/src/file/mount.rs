//! The mount that a file lies on, with a name that is the same in each process.

use std::fmt::Write;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::system::statx_of;
use crate::sync::Recover;

/// A mount of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The type of the file system, such as "ext4" or "fuse.sshfs".
    pub kind: String,
    /// The source of the mount, such as "/dev/vda1" or "server:/export".
    pub source: String,
    pub point: String,
}

/// The number of a mount, which a later mount may get, and the device number of its file system.
type Key = (u64, u64);

impl Mount {
    /// The mount of an open file; `None` if the system does not report it. Results are cached.
    pub(crate) fn of(fd: RawFd) -> Option<Arc<Mount>> {
        static KNOWN: Mutex<Vec<(Key, Option<Arc<Mount>>)>> = Mutex::new(Vec::new());
        let key = key(fd)?;
        let mut known = KNOWN.lock().recover();
        if let Some((_, mount)) = known.iter().find(|(k, _)| *k == key) {
            return mount.clone();
        }
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = find(&table, key.0).map(Arc::new);
        known.push((key, mount.clone()));
        mount
    }

    /// A name for files about this mount: its type, and a hash of the rest.
    pub(crate) fn name(&self) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '.';
        let mut name: String = self.kind.chars().filter(is_plain).collect();
        let identity = format!("{}\0{}\0{}", self.kind, self.source, self.point);
        let _ = write!(name, "-{:016x}", hash(identity.as_bytes()));
        name
    }
}

/// FNV-1a, which is the same on every machine.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn key(fd: RawFd) -> Option<Key> {
    const STATX_MNT_ID: u32 = 0x1000;
    let stat = statx_of(fd, STATX_MNT_ID)?;
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    if stat.stx_mask & STATX_MNT_ID != 0 {
        return Some((stat.stx_mnt_id, device));
    }
    // Before Linux 5.8.
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some((number.trim().parse().ok()?, device))
}

/// Parses the line of a mount: "36 35 98:0 /root /point options [optional...] - type source
/// options".
fn find(table: &str, number: u64) -> Option<Mount> {
    table.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ');
        let is_it = front.next()?.parse() == Ok(number);
        let point = front.nth(3)?;
        let mut back = back.split(' ');
        is_it.then(|| {
            Some(Mount {
                kind: plain(back.next()?),
                source: plain(back.next()?),
                point: plain(point),
            })
        })?
    })
}

/// Undoes the escapes of a field: a blank, for example, is "\040".
fn plain(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| byte == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    const TABLE: &str = "\
25 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
31 25 0:27 / /dev/shm rw shared:2 master:7 - tmpfs tmpfs rw
44 25 0:51 /a /mnt/two\\040words rw - nfs4 server:/export\\134x rw,vers=4.2
";

    #[test]
    fn a_mount_is_found_by_its_number() {
        let found = find(TABLE, 31).unwrap();
        assert_eq!((&*found.kind, &*found.point), ("tmpfs", "/dev/shm"));
        assert_eq!(find(TABLE, 3), None);
    }

    #[test]
    fn escapes_of_the_table_are_undone() {
        let found = find(TABLE, 44).unwrap();
        assert_eq!(found.point, "/mnt/two words");
        assert_eq!(found.source, "server:/export\\x");
    }

    #[test]
    fn the_name_of_a_mount_has_its_type_and_is_unique() {
        let names = [25, 31, 44].map(|number| find(TABLE, number).unwrap().name());
        assert!(names[0].starts_with("ext4-"), "{}", names[0]);
        assert!(names[0] != names[1] && names[1] != names[2]);
        assert_eq!(names[0], find(TABLE, 25).unwrap().name());
    }

    #[test]
    fn a_file_lies_on_the_mount_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        let of_folder = std::fs::File::open(folder.path()).unwrap();
        let found = Mount::of(file.as_raw_fd());
        assert!(found.is_some());
        assert_eq!(found, Mount::of(of_folder.as_raw_fd()));
    }
}
