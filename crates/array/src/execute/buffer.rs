//! Host memory of one worker for stored bytes.

use std::alloc::{Layout, alloc_zeroed};

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::page_size;

/// Page-aligned memory, as direct I/O requires, that grows on demand.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Returns at least `length` bytes that start at a page boundary. Their contents are arbitrary.
    pub fn room(&mut self, length: usize) -> Result<&mut [u8]> {
        let page = page_size() as usize;
        let needed = length.checked_add(page).ok_or_else(|| no_memory(length))?;
        if self.bytes.len() < needed {
            // The old contents are not needed, so they are freed instead of copied.
            self.bytes = Vec::new();
            self.bytes = zeroed(needed).ok_or_else(|| no_memory(length))?;
        }
        let start = self.bytes.as_ptr().align_offset(page);
        Ok(&mut self.bytes[start..start + length])
    }

    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Returns zeros. The system allocates the pages when they are touched. Returns `None` without
/// memory.
pub fn zeroed(length: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(length).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) };
    // SAFETY: the global allocator has allocated it with the layout of that many initialised bytes.
    (!start.is_null()).then(|| unsafe { Vec::from_raw_parts(start, length, length) })
}

/// Returns a copy of the bytes.
pub(super) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| no_memory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

pub(super) fn no_memory(length: usize) -> Error {
    Error::new(Kind::Memory, format!("no memory for {length} bytes"))
        .remedy("free memory, or use fewer threads")
}
