//! The memory of one device: a sparse memory file, mapped without access for the clients' device
//! pointers and with access for the stand-in itself.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::status::{OUT_OF_MEMORY, Result};

/// The system's page size in bytes.
pub fn page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf reads a constant of the system.
    *SIZE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize)
}

/// Address space per byte of memory. Freed addresses are reused only after the whole range was used
/// once, so that a stale pointer refers to no allocation.
const SPREAD: usize = 8;

/// Allocations below this size start off a page boundary, as small ones of the driver may.
const SMALL: usize = 1 << 20;
const SMALL_ALIGNMENT: usize = 256;

pub struct Arena {
    file: libc::c_int,
    pointers: usize,
    access: usize,
    extent: usize,
    capacity: usize,
    used: AtomicUsize,
    spans: Mutex<Spans>,
}

/// The reserved address ranges by offset, each including a guard page at its end.
struct Spans {
    taken: BTreeMap<usize, usize>,
    next: usize,
}

impl Arena {
    pub fn new(capacity: usize) -> Result<Arena> {
        let capacity = capacity.next_multiple_of(page());
        let extent = capacity.checked_mul(SPREAD).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: the name is a C string. The descriptor stays open until the process ends.
        let file = unsafe { libc::memfd_create(c"cudasim".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: only sets the size of the descriptor just made, which touches no memory.
        if file < 0 || unsafe { libc::ftruncate(file, extent as libc::off_t) } != 0 {
            return Err(OUT_OF_MEMORY);
        }
        let map = |access| {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), extent, access, flags, file, 0) };
            if at == libc::MAP_FAILED {
                Err(OUT_OF_MEMORY)
            } else {
                Ok(at as usize)
            }
        };
        Ok(Arena {
            file,
            pointers: map(libc::PROT_NONE)?,
            access: map(libc::PROT_READ | libc::PROT_WRITE)?,
            extent,
            capacity,
            used: AtomicUsize::new(0),
            spans: Mutex::new(Spans {
                taken: BTreeMap::new(),
                next: 0,
            }),
        })
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes that are not allocated.
    pub fn free(&self) -> usize {
        self.capacity - self.used.load(Ordering::Relaxed)
    }

    /// Whether an address belongs to this device, allocated or not.
    pub fn contains(&self, address: usize) -> bool {
        (self.pointers..self.pointers + self.extent).contains(&address)
    }

    /// Counts `size` bytes as used. Fails if fewer are free.
    pub fn charge(&self, size: usize) -> Result {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(size).filter(|&sum| sum <= self.capacity)
            })
            .map(drop)
            .map_err(|_| OUT_OF_MEMORY)
    }

    pub fn refund(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }

    /// Reserves `size` bytes of device addresses, followed by at least one guard page.
    pub fn reserve(&self, size: usize) -> Result<usize> {
        let lead = if size < SMALL { SMALL_ALIGNMENT } else { 0 };
        let length = (lead + size).next_multiple_of(page()) + page();
        let mut spans = self.spans.lock().unwrap();
        let start = spans
            .gap(spans.next, self.extent, length)
            .or_else(|| spans.gap(0, self.extent, length))
            .ok_or(OUT_OF_MEMORY)?;
        spans.taken.insert(start, length);
        spans.next = start + length;
        Ok(self.pointers + start + lead)
    }

    /// Releases a reserved address and the pages behind it.
    pub fn release(&self, address: usize) {
        let start = (address - self.pointers) / page() * page();
        let mut spans = self.spans.lock().unwrap();
        let length = spans
            .taken
            .remove(&start)
            .expect("released address was reserved");
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the range lies in the file and no region uses it any more. If the kernel does not
        // free the pages, the next owner finds old bytes instead of poison, which is harmless.
        unsafe { libc::fallocate(self.file, mode, start as libc::off_t, length as libc::off_t) };
    }

    /// The pointer through which the stand-in accesses the bytes of a device address.
    pub fn access(&self, address: usize) -> *mut u8 {
        (address - self.pointers + self.access) as *mut c_void as *mut u8
    }
}

impl Spans {
    /// The offset of the first free range of `length` bytes between `from` and `end`.
    fn gap(&self, from: usize, end: usize, length: usize) -> Option<usize> {
        let before = self.taken.range(..from).next_back();
        let mut start = before.map_or(from, |(&start, &length)| from.max(start + length));
        for (&taken, &taken_length) in self.taken.range(from..) {
            if start + length <= taken {
                break;
            }
            start = taken + taken_length;
        }
        (start.checked_add(length)? <= end).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    #[test]
    fn freed_addresses_are_reused_last() {
        let arena = Arena::new(1 << 20).unwrap();
        let first = arena.reserve(100).unwrap();
        arena.release(first);
        let mut again = 0;
        while arena.reserve(100).unwrap() != first {
            again += 1;
        }
        assert!(again > 1000, "address came back after {again} allocations");
    }

    #[test]
    fn the_device_counts_its_free_memory() {
        let arena = Arena::new(1 << 20).unwrap();
        arena.charge(1 << 19).unwrap();
        assert!(arena.charge((1 << 19) + 1).is_err());
        arena.refund(1 << 19);
        assert!(arena.charge(arena.capacity()).is_ok());
    }
}
