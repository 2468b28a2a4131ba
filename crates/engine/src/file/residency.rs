//! The share of a file range that is in the page cache.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::room::limit;
use super::system::FileSystem;
use super::{File, page_size, stat_of};

/// cachestat(2), Linux 6.5; the number is the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

impl File {
    /// The cached share of the range, from 0 to 1; `None` if the system does not report it.
    pub(crate) fn residency(&self, offset: u64, length: u64) -> Option<f64> {
        let fd = self.buffered_fd();
        let residency = self
            .residency
            .get_or_init(|| Residency::of(fd, self.system()));
        residency.share(fd, offset, length)
    }
}

/// The call that finds the cached pages of a file.
#[derive(Debug)]
pub(crate) enum Residency {
    Cachestat,
    /// With a mapping of the file, if it may be kept.
    Mincore(Option<KeptMap>),
}

impl Residency {
    /// Chooses the call for a descriptor of a file on `system`.
    pub(crate) fn of(fd: RawFd, system: &FileSystem) -> Residency {
        let counts = by_cachestat(fd, 0, 1).is_some();
        if counts && system.has_own_pages() {
            return Residency::Cachestat;
        }
        // A stacked file system keeps no pages itself: cachestat finds none, whereas a mapping has
        // those of the file below.
        let size = stat_of(&fd).map_or(0, |stat| stat.st_size as u64);
        let mincore = Residency::Mincore(KeptMap::of(fd, size + BEYOND));
        // For a file that the process neither owns nor may write, mincore says that all pages are
        // resident, even those far behind the end.
        if counts && mincore.resident(fd, (size + BEYOND) / page_size() - 1, 1) != Some(0) {
            return Residency::Cachestat;
        }
        mincore
    }

    /// As [`File::residency`], of a range of the file of `fd`.
    pub(crate) fn share(&self, fd: RawFd, offset: u64, length: u64) -> Option<f64> {
        match self {
            _ if length == 0 => Some(1.0),
            Residency::Cachestat => by_cachestat(fd, offset, length),
            Residency::Mincore(_) => self.by_mincore(fd, offset, length),
        }
    }

    /// The cached share of the range or, if it is long, of samples that are spread over it.
    fn by_mincore(&self, fd: RawFd, offset: u64, length: u64) -> Option<f64> {
        // The residency map of a whole large file would cost more than it saves.
        const SAMPLES: u64 = 16;
        const SAMPLE: u64 = 256 << 10;
        let page = page_size();
        let (first, count) = pages(offset, length, page);
        if count * page <= SAMPLES * SAMPLE {
            return Some(self.resident(fd, first, count)? as f64 / count as f64);
        }
        let each = SAMPLE.div_ceil(page);
        let sampled = (0..SAMPLES)
            .map(|i| self.resident(fd, first + (count - each) * i / (SAMPLES - 1), each));
        Some(sampled.sum::<Option<u64>>()? as f64 / (SAMPLES * each) as f64)
    }

    /// The number of resident pages among `count` from the page `first` on.
    fn resident(&self, fd: RawFd, first: u64, count: u64) -> Option<u64> {
        match self {
            Residency::Mincore(Some(KeptMap(map))) if first + count <= map.count => {
                map.resident(first, count)
            }
            _ => Map::of(fd, first, count)?.resident(0, count),
        }
    }
}

/// Whether this kernel has cachestat(2), and no sandbox refuses it.
pub(crate) fn has_cachestat() -> bool {
    by_cachestat(-1, 0, 1);
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

/// The first page of a range, and how many pages it has a part of.
fn pages(offset: u64, length: u64, page: u64) -> (u64, u64) {
    let first = offset / page;
    (first, (offset + length).div_ceil(page) - first)
}

fn by_cachestat(fd: RawFd, offset: u64, length: u64) -> Option<f64> {
    let range = CachestatRange { offset, length };
    let mut stat = Cachestat::default();
    // SAFETY: both structs have the layout of linux/mman.h and outlive the call.
    let status = unsafe { libc::syscall(SYS_CACHESTAT, fd, &range, &mut stat, 0u32) };
    let (_, count) = pages(offset, length, page_size());
    (status == 0).then(|| (stat.cached as f64 / count as f64).min(1.0))
}

/// Bytes of a kept mapping behind the end of the file, into which the file may grow. Larger than any
/// page of a huge tmpfs, which may reach over the end.
const BEYOND: u64 = 1 << 30;

/// Pages of a file, mapped for mincore(2) alone and never dereferenced.
#[derive(Debug)]
struct Map {
    start: *mut libc::c_void,
    count: u64,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Map {}
// SAFETY: mincore(2) changes nothing of it.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `count` pages from the page `first` on.
    fn of(fd: RawFd, first: u64, count: u64) -> Option<Map> {
        // SAFETY: a fresh read-only mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (count * page_size()) as usize,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                (first * page_size()) as libc::off_t,
            )
        };
        (start != libc::MAP_FAILED).then_some(Map { start, count })
    }

    /// The number of resident pages among `count` from the page `first` of the mapping on.
    fn resident(&self, first: u64, count: u64) -> Option<u64> {
        const SMALLEST_PAGE: usize = 4 << 10;
        let bytes = (count * page_size()) as usize;
        // An emulator of larger pages (qemu-user -p) passes the call to a kernel with pages of 4 KiB.
        let mut flags = vec![0u8; bytes.div_ceil(SMALLEST_PAGE)];
        let start = self.start.wrapping_byte_add((first * page_size()) as usize);
        // SAFETY: `flags` has a byte for each page of the range.
        let status = unsafe { libc::mincore(start, bytes, flags.as_mut_ptr()) };
        let cached = flags[..count as usize].iter().filter(|b| **b & 1 == 1);
        (status == 0).then(|| cached.count() as u64)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, to which no reference exists.
        unsafe { libc::munmap(self.start, (self.count * page_size()) as usize) };
    }
}

/// A mapping of a whole file that stays until the file is closed: to map and unmap each range takes
/// longer than mincore(2), and keeps other threads of the process from doing so.
#[derive(Debug)]
pub(crate) struct KeptMap(Map);

/// The number of kept mappings. A process may have 65,530 mappings by default.
static KEPT: AtomicUsize = AtomicUsize::new(0);
const MOST_KEPT: usize = 1024;

impl KeptMap {
    /// `None` if the file cannot be mapped, or the process can have few more mappings.
    fn of(fd: RawFd, bytes: u64) -> Option<KeptMap> {
        // A mapping as large as the file would leave the program little of a limited address space.
        if limit(libc::RLIMIT_AS) != Some(libc::RLIM_INFINITY) {
            return None;
        }
        let one_more = |kept| (kept < MOST_KEPT).then_some(kept + 1);
        KEPT.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        let map = Map::of(fd, 0, bytes / page_size());
        if map.is_none() {
            KEPT.fetch_sub(1, Relaxed);
        }
        map.map(KeptMap)
    }
}

impl Drop for KeptMap {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{answer, c_string};
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    #[test]
    fn a_range_has_a_part_of_each_page_that_it_touches() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(pages(0, 1, page), (0, 1));
            assert_eq!(pages(page - 1, 2, page), (0, 2));
            assert_eq!(pages(3 * page, page, page), (3, 1));
            assert_eq!(pages(3 * page + 1, page, page), (3, 2));
        }
    }

    fn share(file: &std::fs::File, offset: u64, length: u64) -> Option<f64> {
        let fd = file.as_raw_fd();
        Residency::of(fd, &FileSystem::of(fd)).share(fd, offset, length)
    }

    fn by_mincore(file: &std::fs::File, offset: u64, length: u64) -> Option<f64> {
        let size = file.metadata().unwrap().len();
        let kept = [KeptMap::of(file.as_raw_fd(), size + BEYOND), None];
        let [share, other] =
            kept.map(|kept| Residency::Mincore(kept).share(file.as_raw_fd(), offset, length));
        assert_eq!(share, other);
        share
    }

    #[test]
    fn a_file_just_written_is_resident_by_both_queries() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1u8; 1 << 20]).unwrap();
        assert_eq!(by_mincore(&file, 0, 1 << 20), Some(1.0));
        assert!(share(&file, 0, 1 << 20).unwrap() > 0.99);
        assert_eq!(share(&file, 12345, 0), Some(1.0));
    }

    #[test]
    fn a_hole_that_was_not_read_is_not_resident() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        assert_eq!(share(&file, 0, 8 << 20), Some(0.0));
        assert_eq!(by_mincore(&file, 0, 8 << 20), Some(0.0));
    }

    #[test]
    fn mincore_samples_all_parts_of_a_long_range() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1u8; 8 << 20]).unwrap();
        file.set_len(16 << 20).unwrap();
        assert_eq!(by_mincore(&file, 0, 16 << 20), Some(0.5));
    }

    #[test]
    fn a_file_that_has_outgrown_its_kept_mapping_is_mapped_anew() {
        let mut file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let kept = Residency::Mincore(KeptMap::of(fd, BEYOND));
        file.seek(SeekFrom::Start(2 * BEYOND)).unwrap();
        file.write_all(&vec![1u8; 1 << 20]).unwrap();
        assert_eq!(kept.share(fd, 2 * BEYOND, 1 << 20), Some(1.0));
        assert_eq!(kept.share(fd, BEYOND - (1 << 20), 2 << 20), Some(0.0));
    }

    /// Opens `name` of `folder` in an overlay, which only this thread's mount namespace has.
    fn open_in_overlay(folder: &Path, name: &str) -> std::io::Result<std::fs::File> {
        let (point, empty) = (folder.join("point"), folder.join("empty"));
        for made in [&point, &empty] {
            std::fs::create_dir(made)?;
        }
        let layers = format!("lowerdir={}:{}", folder.display(), empty.display());
        let layers = c_string(layers.as_ref())?;
        let target = c_string(point.as_os_str())?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let none = std::ptr::null();
        // SAFETY: all strings outlive the calls, which change the namespace of this thread only.
        unsafe {
            answer(libc::unshare(libc::CLONE_NEWNS))?;
            answer(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
            let kind = c"overlay".as_ptr();
            answer(libc::mount(
                kind,
                target.as_ptr(),
                kind,
                0,
                layers.as_ptr().cast(),
            ))?;
        }
        std::fs::File::open(point.join(name))
    }

    #[test]
    fn a_cached_file_of_an_overlay_is_resident() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cached"), vec![1u8; 8 << 20]).unwrap();
        let opened = std::thread::scope(|scope| {
            let thread = scope.spawn(|| open_in_overlay(folder.path(), "cached"));
            thread.join().unwrap()
        });
        let file = match opened {
            Ok(file) => file,
            Err(error) => return eprintln!("SKIPPED: an overlay cannot be mounted: {error}"),
        };
        let fd = file.as_raw_fd();
        let residency = Residency::of(fd, &FileSystem::of(fd));
        assert!(matches!(residency, Residency::Mincore(Some(_))));
        assert_eq!(residency.share(fd, 0, 8 << 20), Some(1.0));
        assert_eq!(residency.share(fd, 5 << 20, 12_345), Some(1.0));
    }
}
