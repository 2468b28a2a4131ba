//! Reading into host memory: each worker takes chunks from file to destination by itself.

use penstock_codec::convert::Change;
use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::report::{Counters, Path};
use penstock_engine::request::{Duty, Share};

use super::buffer::Buffer;
use super::feed::{Bite, Feed};
use super::place::{Placer, Target};
use super::reading::{Reading, Stored};
use crate::plan::ChunkJob;

/// The duty of reading into host memory.
pub struct HostRead {
    readings: Vec<Reading>,
    feed: Feed,
    target: Target,
}

impl HostRead {
    pub fn new(readings: Vec<Reading>, target: Target) -> HostRead {
        HostRead {
            feed: Feed::new(&readings),
            readings,
            target,
        }
    }

    /// How many of `most` workers find something to do.
    pub fn workers(&self, most: usize) -> Result<usize> {
        Ok(self.feed.peek(most)?.clamp(1, most))
    }
}

/// What a worker keeps from chunk to chunk.
#[derive(Default)]
struct Room {
    stored: Buffer,
    decoded: Buffer,
    scratch: Scratch,
}

impl Duty for HostRead {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let mut room = Room::default();
        while !share.stopping() {
            let Some(bite) = self.feed.bite(&self.readings)? else {
                break;
            };
            share.joined();
            match bite {
                Bite::Fill(reading, job) => {
                    let plan = &self.readings[reading].plan;
                    if let Some(value) = plan.fill() {
                        self.placer(reading).fill(job.patches(plan), value);
                        let filled = job.bytes(plan);
                        share.counters().moved(Path::HostBuffered, filled);
                    }
                }
                Bite::Chunks(reading, jobs) => {
                    self.read(reading, &jobs, &mut room, share.counters())?;
                }
            }
        }
        Ok(())
    }

    fn named(&self, error: penstock_engine::error::Error) -> penstock_engine::error::Error {
        match self.readings.iter().find_map(Reading::path) {
            Some(path) => error.in_file(path),
            None => error,
        }
    }

    fn operation(&self) -> Operation {
        Operation::Read
    }
}

impl HostRead {
    fn placer(&self, reading: usize) -> Placer<'_> {
        let reading = &self.readings[reading];
        Placer {
            item: reading.plan.item(),
            change: &reading.change,
            target: self.target,
        }
    }

    fn read(
        &self,
        number: usize,
        jobs: &[ChunkJob],
        room: &mut Room,
        counters: &Counters,
    ) -> Result<()> {
        let reading = &self.readings[number];
        let stored = reading.fetch(jobs, counters, &mut room.stored)?;
        for job in jobs {
            let bytes = self.decode(number, job, &stored, &mut room.decoded, &mut room.scratch)?;
            counters.moved(stored.path(Path::HostBuffered, Path::HostDirect), bytes);
            reading.count(job, counters);
        }
        Ok(())
    }

    /// Decodes one chunk and places what is selected of it. Returns how many bytes came out.
    fn decode(
        &self,
        number: usize,
        job: &ChunkJob,
        stored: &Stored<'_>,
        decoded: &mut Buffer,
        scratch: &mut Scratch,
    ) -> Result<u64> {
        let reading = &self.readings[number];
        let placer = self.placer(number);
        let selected = job.bytes(&reading.plan);
        let bytes = stored.of(job, reading.needed(job));
        if job.is_plain {
            placer.place(job.patches(&reading.plan), bytes, reading.needed(job).0);
            return Ok(selected);
        }
        let failed = |error: CodecError| reading.undecodable(job, &error);
        reading.refuse_bomb(job)?;
        let pipeline = &reading.pipeline;
        match job.whole(&reading.plan) {
            Some(target) if matches!(reading.change, Change::Copy) => {
                // SAFETY: jobs have disjoint targets, and this is the only slice of this one's.
                let output = unsafe { self.target.slice(target, job.decoded_size) };
                pipeline
                    .decode(job.mask, bytes, output, scratch)
                    .map_err(failed)?;
            }
            _ => {
                let output = decoded.room(job.decoded_size as usize)?;
                pipeline
                    .decode(job.mask, bytes, output, scratch)
                    .map_err(failed)?;
                placer.place(job.patches(&reading.plan), output, 0);
            }
        }
        Ok(selected)
    }
}
