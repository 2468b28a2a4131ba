//! Writes new elements where they are stored, and no other byte of the file. Other writers, in this
//! process or another, may write the elements between them at the same time.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::FileSide;
use penstock_engine::request::{Share, Task};

use super::filled::Filled;
use super::gather::Array;
use super::queue::{ChangeQueue, take};
use crate::ChunkJob;
use crate::execute::bound::BoundPlan;

/// The task of writing elements that must be gathered or converted into storage without filters.
/// Each run of elements that follow each other in the file is one write.
pub(crate) struct InPlaceWrite {
    bound: BoundPlan,
    array: Array,
    path: PathBuf,
    queue: Mutex<ChangeQueue>,
}

impl InPlaceWrite {
    pub(crate) fn new(bound: BoundPlan, array: Array, path: PathBuf) -> InPlaceWrite {
        InPlaceWrite {
            queue: Mutex::new(ChangeQueue::in_place(&bound.plan)),
            bound,
            array,
            path,
        }
    }

    /// Writes the new elements of a chunk, whose bytes are `filled`.
    fn write(&self, job: &ChunkJob, filled: &Filled<'_>, side: &FileSide<'_>) -> Result<()> {
        let plan = &self.bound.plan;
        let move_run = |(start, end): (u64, u64)| {
            let bytes = &filled.bytes[start as usize..end as usize];
            // SAFETY: a write only reads the bytes.
            unsafe {
                side.move_buffered(
                    bytes.as_ptr().cast_mut(),
                    job.address + start,
                    bytes.len() as u64,
                )
            }
            .map_err(|error| plan.name_in(job, error))
        };
        let mut last: Option<(u64, u64)> = None;
        for strided in job.boxes(plan) {
            for run in strided.runs() {
                let (start, end) = (run.chunk, run.chunk + run.elements * plan.file_element());
                last = match last {
                    Some((first, before)) if before == start => Some((first, end)),
                    Some(complete) => {
                        move_run(complete)?;
                        Some((start, end))
                    }
                    None => Some((start, end)),
                };
            }
        }
        last.map_or(Ok(()), move_run)
    }
}

impl Task for InPlaceWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let file = self.bound.file(0)?;
        let side = FileSide::new(&file, Operation::Write, share.counters());
        self.array.each(
            &self.bound,
            share,
            || take(&self.queue),
            |numbered, filled| {
                let job = &numbered.changed.job;
                self.write(job, &filled, &side)?;
                let moved = job.bytes(&self.bound.plan);
                share.counters().moved(self.array.path(), moved);
                Ok(())
            },
        )
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
