//! The file system of a file: its name, its alignment for O_DIRECT, its stripes.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::LazyLock;

use super::{open_fd, path_of, stripe};

/// The alignments that O_DIRECT requires, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Of memory addresses.
    pub memory: u32,
    /// Of file offsets and lengths.
    pub offset: u32,
}

/// Bytes of which offset and length of a direct transfer are multiples: of the blocks that O_DIRECT
/// requires, and of pages, so that no page is accessed directly and through the page cache at the same
/// time. Both are powers of two.
pub(super) fn whole_pages(direct: Option<DirectAlignment>, page: u64) -> u64 {
    direct.map_or(page, |required| page.max(required.offset.into()))
}

/// The known properties of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// `f_type` of statfs(2); 0 if it could not be read.
    pub magic: u64,
    /// `None` if the file system has no direct I/O.
    pub direct: Option<DirectAlignment>,
    /// Bytes of a stripe, if the file system has stripes (Lustre).
    pub stripe: Option<u64>,
}

pub(super) const LUSTRE: u64 = 0x0BD0_0BD0;

/// Names of statfs magic numbers, from statfs(2) and linux/magic.h.
const NAMES: &[(u64, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlay"),
    (0x6969, "nfs"),
    (LUSTRE, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "fhgfs"),
    (0x6573_5546, "fuse"),
    (0xFE53_4D42, "smb2"),
    (0x00C3_6400, "ceph"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0x8584_58F6, "ramfs"),
    (0x9584_58F6, "hugetlbfs"),
    (0x0102_1997, "9p"),
    (0x6573_5543, "fusectl"),
];

/// File systems whose files are visible on one machine only.
const OF_ONE_MACHINE: [&str; 8] = [
    "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "ramfs",
];

/// Which writes of other processes to a file a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A process sees all of them at once. All processes are on one machine.
    OnOneMachine,
    /// A process sees all of them at once, on several machines.
    OnSeveral,
    /// A process may miss some of them.
    Unknown,
}

impl FileSystem {
    /// Describes the file system of an open descriptor. Properties that cannot be determined are
    /// left unknown.
    pub fn of(fd: RawFd) -> FileSystem {
        let magic = FileSystem::magic_of(fd);
        FileSystem {
            magic,
            direct: direct_alignment(fd),
            stripe: (magic == LUSTRE).then(|| stripe::size_of(fd)).flatten(),
        }
    }

    /// Whether the file of a descriptor lies in memory.
    pub(super) fn has_no_medium(fd: RawFd) -> bool {
        matches!(name_of(FileSystem::magic_of(fd)), "tmpfs" | "ramfs")
    }

    pub(super) fn magic_of(fd: RawFd) -> u64 {
        // SAFETY: statfs is plain data, for which all zero bytes are a valid value.
        let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is a valid place for the answer.
        let known = unsafe { libc::fstatfs(fd, &mut stat) } == 0;
        if known { stat.f_type as u64 } else { 0 }
    }

    /// Whether buffered writers of one file wait for each other, as they do for the lock of an
    /// inode. Network file systems lock ranges.
    pub(crate) fn takes_one_writer(&self) -> bool {
        self.is_of_one_machine()
    }

    /// Whether one fault of a shared mapping brings 2 MiB of a new file into the page cache. ext4
    /// has had such pages since Linux 6.16. Other file systems with such pages were not measured.
    pub(crate) fn maps_large_pages(&self) -> bool {
        static NEW_ENOUGH: LazyLock<bool> = LazyLock::new(|| {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
            release.is_ok_and(|release| is_at_least(&release, (6, 16)))
        });
        self.name() == "ext4" && *NEW_ENOUGH
    }

    /// Whether files have their cached pages in their own inode, so that cachestat(2) finds them. A
    /// file of a stacked file system (overlay, passthrough of FUSE) has those of a file below it.
    /// Systems that are not known may be stacked.
    pub(crate) fn has_own_pages(&self) -> bool {
        const KNOWN: [&str; 10] = [
            "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs", "nfs", "lustre", "ceph", "smb2",
        ];
        KNOWN.contains(&self.name())
    }

    /// Whether the files exist on this machine only.
    pub(crate) fn is_of_one_machine(&self) -> bool {
        const LOCAL: [&str; 5] = ["ext4", "xfs", "btrfs", "f2fs", "tmpfs"];
        LOCAL.contains(&self.name())
    }

    /// The visibility of writes between processes that have a file at this path, as far as it is
    /// known. `None` if the path does not exist.
    pub fn sharing_at(path: &Path) -> Option<Sharing> {
        let file = open_fd(path, libc::O_PATH).ok()?;
        Some(match name_of(FileSystem::magic_of(file.as_raw_fd())) {
            name if OF_ONE_MACHINE.contains(&name) => Sharing::OnOneMachine,
            "lustre" | "gpfs" => Sharing::OnSeveral,
            _ => Sharing::Unknown,
        })
    }

    /// Whether a request may map rows of a file together with the gaps between them, which other
    /// processes write: where [`sharing_at`](Self::sharing_at) is [`Sharing::OnOneMachine`].
    pub(super) fn may_map_rows(&self) -> bool {
        OF_ONE_MACHINE.contains(&self.name())
    }

    /// Whether a lock of a file excludes processes on all machines that have the file, as far as is
    /// known.
    pub(super) fn has_locks_for_all(fd: RawFd) -> bool {
        OF_ONE_MACHINE.contains(&name_of(FileSystem::magic_of(fd)))
    }

    /// Whether an allocation that fails for lack of space keeps the blocks that it got before.
    /// Other file systems release them, or count beforehand. An overlay may be of either kind.
    pub(super) fn keeps_part_of_an_allocation(&self) -> bool {
        ["ext4", "xfs", "f2fs", "overlay"].contains(&self.name())
    }

    /// The name of the file system, such as `ext4`; `unknown` if the table does not have its magic
    /// number.
    pub fn name(&self) -> &'static str {
        name_of(self.magic)
    }
}

/// Whether a kernel's release, such as 6.18.44-lts, is this version or a later one.
fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u32>().ok();
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) >= version,
        _ => false,
    }
}

fn name_of(magic: u64) -> &'static str {
    let known = NAMES.iter().find(|(number, _)| *number == magic);
    known.map_or("unknown", |(_, name)| name)
}

/// The result of statx(2) for a descriptor.
pub(super) fn statx_of(fd: RawFd, mask: u32) -> Option<libc::statx> {
    let mut stat = MaybeUninit::zeroed();
    // SAFETY: with AT_EMPTY_PATH the call is about the descriptor itself; `stat` is a place for the
    // result.
    let status = unsafe {
        libc::statx(
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            mask,
            stat.as_mut_ptr(),
        )
    };
    // SAFETY: statx is plain data, for which all zero bytes are a valid value.
    (status == 0).then(|| unsafe { stat.assume_init() })
}

/// The alignment from STATX_DIOALIGN (Linux 6.1) if the file system reports it. Otherwise, whether
/// O_DIRECT can be opened at all, with the alignment that every block device accepts.
fn direct_alignment(fd: RawFd) -> Option<DirectAlignment> {
    const STATX_DIOALIGN: u32 = 0x2000;
    if let Some(stat) = statx_of(fd, STATX_DIOALIGN)
        && stat.stx_mask & STATX_DIOALIGN != 0
    {
        return (stat.stx_dio_offset_align != 0).then_some(DirectAlignment {
            memory: stat.stx_dio_mem_align,
            offset: stat.stx_dio_offset_align,
        });
    }
    // Opening a FIFO must not wait for its other end.
    let flags = libc::O_RDONLY | libc::O_DIRECT | libc::O_NONBLOCK;
    match open_fd(&path_of(fd), flags).map_err(|e| e.raw_os_error()) {
        Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => None,
        // Any other error is reported when the descriptor is needed.
        _ => Some(DirectAlignment {
            memory: 4096,
            offset: 4096,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_linux_are_ordered_by_their_numbers() {
        assert!(is_at_least("6.16.0", (6, 16)));
        assert!(is_at_least("6.18.44-lts\n", (6, 16)));
        assert!(is_at_least("7.0-rc1", (6, 16)));
        assert!(!is_at_least("6.8.0-31-generic", (6, 16)));
        assert!(!is_at_least("5.14.0", (6, 16)));
        assert!(!is_at_least("unknown", (6, 16)));
    }

    #[test]
    fn direct_transfers_are_of_whole_pages_and_of_whole_blocks() {
        let blocks = |offset| Some(DirectAlignment { memory: 4, offset });
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for block in [512, 4 << 10, 64 << 10] {
                let aligned = whole_pages(blocks(block), page);
                assert!(aligned.is_multiple_of(page) && aligned.is_multiple_of(block.into()));
                assert!(aligned == page || aligned == u64::from(block));
            }
            assert_eq!(whole_pages(None, page), page);
        }
    }

    #[test]
    fn proc_has_no_direct_io_and_a_temporary_file_has_a_known_type() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(FileSystem::of(file.as_raw_fd()).direct, None);
        let file = tempfile::tempfile().unwrap();
        assert_ne!(FileSystem::of(file.as_raw_fd()).magic, 0);
    }
}
