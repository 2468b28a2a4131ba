//! A copy queue that one worker uses for a time.

use std::sync::Arc;

use super::{CopyQueue, Entered, OwnContext};
use crate::error::Result;

/// A copy queue of a context, which is current on this thread meanwhile. Each lane that works with
/// the GPU has one. Dropping it waits for the queue's work and returns the queue to the context.
pub struct QueueLease<'a> {
    queue: Option<CopyQueue>,
    // Dropped after the queue, which is returned while the context is still current.
    _entered: Entered,
    context: &'a Arc<OwnContext>,
}

impl<'a> QueueLease<'a> {
    /// Makes the context current and takes a queue from it.
    pub fn new(context: &'a Arc<OwnContext>) -> Result<Self> {
        let entered = context.enter()?;
        Ok(QueueLease {
            queue: Some(context.queue()?),
            _entered: entered,
            context,
        })
    }

    /// The queue.
    pub fn queue(&mut self) -> Result<&mut CopyQueue> {
        match &mut self.queue {
            Some(queue) => Ok(queue),
            none => Ok(none.insert(self.context.queue()?)),
        }
    }

    /// The context of the queue.
    pub fn context(&self) -> &'a Arc<OwnContext> {
        self.context
    }
}

impl Drop for QueueLease<'_> {
    fn drop(&mut self) {
        // The work must be done even if the lane failed. A queue that cannot finish is broken, and
        // so is not kept.
        if let Some(mut queue) = self.queue.take()
            && queue.finish().is_ok()
        {
            self.context.keep(queue);
        }
    }
}
