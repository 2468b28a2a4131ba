//! The ragged ends of an O_DIRECT write, which go through the page cache after all the rest.

use crate::error::Result;
use crate::gpu::{Direction, Lent};
use crate::plan::Extent;
use crate::report::Path;
use crate::routes::Work;

/// Writes the plan's edges. Called by the last worker of a request, when no direct write to the
/// file is under way any more.
pub(crate) fn write(work: &Work<'_>) -> Result<()> {
    if work.plan.edges.is_empty() {
        return Ok(());
    }
    match &work.memory.context {
        None => {
            for edge in &work.plan.edges {
                // SAFETY: host memory for which the submitter vouches until the request ends.
                unsafe {
                    work.move_buffered(edge.memory as *mut u8, edge.offset, edge.length)?;
                }
                work.counters.moved(Path::HostBuffered, edge.length);
            }
            Ok(())
        }
        Some(context) => {
            let mut lent = Lent::new(context)?;
            for edge in &work.plan.edges {
                write_from_gpu(work, &mut lent, edge)?;
            }
            Ok(())
        }
    }
}

fn write_from_gpu(work: &Work<'_>, lent: &mut Lent<'_>, edge: &Extent) -> Result<()> {
    let slot = work.ring.slot(edge.length, Some(lent.context()))?;
    let queue = lent.queue()?;
    work.counters.copy();
    // SAFETY: the slot is at least as long as the edge and used by nobody else; the copy is done
    // before it is read, and before it goes back.
    unsafe {
        let copied = queue.copy(
            Direction::FromGpu,
            slot.start(),
            edge.memory as u64,
            edge.length,
        );
        queue.finish()?;
        copied?;
        work.move_buffered(slot.start(), edge.offset, edge.length)?;
    }
    work.counters.moved(Path::StagedBuffered, edge.length);
    Ok(())
}
