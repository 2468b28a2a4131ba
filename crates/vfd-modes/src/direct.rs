//! `direct` and `direct+pinned`: direct I/O into an aligned buffer, and one copy, for each range.

use std::time::Instant;

use penstock_engine::Extent;
use penstock_engine::error::{Error, Kind as ErrorKind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side;
use penstock_engine::report::Counters;

use crate::buffer::{Buffer, Kind};
use crate::transfer::{Transfer, Way};
use crate::{Mode, Side};

/// Moves ranges with direct I/O, one at a time.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) name: &'static str,
    pub(crate) buffer: Kind,
}

impl Mode for Direct {
    fn name(&self) -> &'static str {
        self.name
    }

    unsafe fn run(&self, transfer: &Transfer<'_>, _: Side, extents: &[Extent]) -> Result<()> {
        let file = transfer.file;
        if !file.has_direct() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the file system has no direct I/O here",
            )
            .remedy("use mode=sec2 or mode=sec2+pinned")
            .in_file(file.path()));
        }
        let counters = Counters::default();
        let side = transfer.side(side::Direct::Always, &counters);
        let align = file.direct_alignment();
        for extent in extents {
            let since = Instant::now();
            let head = extent.offset % align;
            let padded = (head + extent.length).next_multiple_of(align);
            let buffer = Buffer::new(self.buffer, padded)?;
            // The buffer starts with the byte of the file at the start of a page.
            let first = extent.offset - head;
            // SAFETY: the result is inside the buffer.
            let at = |offset: u64| unsafe { buffer.start().add((offset - first) as usize) };
            let io = || {
                let end = extent.offset + extent.length;
                if transfer.operation == Operation::Read {
                    let needed = head + extent.length;
                    // SAFETY: the buffer holds the pages that contain the range.
                    let all = unsafe { side.move_direct(at(first), first, padded, needed) };
                    return all.map(drop);
                }
                let whole = extent.offset.next_multiple_of(align).min(end);
                let rest = (end / align * align).max(whole);
                // SAFETY: the buffer holds the range.
                unsafe {
                    if rest > whole {
                        side.move_direct(at(whole), whole, rest - whole, rest - whole)?;
                    }
                    for (from, to) in [(extent.offset, whole), (rest, end)] {
                        if to > from {
                            side.move_buffered(at(from), from, to - from)?;
                        }
                    }
                }
                Ok(())
            };
            // SAFETY: the buffer holds the range; the caller guarantees that its memory is valid.
            unsafe { transfer.through(extent, at(extent.offset), io)? };
            (transfer.record)(Way::Buffer(self.buffer), extent.length, since);
        }
        Ok(())
    }
}
