//! The memory of a request: addresses that all its workers use, each for elements of its own.

/// Host memory of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    length: u64,
}

// SAFETY: whoever made it vouches for the memory until the request ends. Workers write disjoint parts in
// a read, and write none in a write.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// GPU memory of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMemory {
    /// Its address.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
}

impl HostMemory {
    /// # Safety
    /// `start` is valid for `length` bytes until the request that uses it is finished: for writes in a
    /// read, and nobody else touches them meanwhile; for reads in a write, and nobody writes to them.
    pub(crate) unsafe fn new(start: *mut u8, length: u64) -> HostMemory {
        HostMemory { start, length }
    }

    /// Bytes that are only read. The request is a write.
    pub(super) fn slice(&self, offset: u64, length: u64) -> &[u8] {
        self.check_range(offset, length);
        // SAFETY: inside the memory, as just checked; the maker vouches for the rest.
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
        // SAFETY: inside the memory, as just checked; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset as usize), length as usize) }
    }

    /// The address of elements of `element` bytes, the first at `first`, the last `reach` bytes from it.
    pub(super) fn elements(&self, first: u64, reach: i64, element: u64) -> *mut u8 {
        let at = first as i64;
        let (low, high) = (at.min(at + reach), at.max(at + reach));
        assert!(low >= 0 && high as u64 + element <= self.length);
        // SAFETY: inside the memory, as just checked.
        unsafe { self.start.add(first as usize) }
    }

    fn check_range(&self, offset: u64, length: u64) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length));
    }
}
