//! Chunks that were encoded without being written, because the caller allocates their storage
//! first.

use std::sync::{Arc, Mutex};

use penstock_engine::Extent;
use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_engine::request::{self, Request};

use super::buffer::copied;
use super::sink::{ChunkSink, ChunkStep, EncodedChunk};
use crate::{ChunkGrid, push};

/// The encoded chunks of a write, in order of their numbers.
pub struct EncodedChunks {
    chunks: Vec<Encoded>,
}

struct Encoded {
    number: u64,
    mask: u32,
    bytes: Vec<u8>,
}

impl EncodedChunks {
    /// Returns the number in the grid, the bytes and the filter mask of each chunk.
    pub fn list(&self) -> impl ExactSizeIterator<Item = (u64, &[u8], u32)> + '_ {
        let chunks = self.chunks.iter();
        chunks.map(|chunk| (chunk.number, chunk.bytes.as_slice(), chunk.mask))
    }

    /// Starts to write each chunk at its address in the file, to which other processes may write at
    /// the same time. The request keeps the chunks until it is finished.
    pub fn submit(
        self: &Arc<Self>,
        file: &Arc<File>,
        addresses: &[u64],
        options: Options,
    ) -> Result<Request> {
        if addresses.len() != self.chunks.len() {
            return Err(Error::invalid(format!(
                "{} chunks have {} addresses",
                self.chunks.len(),
                addresses.len()
            )));
        }
        let mut extents = Vec::new();
        for (chunk, address) in self.chunks.iter().zip(addresses) {
            let extent = Extent {
                offset: *address,
                length: chunk.bytes.len() as u64,
                memory: chunk.bytes.as_ptr() as usize,
            };
            push(&mut extents, extent)?;
        }
        let order = request::Order::new(Operation::Write, &extents, options);
        let owner = Box::new(Arc::clone(self));
        // SAFETY: the owner keeps the bytes, which nothing changes any more, until the request is
        // finished.
        unsafe { request::submit(file, order, None, Some(owner)) }
    }
}

/// Collects encoded chunks in memory.
pub struct Collector {
    grid: ChunkGrid,
    chunks: Arc<Mutex<Vec<Encoded>>>,
}

/// The chunks that a [`Collector`] has collected.
pub struct Collected(Arc<Mutex<Vec<Encoded>>>);

impl Collector {
    /// Returns a sink for chunks of this grid, and the list in which it collects them.
    pub fn new(grid: ChunkGrid) -> (Collector, Collected) {
        let chunks = Arc::default();
        let collected = Collected(Arc::clone(&chunks));
        (Collector { grid, chunks }, collected)
    }
}

impl Collected {
    /// Takes the chunks, after the write has finished.
    pub fn take(self) -> EncodedChunks {
        EncodedChunks {
            chunks: std::mem::take(&mut *self.0.lock().recover()),
        }
    }
}

impl ChunkSink for Collector {
    fn step(&self) -> Box<dyn ChunkStep + '_> {
        Box::new(self)
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

impl ChunkStep for &Collector {
    fn write(&mut self, chunk: EncodedChunk<'_>) -> Result<()> {
        let sides = chunk.first.iter().zip(self.grid.chunk());
        let coordinates: Vec<u64> = sides.map(|(first, side)| first / side).collect();
        let encoded = Encoded {
            number: self.grid.number(&coordinates),
            mask: chunk.mask,
            bytes: copied(chunk.bytes)?,
        };
        push(&mut self.chunks.lock().recover(), encoded)
    }
}
