//! The share of a file range that is in the page cache.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::page_size;

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

static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// The cached share of the range, from 0 to 1; `None` if the system does not report it.
pub(crate) fn residency(fd: RawFd, offset: u64, length: u64) -> Option<f64> {
    if length == 0 {
        return Some(1.0);
    }
    if !NO_CACHESTAT.load(Relaxed) {
        if let Some(share) = by_cachestat(fd, offset, length) {
            return Some(share);
        }
        // Other failures concern this file only.
        let error = std::io::Error::last_os_error().raw_os_error();
        if matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
            NO_CACHESTAT.store(true, Relaxed);
        }
    }
    by_mincore(fd, offset, length)
}

/// Whether this kernel has cachestat(2).
pub(crate) fn has_cachestat(fd: RawFd) -> bool {
    by_cachestat(fd, 0, 1).is_some()
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

fn by_mincore(fd: RawFd, offset: u64, length: u64) -> Option<f64> {
    // A sample is enough: the residency map of a whole large file would cost more than it saves.
    const SAMPLE: u64 = 4 << 20;
    const SMALLEST_PAGE: usize = 4 << 10;
    let (first, count) = pages(offset, length.min(SAMPLE), page_size());
    let bytes = (count * page_size()) as usize;
    // SAFETY: a fresh read-only mapping at an address of the kernel's choice. It is never
    // dereferenced, only passed to mincore, and unmapped below.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            (first * page_size()) as libc::off_t,
        )
    };
    if map == libc::MAP_FAILED {
        return None;
    }
    // An emulator of larger pages (qemu-user -p) passes the call to a kernel with pages of 4 KiB.
    let mut resident = vec![0u8; bytes.div_ceil(SMALLEST_PAGE)];
    // SAFETY: `resident` has a byte for each page of the mapping.
    let status = unsafe { libc::mincore(map, bytes, resident.as_mut_ptr()) };
    // SAFETY: the mapping made above, to which no reference exists.
    unsafe { libc::munmap(map, bytes) };
    let cached = resident[..count as usize]
        .iter()
        .filter(|b| **b & 1 == 1)
        .count();
    (status == 0).then(|| cached as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_range_has_a_part_of_each_page_that_it_touches() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(pages(0, 1, page), (0, 1));
            assert_eq!(pages(page - 1, 2, page), (0, 2));
            assert_eq!(pages(3 * page, page, page), (3, 1));
            assert_eq!(pages(3 * page + 1, page, page), (3, 2));
        }
    }

    #[test]
    fn a_file_just_written_is_resident_by_both_queries() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1u8; 1 << 20]).unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(by_mincore(fd, 0, 1 << 20), Some(1.0));
        assert!(residency(fd, 0, 1 << 20).unwrap() > 0.99);
        assert_eq!(residency(fd, 12345, 0), Some(1.0));
    }

    #[test]
    fn a_hole_that_was_not_read_is_not_resident() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        assert_eq!(residency(file.as_raw_fd(), 0, 8 << 20), Some(0.0));
    }
}
