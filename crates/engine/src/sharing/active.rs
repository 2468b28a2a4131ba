//! Which GPUs of the host are being read into by processes of this user: a table of times in shared
//! memory, with an entry per GPU.
//!
//! Times age, so a process that is killed leaves nothing to undo. Without the table, every GPU
//! seems to be alone.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use crate::gpu::Context;

/// A prime, so that GPUs that are neighbours on a bus have different entries.
const PLACES: u64 = 509;
/// Nanoseconds for which a read counts after it began: longer than most reads, and than the pause
/// before the next.
const RECENT: u64 = 1_000_000_000;

pub(super) struct ActiveReads {
    table: Option<File>,
}

impl ActiveReads {
    pub(crate) fn of_user() -> &'static ActiveReads {
        static TABLE: OnceLock<ActiveReads> = OnceLock::new();
        TABLE.get_or_init(|| {
            // SAFETY: geteuid only reads.
            let user = unsafe { libc::geteuid() };
            ActiveReads::at(format!("/dev/shm/penstock-{user}").as_ref(), user)
        })
    }

    fn at(path: &Path, user: u32) -> ActiveReads {
        let table = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok();
        // Another user may have made a file of this name.
        let is_ours = |file: &File| {
            file.metadata()
                .is_ok_and(|data| data.is_file() && data.uid() == user)
        };
        ActiveReads {
            table: table.filter(is_ours),
        }
    }

    /// Notes that a read into this GPU begins. Returns how many other GPUs are being read into.
    pub(crate) fn begin(&self, context: &Context) -> usize {
        let id = context.driver.pci_bus_id(context.device);
        self.begin_at(place(id.as_deref(), context.device), now())
    }

    fn begin_at(&self, mine: u64, now: u64) -> usize {
        let Some(table) = &self.table else { return 0 };
        let mut times = [0; PLACES as usize * 8];
        // Bytes behind the end of the file were never written.
        let read = table.read_at(&mut times, 0).unwrap_or(0);
        let _ = table.write_at(&now.to_ne_bytes(), mine * 8);
        times[..read]
            .chunks_exact(8)
            .zip(0..)
            .filter(|(_, place)| *place != mine)
            .filter_map(|(bytes, _)| Some(u64::from_ne_bytes(bytes.try_into().ok()?)))
            .filter(|time| *time != 0 && now.abs_diff(*time) < RECENT)
            .count()
    }
}

/// The entry of a GPU, by its PCI address such as "0000:3b:00.0".
fn place(bus_id: Option<&str>, ordinal: i32) -> u64 {
    let digits: String = bus_id
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    let number = u64::from_str_radix(&digits, 16).unwrap_or(ordinal.max(0) as u64);
    number % PLACES
}

/// Nanoseconds of a clock that all processes of the host share.
fn now() -> u64 {
    // SAFETY: timespec is plain data, for which all zero bytes are a valid value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn user() -> u32 {
        // SAFETY: geteuid only reads.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn a_gpu_sees_another_one_that_was_read_into_just_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let (one, two) = (
            ActiveReads::at(&path, user()),
            ActiveReads::at(&path, user()),
        );
        assert_eq!(one.begin_at(3, 5 * SECOND), 0);
        assert_eq!(two.begin_at(7, 5 * SECOND + 1000), 1);
        assert_eq!(one.begin_at(3, 5 * SECOND + 2000), 1);
    }

    #[test]
    fn it_does_not_count_itself_nor_what_is_long_over() {
        let folder = tempfile::tempdir().unwrap();
        let table = ActiveReads::at(&folder.path().join("table"), user());
        assert_eq!(table.begin_at(3, 5 * SECOND), 0);
        assert_eq!(table.begin_at(3, 5 * SECOND + 1000), 0);
        assert_eq!(table.begin_at(7, 7 * SECOND), 0);
    }

    #[test]
    fn without_a_table_every_gpu_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let table = ActiveReads::at(&folder.path().join("absent/table"), user());
        assert_eq!(table.begin_at(3, SECOND), 0);
        // Somebody else's file, or a link to one.
        let table = ActiveReads::at(&folder.path().join("table"), user() + 1);
        assert_eq!(
            (table.begin_at(3, SECOND), table.begin_at(4, SECOND)),
            (0, 0)
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("table"), &link).unwrap();
        let table = ActiveReads::at(&link, user());
        assert_eq!(
            (table.begin_at(3, SECOND), table.begin_at(4, SECOND)),
            (0, 0)
        );
    }

    #[test]
    fn neighbours_on_a_bus_have_places_of_their_own() {
        let ids = [
            "0000:00:05.0",
            "0000:00:06.0",
            "0000:3b:00.0",
            "0001:3b:00.0",
        ];
        let mut places = ids.map(|id| place(Some(id), 0));
        places.sort_unstable();
        assert!(
            places.windows(2).all(|pair| pair[0] != pair[1]),
            "{places:?}"
        );
        assert_ne!(place(None, 0), place(None, 1));
    }
}
