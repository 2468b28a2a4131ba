//! The contents of a chunk before a write changes some of its elements.

use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::Result;
use penstock_engine::report::Counters;

use crate::execute::bound::BoundPlan;
use crate::execute::buffer::Buffer;
use crate::{Before, Changed};

/// Buffers that a worker reuses from chunk to chunk.
#[derive(Default)]
pub(super) struct Room {
    stored: Buffer,
    decoded: Buffer,
    codec: Scratch,
}

impl BoundPlan {
    /// Returns the decoded chunk, in which the elements that do not change are valid and all other
    /// elements arbitrary.
    pub(super) fn before<'r>(
        &self,
        changed: &Changed,
        counters: &Counters,
        room: &'r mut Room,
    ) -> Result<&'r mut [u8]> {
        let job = &changed.job;
        if changed.before == Before::Stored {
            let all = (0, job.stored_size);
            let stored = self.fetch(std::slice::from_ref(job), counters, &mut room.stored)?;
            self.refuse_bomb(job)?;
            let output = room.decoded.room(job.decoded_size as usize)?;
            self.plan
                .pipeline()
                .decode(job.mask, stored.of(job, all), output, &mut room.codec)
                .map_err(|error: CodecError| self.undecodable(job, &error))?;
            return Ok(output);
        }
        let output = room.decoded.room(job.decoded_size as usize)?;
        if changed.before == Before::Fill {
            match self.plan.fill() {
                Some(value) if value.iter().any(|byte| *byte != 0) => output
                    .chunks_exact_mut(value.len())
                    .for_each(|to| to.copy_from_slice(value)),
                _ => output.fill(0),
            }
        }
        Ok(output)
    }
}
