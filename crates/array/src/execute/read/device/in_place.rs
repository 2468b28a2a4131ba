//! Chunks that the GPU has decoded in their places in the destination, but which must still be
//! unshuffled or converted: they pass through temporary memory, a few at a time.

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::{PlaceAxis, PlaceTable, Shuffles, Side};
use penstock_engine::error::Result;

use super::batch::{Entry, GpuBatch};
use super::plans::DevicePlans;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::placing::{self, Decoded};

/// The chunks of a batch that are not in final form after decoding.
pub(super) struct InPlace<'a> {
    plans: &'a DevicePlans,
    batch: &'a GpuBatch,
    /// Numbers of the jobs.
    jobs: Vec<usize>,
}

/// Size of the temporary memory, unless a single chunk is larger.
const THROUGH: u64 = 64 << 20;

impl<'a> InPlace<'a> {
    pub(super) fn new(
        plans: &'a DevicePlans,
        batch: &'a GpuBatch,
        entries: &[Entry],
    ) -> InPlace<'a> {
        let bound = plans.bound(batch.plan);
        let is_done = |job: usize| {
            bound.conversion == TypeConversion::Copy
                && plans.shuffled(batch.plan, &batch.jobs[job]) == 0
        };
        let jobs = entries.iter().map(|entry| entry.job);
        let jobs = jobs.filter(|job| batch.outputs[*job].in_place && !is_done(*job));
        InPlace {
            plans,
            batch,
            jobs: jobs.collect(),
        }
    }

    fn size(&self, job: usize) -> u64 {
        let decoded = self.batch.jobs[job].decoded_size;
        decoded.next_multiple_of(ALIGNMENT as u64)
    }

    /// Returns the bytes of temporary memory that [`tables`](Self::tables) needs.
    pub(super) fn through(&self) -> u64 {
        let largest = self.jobs.iter().map(|job| self.size(*job)).max();
        largest.map_or(0, |largest| largest.max(THROUGH))
    }

    /// Appends tables to launch one after the other once the chunks are decoded: each pair moves
    /// some chunks from the destination to the memory at `through`, and back to where they belong.
    pub(super) fn tables(&self, through: u64, tables: &mut Vec<PlaceTable>) -> Result<()> {
        let room = self.through();
        let mut used = room;
        for job in &self.jobs {
            if used + self.size(*job) > room {
                let bound = self.plans.bound(self.batch.plan);
                let shuffled = self.plans.shuffled_element(self.batch.plan);
                let out = PlaceTable::new(TypeConversion::Copy, 1, Shuffles::default());
                tables.push(out.map_err(placing::internal)?);
                let element = bound.plan.element();
                tables.push(placing::table(bound.conversion, &element, shuffled)?);
                used = 0;
            }
            if let [.., out, back] = tables.as_mut_slice() {
                self.push(*job, through + used, out, back)?;
            }
            used += self.size(*job);
        }
        Ok(())
    }

    fn push(
        &self,
        number: usize,
        through: u64,
        out: &mut PlaceTable,
        back: &mut PlaceTable,
    ) -> Result<()> {
        let job = &self.batch.jobs[number];
        let bound = self.plans.bound(self.batch.plan);
        let side = |address| Side {
            address,
            length: job.decoded_size,
            offset: 0,
            shuffled: 0,
        };
        let all = PlaceAxis {
            count: job.decoded_size,
            source_stride: 1,
            target_stride: 1,
        };
        let place = self.batch.outputs[number].address;
        out.push(side(place), side(through), &[all])
            .map_err(placing::internal)?;
        let decoded = Decoded {
            address: through,
            length: job.decoded_size,
            from: 0,
            shuffled: self.plans.shuffled(self.batch.plan, job),
        };
        let element = bound.plan.element();
        for strided in job.boxes(&bound.plan) {
            placing::push(back, &element, &strided, &decoded, self.plans.target)?;
        }
        Ok(())
    }
}
