//! `sec2` and `sec2+pinned`: one system call and one copy for each range.

use std::time::Instant;

use penstock_engine::Extent;
use penstock_engine::error::Result;
use penstock_engine::file::side;
use penstock_engine::report::Counters;

use crate::buffer::{Buffer, Kind};
use crate::transfer::{Transfer, Way};
use crate::{Mode, Side};

/// Moves ranges through the page cache, one at a time.
#[derive(Debug)]
pub(crate) struct Sec2 {
    pub(crate) name: &'static str,
    pub(crate) buffer: Kind,
}

impl Mode for Sec2 {
    fn name(&self) -> &'static str {
        self.name
    }

    unsafe fn run(&self, transfer: &Transfer<'_>, _: Side, extents: &[Extent]) -> Result<()> {
        let counters = Counters::default();
        let side = transfer.side(side::Direct::Never, &counters);
        for extent in extents {
            let since = Instant::now();
            let buffer = Buffer::new(self.buffer, extent.length)?;
            // SAFETY: the buffer is as long as the range; the caller guarantees that its memory is
            // valid.
            unsafe {
                transfer.through(extent, buffer.start(), || {
                    side.move_buffered(buffer.start(), extent.offset, extent.length)
                })?;
            }
            (transfer.record)(Way::Buffer(self.buffer), extent.length, since);
        }
        Ok(())
    }
}
