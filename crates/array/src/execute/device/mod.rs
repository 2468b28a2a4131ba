//! Parts that reads and writes of GPU memory share.

pub(super) mod placing;
pub(super) mod scratch;

/// Alignment of every chunk and table; the kernels perform no wider access.
pub(super) const ALIGNMENT: usize = 32;

/// Offsets of consecutive parts of one allocation.
#[derive(Default)]
pub(super) struct Parts {
    pub end: u64,
}

impl Parts {
    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        let at = self.end;
        self.end = (at + bytes).next_multiple_of(ALIGNMENT as u64);
        at
    }
}
