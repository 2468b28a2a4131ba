//! Host memory of one worker for stored bytes.

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
            let mut grown = Vec::new();
            grown
                .try_reserve_exact(needed)
                .map_err(|_| no_memory(length))?;
            grown.resize(needed, 0);
            self.bytes = grown;
        }
        let start = self.bytes.as_ptr().align_offset(page);
        Ok(&mut self.bytes[start..start + length])
    }

    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

pub(super) fn no_memory(length: usize) -> Error {
    Error::new(Kind::Memory, format!("no memory for {length} bytes"))
        .remedy("free memory, or use fewer threads")
}
