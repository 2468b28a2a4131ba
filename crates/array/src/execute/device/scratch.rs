//! GPU memory for chunks under way.

use penstock_engine::error::Result;
use penstock_engine::gpu::CopyQueue;
use penstock_sys::cuda::CUdeviceptr;

/// Memory of one queue, to be given back to it.
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

    /// Gives the memory back when all that is queued so far is done. To be called once.
    pub(crate) fn release(&self, queue: &mut CopyQueue) {
        // SAFETY: only work of this queue uses it, and the owner gives it up.
        unsafe { queue.free(self.address) };
    }
}
