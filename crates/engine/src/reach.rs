//! Checks that host memory is mapped before the CPU touches it, where a copy would end the process
//! by a signal. System calls that move bytes need no such check: they fail with EFAULT.

use std::ffi::{c_int, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::fork::refuse_fork;
use crate::page::page_size;

/// The access of the CPU to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The CPU reads the memory.
    Read,
    /// The CPU writes the memory.
    Write,
}

/// Checks that the CPU can use `length` bytes of host memory at `start`. Takes a microsecond for
/// each mapping in the range, independent of its length. Another thread may unmap the memory
/// afterwards.
///
/// Before Linux 6.11 the check finds addresses that are not mapped, but no missing permissions.
///
/// # Errors
/// EFAULT, with the range.
pub fn check(start: usize, length: usize, wanted: Use) -> Result<()> {
    if length == 0 || refuse_fork().is_err() {
        return Ok(());
    }
    let is_there = start.checked_add(length).is_some_and(|end| {
        mappings()
            .and_then(|mappings| are_usable(mappings, start, end, wanted))
            .unwrap_or_else(|| are_mapped(start, end))
    });
    if is_there {
        Ok(())
    } else {
        Err(unreachable_memory(start, length))
    }
}

/// As [`check`], in a third of the time for memory on one or two pages. For such memory, it does
/// not detect that the memory can be read but not written.
pub fn check_quickly(start: usize, length: usize, wanted: Use) -> Result<()> {
    let page = page_size() as usize;
    let Some(last) = start.checked_add(length.saturating_sub(1)) else {
        return Err(unreachable_memory(start, length));
    };
    if last / page - start / page > 1 {
        return check(start, length, wanted);
    }
    let is_one_page = last / page == start / page;
    if length == 0 || (is_readable(start) && (is_one_page || is_readable(last))) {
        Ok(())
    } else {
        Err(unreachable_memory(start, length))
    }
}

fn unreachable_memory(start: usize, length: usize) -> Error {
    let error = io::Error::from_raw_os_error(libc::EFAULT);
    let action = format!("cannot access the {length} bytes of memory at {start:#x}");
    Error::os(&error, &action).remedy("pass memory that is allocated and large enough")
}

/// Whether the page of an address can be read. The system call reads a set of signals at the
/// address, and then fails because its action is invalid.
pub(crate) fn is_readable(address: usize) -> bool {
    const SET: usize = 8;
    const NOTHING_TO_DO: c_int = -1;
    let none = ptr::null_mut::<c_void>();
    // SAFETY: the call changes nothing, because it has no such action, and writes nowhere.
    let status = unsafe {
        let set = (address / SET * SET) as *const c_void;
        libc::syscall(libc::SYS_rt_sigprocmask, NOTHING_TO_DO, set, none, SET)
    };
    status == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// `struct procmap_query` of linux/fs.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `PROCMAP_QUERY`, which is `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: c_ulong =
    (3 << 30) | ((mem::size_of::<Query>() as c_ulong) << 16) | (0x66 << 8) | 17;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// The mappings of this process; `None` if the kernel does not support a query for one of them.
fn mappings() -> Option<&'static File> {
    static MAPPINGS: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let file = File::open("/proc/self/maps").ok()?;
        let known = 0u8;
        end_of_mapping(&file, &raw const known as usize, Use::Read)?;
        Some(file)
    };
    MAPPINGS.get_or_init(open).as_ref()
}

/// The end of the mapping that has this address, or the address itself if no usable mapping has it.
/// `None` if the file cannot be used: a program may close descriptors that it did not open.
fn end_of_mapping(mappings: &File, address: usize, wanted: Use) -> Option<usize> {
    let mut query = Query {
        size: mem::size_of::<Query>() as u64,
        query_flags: match wanted {
            Use::Read => READABLE,
            Use::Write => WRITABLE,
        },
        query_addr: address as u64,
        ..Query::default()
    };
    // SAFETY: the structure is the one that the request takes, and names no further memory.
    let status: c_int = unsafe { libc::ioctl(mappings.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    match status {
        0 => Some(query.vma_end as usize),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) => Some(address),
        _ => None,
    }
}

fn are_usable(mappings: &File, start: usize, end: usize, wanted: Use) -> Option<bool> {
    let mut at = start;
    while at < end {
        match end_of_mapping(mappings, at, wanted)? {
            next if next > at => at = next,
            _ => return Some(false),
        }
    }
    Some(true)
}

fn are_mapped(start: usize, end: usize) -> bool {
    let page = page_size() as usize;
    let start = start / page * page;
    // SAFETY: MS_ASYNC starts nothing: it only looks for the mappings, and touches no memory.
    unsafe { libc::msync(start as *mut _, end - start, libc::MS_ASYNC) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64 << 10;

    /// Three pages, of which the middle one has other permissions or is unmapped.
    fn pages(middle: Option<c_int>) -> usize {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping of its own, which nothing else uses.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), 3 * PAGE, all, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let second = start.cast::<u8>().add(PAGE).cast();
            let status = match middle {
                Some(permissions) => libc::mprotect(second, PAGE, permissions),
                None => libc::munmap(second, PAGE),
            };
            assert_eq!(status, 0);
            start as usize
        }
    }

    #[test]
    fn memory_that_is_mapped_can_be_reached() {
        let start = pages(Some(libc::PROT_READ | libc::PROT_WRITE));
        check(start + 1, 3 * PAGE - 1, Use::Read).unwrap();
        check(start + 1, 3 * PAGE - 1, Use::Write).unwrap();
        assert!(are_mapped(start + 1, start + 3 * PAGE));
        check(1, 0, Use::Write).unwrap();
    }

    #[test]
    fn a_hole_is_efault_whether_or_not_the_kernel_reports_permissions() {
        let start = pages(None);
        let error = check(start, 3 * PAGE, Use::Read).unwrap_err();
        assert_eq!(error.os_errno(), libc::EFAULT);
        check(start, PAGE, Use::Write).unwrap();
        assert!(!are_mapped(start + 1, start + 3 * PAGE));
        assert!(are_mapped(start, start + PAGE));
    }

    #[test]
    fn a_quick_check_finds_what_is_not_mapped() {
        let start = pages(None);
        let last = start + PAGE - 1;
        for wanted in [Use::Read, Use::Write] {
            check_quickly(start, PAGE, wanted).unwrap();
            check_quickly(last, 1, wanted).unwrap();
            check_quickly(last + 1, 0, wanted).unwrap();
            for (at, length) in [(last, 2), (last + 1, 1), (start, PAGE + 1), (4096, 8)] {
                let error = check_quickly(at, length, wanted).unwrap_err();
                assert_eq!(error.os_errno(), libc::EFAULT);
            }
        }
    }

    #[test]
    fn a_quick_check_leaves_the_signals_of_the_thread_alone() {
        let blocked = || {
            let mut set = 0u64;
            let none = ptr::null::<c_void>();
            // SAFETY: the kernel writes the set of blocked signals, which has eight bytes.
            let status =
                unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, none, &raw mut set, 8) };
            assert_eq!(status, 0);
            set
        };
        let before = blocked();
        let every_signal = [u64::MAX; 2];
        check_quickly(every_signal.as_ptr() as usize, 16, Use::Read).unwrap();
        assert_eq!(blocked(), before);
    }

    #[test]
    fn addresses_that_wrap_around_are_efault() {
        for check in [check, check_quickly] {
            let error = check(usize::MAX - 10, 20, Use::Read).unwrap_err();
            assert_eq!(error.os_errno(), libc::EFAULT);
        }
    }

    #[test]
    fn a_descriptor_that_is_another_file_by_now_gives_no_result() {
        let other = tempfile::tempfile().unwrap();
        let start = pages(Some(libc::PROT_READ));
        assert_eq!(are_usable(&other, start, start + PAGE, Use::Read), None);
    }

    #[test]
    fn permissions_count_where_the_kernel_reports_them() {
        if mappings().is_none() {
            eprintln!("SKIPPED: this kernel has no PROCMAP_QUERY");
            return;
        }
        let start = pages(Some(libc::PROT_READ));
        check(start, 3 * PAGE, Use::Read).unwrap();
        assert!(check(start, 3 * PAGE, Use::Write).is_err());
        let start = pages(Some(libc::PROT_NONE));
        assert!(check(start, 3 * PAGE, Use::Read).is_err());
    }
}
