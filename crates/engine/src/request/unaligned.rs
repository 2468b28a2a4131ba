//! The unaligned heads and tails of an O_DIRECT write, which go through the page cache after the
//! rest.

use crate::error::Result;
use crate::gpu::{Direction, QueueLease};
use crate::plan::Extent;
use crate::report::Path;
use crate::routes::Work;

/// Writes the unaligned heads and tails of a plan. The last worker of a request calls this, after
/// all direct writes to the file.
pub(crate) fn write(work: &Work<'_>) -> Result<()> {
    if work.plan.unaligned.is_empty() {
        return Ok(());
    }
    match &work.memory.context {
        None => {
            for part in &work.plan.unaligned {
                // SAFETY: host memory for which the submitter vouches until the request ends.
                unsafe {
                    work.move_buffered(part.memory as *mut u8, part.offset, part.length)?;
                }
                work.counters.moved(Path::HostBuffered, part.length);
            }
            Ok(())
        }
        Some(context) => {
            let mut lease = QueueLease::new(context.own()?)?;
            for part in &work.plan.unaligned {
                write_from_gpu(work, &mut lease, part)?;
            }
            Ok(())
        }
    }
}

fn write_from_gpu(work: &Work<'_>, lease: &mut QueueLease<'_>, part: &Extent) -> Result<()> {
    let slot = work.ring.slot(part.length, Some(lease.context()))?;
    let queue = lease.queue()?;
    work.counters.copy();
    // SAFETY: the slot is at least as long as the part, and nothing else uses it. The copy is done
    // before the slot is read, and before it goes back.
    unsafe {
        let copied = queue.copy(
            Direction::FromGpu,
            slot.start(),
            part.memory as u64,
            part.length,
        );
        queue.finish()?;
        copied?;
        work.move_buffered(slot.start(), part.offset, part.length)?;
    }
    work.counters.moved(Path::StagedBuffered, part.length);
    Ok(())
}
