//! Copies in GPU memory.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::copy::mark_default_stream;
use crate::error::Result;
use crate::gpu::stream::Stream;
use crate::gpu::{Context, CopyQueue};
use crate::request::StreamOrder;

/// Memory of a context that holds a copy.
pub(super) struct OnGpu {
    context: Arc<Context>,
    /// The queue whose mark 0 is the end of a copy that is work of the caller's stream; `None` if
    /// the copy is done.
    queue: Option<CopyQueue>,
    marked: bool,
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
        let _entered = context.enter()?;
        let bytes = if length < GRAIN {
            length.next_multiple_of(256)
        } else {
            length.next_multiple_of(GRAIN)
        };
        let mut copied = OnGpu::room(context, bytes, touched.start)?;
        let (to, length) = (copied.memory as usize, length as usize);
        let order = match stream {
            // SAFETY: passed on.
            Some(stream) => unsafe { copied.copy_on(stream, to, from, length)? },
            None => {
                // SAFETY: passed on.
                unsafe { copied.copy_now(to, from, length)? };
                if let Some(queue) = copied.queue.take() {
                    context.keep(queue);
                }
                None
            }
        };
        Ok((copied, order))
    }

    /// Memory for a copy.
    fn room(context: &Arc<Context>, bytes: u64, before: u64) -> Result<OnGpu> {
        let mut queue = context.queue()?;
        let memory = match context.spare(bytes) {
            Some(memory) => memory,
            None => {
                let memory = queue.allocate(bytes)?;
                queue.finish()?;
                memory
            }
        };
        Ok(OnGpu {
            context: Arc::clone(context),
            queue: Some(queue),
            marked: false,
            memory,
            bytes,
            before,
        })
    }

    /// # Safety
    /// Both are valid for `length` bytes.
    unsafe fn copy_now(&mut self, to: usize, from: usize, length: usize) -> Result<()> {
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        if mark_default_stream(queue)? {
            queue.pass(0)?;
        }
        // SAFETY: passed on.
        let copied = unsafe { queue.copy_within(to, from, length) };
        // Copies in progress end before the memory goes back.
        copied.and(queue.finish())
    }

    /// # Safety
    /// As for [`copy_now`](Self::copy_now), and `stream` is live.
    unsafe fn copy_on(
        &mut self,
        stream: Stream,
        to: usize,
        from: usize,
        length: usize,
    ) -> Result<Option<StreamOrder>> {
        // SAFETY: passed on.
        unsafe { stream.copy(&self.context, to, from, length)? };
        let marked = match &mut self.queue {
            Some(queue) => queue.mark_stream(0, stream),
            None => Ok(()),
        };
        if marked.is_err() {
            // There is no event, or the stream belongs to another context.
            stream.synchronize(self.context.device)?;
            return Ok(None);
        }
        self.marked = true;
        Ok(Some(StreamOrder {
            stream,
            after: true,
            before: false,
        }))
    }

    pub(crate) fn address(&self) -> usize {
        self.memory.wrapping_sub(self.before) as usize
    }
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        let entered = self.context.enter();
        let mut queue = self.queue.take();
        // A request that was cancelled before it began leaves a copy in progress.
        let is_made = match &mut queue {
            Some(queue) if self.marked => queue.wait(0).is_ok(),
            _ => true,
        };
        if entered.is_err() || !is_made {
            // The context is broken, and it is unknown what still uses the memory.
            mem::forget(queue);
            return;
        }
        let is_kept = self.bytes >= GRAIN && self.context.keep_memory(self.memory, self.bytes);
        if !is_kept {
            queue = queue.or_else(|| self.context.queue().ok());
            if let Some(queue) = &mut queue {
                // SAFETY: the copy is complete, and all work that used it has ended.
                unsafe { queue.free(self.memory) };
            }
        }
        if let Some(mut queue) = queue
            && queue.finish().is_ok()
        {
            self.context.keep(queue);
        }
        self.context.note_returned_memory();
    }
}
