//! Writes contiguous data that must be gathered or converted: each worker moves blocks from memory
//! to the file.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::FileSide;
use penstock_engine::request::{Remaining, Share, Task};

use super::gather::Array;
use super::queue::{ChangeQueue, take};
use crate::execute::bound::BoundPlan;
use crate::execute::sink::BlockSink;

/// The task of writing a contiguous array. Each block is written from its first to its last changed
/// element; the elements between that do not change are read first.
pub(crate) struct BlockWrite {
    bound: BoundPlan,
    array: Array,
    sink: Box<dyn BlockSink>,
    path: PathBuf,
    queue: Mutex<ChangeQueue>,
}

impl BlockWrite {
    pub(crate) fn new(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn BlockSink>,
        path: PathBuf,
    ) -> BlockWrite {
        BlockWrite {
            queue: Mutex::new(ChangeQueue::new(&bound.plan)),
            bound,
            array,
            sink,
            path,
        }
    }
}

impl Task for BlockWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let file = self.bound.file(0)?;
        let side = FileSide::new(&file, Operation::Write, share.counters());
        self.array.each(
            &self.bound,
            share,
            || take(&self.queue),
            |numbered, filled| {
                let job = &numbered.changed.job;
                let (low, high) = job.span;
                let bytes = &filled.bytes[low as usize..high as usize];
                let start = bytes.as_ptr().cast_mut();
                let (address, length) = (job.address + low, high - low);
                // SAFETY: a write only reads the bytes.
                unsafe { side.move_buffered(start, address, length)? };
                let moved = job.bytes(&self.bound.plan);
                share.counters().moved(self.array.path(), moved);
                Ok(())
            },
        )
    }

    /// Runs after all workers have left, because no worker makes a step due.
    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        if !self.sink.may_finish() {
            return Ok(Remaining::Later);
        }
        self.sink.finish()?;
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
