//! Writes elements that only the format's library can write: workers gather them in host memory,
//! and the sink writes them in a submitter step.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Remaining, Share, Task};

use super::gather::Array;
use super::queue::{ChangeQueue, take};
use crate::execute::bound::BoundPlan;
use crate::execute::memory::HostMemory;
use crate::execute::sink::DenseSink;

/// The task of writing through a sink that takes all elements at once.
pub(crate) struct DenseWrite {
    bound: BoundPlan,
    array: Array,
    sink: Box<dyn DenseSink>,
    path: PathBuf,
    queue: Mutex<ChangeQueue>,
    /// All elements, contiguous. Each worker writes its own parts.
    gathered: Vec<u8>,
    target: HostMemory,
}

impl DenseWrite {
    pub(crate) fn new(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn DenseSink>,
        bytes: u64,
        path: PathBuf,
    ) -> Result<Self> {
        let mut gathered = Vec::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        gathered.try_reserve_exact(length).map_err(|_| {
            sink.end();
            let text = format!("no memory to gather the {length} bytes to write");
            Error::new(Kind::Memory, text)
        })?;
        gathered.resize(length, 0);
        // SAFETY: the allocation does not move with its owner, the task, and nothing else uses it
        // before all workers have left.
        let target = unsafe { HostMemory::new(gathered.as_mut_ptr(), bytes) };
        Ok(DenseWrite {
            queue: Mutex::new(ChangeQueue::new(&bound.plan)),
            bound,
            array,
            sink,
            path,
            gathered,
            target,
        })
    }
}

impl Task for DenseWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        self.array.each(
            &self.bound,
            share,
            || take(&self.queue),
            |numbered, filled| {
                let job = &numbered.changed.job;
                // SAFETY: blocks are disjoint, and each is handed out once.
                let to = unsafe { self.target.slice_mut(job.address, job.decoded_size) };
                to.copy_from_slice(filled.bytes);
                let moved = job.bytes(&self.bound.plan);
                share.counters().moved(self.sink.path(), moved);
                Ok(())
            },
        )
    }

    /// Runs after all workers have left, because no worker makes a step due.
    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        if !self.sink.may_finish() {
            return Ok(Remaining::Later);
        }
        self.sink.write(&self.gathered)?;
        Ok(Remaining::Nothing)
    }

    fn end_steps(&self) {
        self.sink.end();
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
