//! Copies in GPU memory.

use std::ops::Range;
use std::sync::Arc;

use crate::copy::Copies;
use crate::error::Result;
use crate::gpu::stream::{Mark, Stream};
use crate::gpu::{Context, OwnContext, QueueLease};
use crate::request::StreamOrder;

/// GPU memory of the engine's that holds a copy.
pub(super) struct OnGpu {
    own: Arc<OwnContext>,
    /// The end of a copy that is work of the caller's stream; `None` if the copy is done.
    end: Option<Mark>,
    memory: u64,
    bytes: u64,
    /// Bytes before the ones that were copied.
    before: u64,
}

/// Sizes are rounded up to this, so that kept memory fits again. Smaller memory is not kept: there
/// may be thousands of pieces at a time, and the driver allocates them fast.
const GRAIN: u64 = 2 << 20;

impl OnGpu {
    /// # Safety
    /// `from` is memory of the context, valid for as many bytes as `touched` has; `stream` is live.
    pub(crate) unsafe fn take(
        context: &Arc<Context>,
        from: usize,
        touched: &Range<u64>,
        stream: Option<Stream>,
    ) -> Result<(OnGpu, Option<StreamOrder>)> {
        let length = touched.end - touched.start;
        let bytes = if length < GRAIN {
            length.next_multiple_of(256)
        } else {
            length.next_multiple_of(GRAIN)
        };
        let own = context.own()?;
        let mut lease = QueueLease::new(own)?;
        let queue = lease.queue()?;
        let memory = match own.spare(bytes) {
            Some(memory) => memory,
            None => {
                let memory = queue.allocate(bytes)?;
                queue.finish()?;
                memory
            }
        };
        let mut copied = OnGpu {
            own: Arc::clone(own),
            end: None,
            memory,
            bytes,
            before: touched.start,
        };
        let (to, length) = (memory as usize, length as usize);
        let Some(stream) = stream else {
            let mut copies = Copies::of(context)?;
            // SAFETY: passed on.
            let queued = unsafe { copies.copy(to, from, length) };
            if let Err(error) = copies.finish() {
                // It is unknown what still uses the memory.
                std::mem::forget(copied);
                return Err(error);
            }
            return queued.map(|()| (copied, None));
        };
        // SAFETY: passed on.
        unsafe { stream.copy(context, to, from, length)? };
        match stream.mark(context) {
            Ok(end) => copied.end = Some(end),
            Err(error) => {
                // It is unknown when the copy ends.
                std::mem::forget(copied);
                return Err(error);
            }
        }
        // A request for the copy means the default stream of the primary context, since memory of a pool
        // belongs to none.
        if stream.is_default() && !Arc::ptr_eq(context, &Context::primary(context.device)?) {
            let end = copied.end.as_ref().map_or(Ok(()), Mark::wait);
            return end.map(|()| (copied, None));
        }
        let order = StreamOrder {
            stream,
            after: true,
            before: false,
        };
        Ok((copied, Some(order)))
    }

    pub(crate) fn address(&self) -> usize {
        self.memory.wrapping_sub(self.before) as usize
    }
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        // A request that was cancelled before it began leaves a copy in progress. After an error, it
        // is unknown what still uses the memory.
        if self.end.as_ref().is_some_and(|end| !end.is_over()) {
            return;
        }
        let is_kept = self.bytes >= GRAIN && self.own.keep_memory(self.memory, self.bytes);
        if !is_kept
            && let Ok(mut lease) = QueueLease::new(&self.own)
            && let Ok(queue) = lease.queue()
        {
            // SAFETY: the copy is complete, and all work that used it has ended.
            unsafe { queue.free(self.memory) };
        }
        self.own.note_returned_memory();
    }
}
