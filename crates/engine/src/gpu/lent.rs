//! A copy queue for the time that one worker needs it.

use std::sync::Arc;

use super::{Context, CopyQueue, Entered};
use crate::error::Result;

/// A copy queue on loan from its context, and the context current on this thread. Every lane that
/// works with the GPU holds one.
pub struct Lent<'a> {
    queue: Option<CopyQueue>,
    // After the queue: it is given back while the context is still current.
    _entered: Entered<'a>,
    context: &'a Arc<Context>,
}

impl<'a> Lent<'a> {
    pub fn new(context: &'a Arc<Context>) -> Result<Self> {
        let entered = context.enter()?;
        Ok(Lent {
            queue: Some(context.queue()?),
            _entered: entered,
            context,
        })
    }

    pub fn queue(&mut self) -> Result<&mut CopyQueue> {
        match &mut self.queue {
            Some(queue) => Ok(queue),
            none => Ok(none.insert(self.context.queue()?)),
        }
    }

    pub fn context(&self) -> &'a Arc<Context> {
        self.context
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Waits for what is under way, also when the lane failed. A queue that cannot finish is
        // broken, and not kept.
        if let Some(mut queue) = self.queue.take()
            && queue.finish().is_ok()
        {
            self.context.keep(queue);
        }
    }
}
