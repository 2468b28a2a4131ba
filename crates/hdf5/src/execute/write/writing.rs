//! One plan of a write with all that it takes to carry it out, and the bytes that chunks had before.

use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::Result;
use penstock_engine::report::Counters;

use super::super::buffer::Buffer;
use super::super::reading::Reading;
use crate::plan::{Before, Changed, Item};

/// Elements on their way from memory into a dataset.
#[derive(Debug)]
pub struct Writing {
    /// The plan with its file, which chunks that change in part are read from. Its change is that
    /// from memory to file.
    pub reading: Reading,
    /// The part of each element in memory that is written; its `memory` is the size in the file.
    pub memory: Item,
}

/// What a worker keeps from chunk to chunk.
#[derive(Default)]
pub struct Room {
    stored: Buffer,
    decoded: Buffer,
    codec: Scratch,
}

impl Writing {
    /// A decoded chunk in which the elements that do not change are right. The others are arbitrary.
    pub fn before<'r>(
        &self,
        changed: &Changed,
        counters: &Counters,
        room: &'r mut Room,
    ) -> Result<&'r mut [u8]> {
        let job = &changed.job;
        let reading = &self.reading;
        if changed.before == Before::Stored {
            let all = (0, job.stored_size);
            let stored = reading.fetch(std::slice::from_ref(job), counters, &mut room.stored)?;
            reading.refuse_bomb(job)?;
            let output = room.decoded.room(job.decoded_size as usize)?;
            reading
                .pipeline
                .decode(job.mask, stored.of(job, all), output, &mut room.codec)
                .map_err(|error: CodecError| reading.undecodable(job, &error))?;
            return Ok(output);
        }
        let output = room.decoded.room(job.decoded_size as usize)?;
        if changed.before == Before::Fill {
            match reading.plan.fill() {
                Some(value) if value.iter().any(|byte| *byte != 0) => output
                    .chunks_exact_mut(value.len())
                    .for_each(|to| to.copy_from_slice(value)),
                _ => output.fill(0),
            }
        }
        Ok(output)
    }

    /// Bytes of the new elements of a chunk, as they are in memory.
    pub fn moved(&self, changed: &Changed) -> u64 {
        let plan = &self.reading.plan;
        changed.job.bytes(plan)
    }
}
