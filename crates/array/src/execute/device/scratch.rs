//! GPU memory for chunks in flight.

use penstock_engine::error::Result;
use penstock_engine::gpu::CopyQueue;
use penstock_sys::cuda::CUdeviceptr;

/// Memory of a queue, which must be released to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    pub address: CUdeviceptr,
    pub bytes: u64,
}

impl Scratch {
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
