//! Determines whether a file system has room for ranges of a file, before they are allocated.
//!
//! ext4, XFS and F2FS keep the blocks that an allocation got before the system was full. Blocks
//! behind the end of a file are freed only by truncating it, which could cut off bytes that another
//! process has written. So an allocation that is sure to fail must not begin.

use std::os::fd::AsRawFd;

use super::{File, is_block_device};

/// Free bytes that a file system should have beyond those of a write.
const SPARE_ROOM: u64 = 64 << 20;

/// Whether ranges of a file can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    Lacking,
    /// Only an attempt can show it: the room is reserved for some users, or the system does not
    /// report which blocks the file has.
    Unknown,
}

impl File {
    /// Whether there is room for these ranges, not counting the blocks that the file has already.
    /// The ranges do not overlap and lie beyond the end of the file.
    pub(crate) fn room_for(&self, ranges: &[(u64, u64)]) -> Room {
        if self.stat().is_ok_and(|stat| is_block_device(&stat)) {
            return Room::Lacking; // a device does not grow
        }
        if !self.system().keeps_part_of_an_allocation() {
            return Room::Enough;
        }
        let Some((free, available)) = self.free() else {
            return Room::Unknown;
        };
        let wanted: u64 = ranges.iter().map(|(start, end)| end - start).sum();
        if wanted <= available {
            return Room::Enough;
        }
        let there = ranges
            .iter()
            .map(|&(start, end)| self.allocated(start, end));
        match there.sum::<Option<u64>>() {
            Some(there) if wanted.saturating_sub(there) <= available => Room::Enough,
            Some(there) if wanted.saturating_sub(there) > free => Room::Lacking,
            _ => Room::Unknown,
        }
    }

    /// Whether a write of new data in this range of a regular file cannot end early for lack of room,
    /// or at the limit of this process. Concurrent writes of other processes are not considered.
    pub(crate) fn surely_takes(&self, start: u64, end: u64) -> bool {
        limit(libc::RLIMIT_FSIZE).is_some_and(|limit| end <= limit)
            && self.stat().is_ok_and(|stat| !is_block_device(&stat))
            && self.free().is_some_and(|(_, available)| {
                // Blocks of the file's own index, and of concurrent writes, are added.
                let needed = (end - start).saturating_add(SPARE_ROOM);
                let there = || self.allocated(start, end).unwrap_or(0);
                needed <= available || needed - there() <= available
            })
    }

    /// The free bytes of the file system: all of them, and those for any user.
    fn free(&self) -> Option<(u64, u64)> {
        // SAFETY: statvfs is plain data, for which all zero bytes are a valid value.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and `stat` is a valid place for the answer.
        match unsafe { libc::fstatvfs(self.buffered.as_raw_fd(), &mut stat) } {
            0 => Some((stat.f_bfree * stat.f_frsize, stat.f_bavail * stat.f_frsize)),
            _ => None,
        }
    }

    /// Bytes of the range for which the file has blocks, within its length or beyond.
    fn allocated(&self, start: u64, end: u64) -> Option<u64> {
        let mut found = 0;
        self.each_extent(start, end, |extent| {
            let (from, to) = (extent.logical, extent.logical + extent.length);
            found += to.min(end).saturating_sub(from.max(start));
            true
        })?;
        Some(found)
    }

    /// Whether no byte of the range is on the medium: its blocks, if there are any, are unwritten.
    /// What was written to them so far is in the page cache.
    pub(crate) fn is_unwritten(&self, start: u64, end: u64) -> bool {
        const UNWRITTEN: u32 = 0x800; // FIEMAP_EXTENT_UNWRITTEN
        const NOT_ALLOCATED: u32 = 0x4; // FIEMAP_EXTENT_DELALLOC
        let is_empty = |extent: &FileExtent| extent.flags & (UNWRITTEN | NOT_ALLOCATED) != 0;
        self.each_extent(start, end, is_empty) == Some(true)
    }

    /// Calls `visit` for each extent of the range, until it returns false, which is returned. `None`
    /// if the file system does not report extents.
    fn each_extent(
        &self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(&FileExtent) -> bool,
    ) -> Option<bool> {
        let mut at = start;
        while at < end {
            let map = self.first_extents(at, end)?;
            let extents = map.extents();
            let Some(last) = extents.last() else { break };
            if !extents.iter().all(&mut visit) {
                return Some(false);
            }
            // An extent can begin before the range, but each call continues behind the last extent.
            at = (last.logical + last.length).max(at + 1);
        }
        Some(true)
    }

    /// Whether the file has no block for any byte of the range. False if the file system does not
    /// report it.
    pub(crate) fn is_hole(&self, start: u64, end: u64) -> bool {
        let map = self.first_extents(start, end);
        map.is_some_and(|map| map.extents().is_empty())
    }

    /// The first extents of the range, at most [`EXTENTS`].
    fn first_extents(&self, start: u64, end: u64) -> Option<ExtentMap> {
        let mut map = ExtentMap::asking(start, end - start);
        // SAFETY: `map` is a fiemap with `count` places for extents.
        let status = unsafe { libc::ioctl(self.buffered.as_raw_fd(), FS_IOC_FIEMAP, &mut map) };
        (status == 0 && map.mapped as usize <= EXTENTS).then_some(map)
    }
}

/// A limit of this process, as getrlimit(2) reports it.
pub(crate) fn limit(resource: libc::__rlimit_resource_t) -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let status = unsafe { libc::getrlimit(resource, &mut limit) };
    (status == 0).then_some(limit.rlim_cur)
}

/// As `_IOWR('f', 11, struct fiemap)` of linux/fs.h.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

const EXTENTS: usize = 64;

/// `struct fiemap` of linux/fiemap.h.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FileExtent; EXTENTS],
}

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

impl ExtentMap {
    fn extents(&self) -> &[FileExtent] {
        &self.extents[..self.mapped as usize]
    }

    fn asking(start: u64, length: u64) -> ExtentMap {
        ExtentMap {
            start,
            length,
            flags: 0,
            mapped: 0,
            count: EXTENTS as u32,
            reserved: 0,
            extents: [FileExtent::default(); EXTENTS],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::file::Access;
    use crate::options::Options;

    #[test]
    fn allocated_bytes_are_counted_beyond_the_end_of_the_file_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let plain = std::fs::File::create(&path).unwrap();
        // Many extents, with gaps between.
        for number in 0..200 {
            plain.write_all_at(&[1; 4096], number * 16384).unwrap();
        }
        plain.sync_all().unwrap();
        let access = Access {
            read: true,
            write: true,
            ..Access::default()
        };
        let file = File::open(&path, access, Options::default()).unwrap();
        let end = 200 * 16384;
        let Some(found) = file.allocated(0, end) else {
            eprintln!(
                "SKIPPED: the file system of the tests does not report which blocks a file has"
            );
            return;
        };
        assert!((200 * 4096..=end).contains(&found), "{found}");
        assert!(file.allocate(end, 1 << 20, false).unwrap());
        assert_eq!(file.allocated(end, end + (1 << 20)), Some(1 << 20));
        assert!(file.is_hole(4096, 16384) && !file.is_hole(4095, 16384));
        assert!(file.is_hole(end + (1 << 20), end + (2 << 20)));
        assert_eq!(file.allocated(end + 5000, end + 9000), Some(4000));
        assert!(file.size().unwrap() < end);
    }
}
