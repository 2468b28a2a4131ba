//! The memory of a request: addresses that all its workers share, each for its own elements.

/// Host memory of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    length: u64,
}

// SAFETY: the creator guarantees that the memory is valid until the request ends. Workers write
// disjoint parts in a read, and none in a write.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// GPU memory of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMemory {
    /// Address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

impl HostMemory {
    /// # Safety
    /// `start` is valid for `length` bytes until the request that uses it has finished: in a read
    /// for writes, with no other access meanwhile; in a write for reads, with no writes by other
    /// code.
    pub(crate) unsafe fn new(start: *mut u8, length: u64) -> HostMemory {
        HostMemory { start, length }
    }

    /// Returns bytes for reading. The request must be a write.
    pub(super) fn slice(&self, offset: u64, length: u64) -> &[u8] {
        self.check_range(offset, length);
        // SAFETY: the range was just checked; the creator guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.start.add(offset as usize), length as usize) }
    }

    /// # Safety
    /// The request is a read, and no other slice of these bytes is alive.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is the caller's, not this value's"
    )]
    pub(super) unsafe fn slice_mut(&self, offset: u64, length: u64) -> &mut [u8] {
        self.check_range(offset, length);
        // SAFETY: the range was just checked; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset as usize), length as usize) }
    }

    /// Returns the address of the element at `first`. Checks that it lies in the memory together
    /// with the last element, `reach` bytes away; elements have `element` bytes.
    pub(super) fn elements(&self, first: u64, reach: i64, element: u64) -> *mut u8 {
        let at = first as i64;
        let (low, high) = (at.min(at + reach), at.max(at + reach));
        assert!(low >= 0 && high as u64 + element <= self.length);
        // SAFETY: the range was just checked.
        unsafe { self.start.add(first as usize) }
    }

    fn check_range(&self, offset: u64, length: u64) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length));
    }
}
