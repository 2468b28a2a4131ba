//! GPU memory for chunks in flight.

use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::gpu::{Awaited, CopyQueue, Holding, OwnContext};
use penstock_sys::cuda::CUdeviceptr;

/// Memory of a queue, which must be released to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    pub address: CUdeviceptr,
    pub bytes: u64,
}

impl Scratch {
    /// Allocates memory. Its owner must be counted by a [`Holding`].
    pub(crate) fn new(queue: &mut CopyQueue, bytes: u64) -> Result<Scratch> {
        Ok(Scratch {
            address: queue.allocate(bytes.max(1))?,
            bytes,
        })
    }

    /// Releases the memory once all work queued so far has finished. Must be called exactly once.
    pub(crate) fn release(&self, queue: &mut CopyQueue) {
        // SAFETY: only work of this queue uses the memory, and the owner gives it up.
        unsafe { queue.free(self.address) };
    }
}

/// A worker's entry in the count of users of GPU memory.
///
/// A worker that has memory continues with it if it gets no more. A worker that has none and gets
/// none waits until other workers return theirs ([`OwnContext::wait_for_memory`]). So no worker waits
/// for a waiting worker.
#[derive(Default)]
pub(crate) struct Held(Option<Holding>);

impl Held {
    /// Allocates memory of the context.
    pub(crate) fn take(
        &mut self,
        context: &Arc<OwnContext>,
        take: impl FnOnce() -> Result<Scratch>,
    ) -> Result<Scratch> {
        let is_first = self.0.is_none();
        self.0.get_or_insert_with(|| context.hold_memory());
        let taken = take();
        if taken.is_err()
            && is_first
            && let Some(holding) = self.0.take()
        {
            holding.got_nothing();
        }
        taken
    }

    /// Records that all memory was returned and is free, because the queue has finished.
    pub(crate) fn returned(&mut self) {
        self.0 = None;
    }
}

/// Waits until there were more than `seen` returns of memory, or until `is_over`, which is called
/// every few milliseconds. Fails with `error` if no memory was held. The caller holds neither
/// memory nor slots.
pub(crate) fn wait_for_memory(
    context: &OwnContext,
    seen: u64,
    error: Error,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    while !is_over()? {
        match context.wait_for_memory(seen) {
            Awaited::Returned => break,
            Awaited::Pending => {}
            Awaited::NoHolders => return Err(error),
        }
    }
    Ok(())
}
