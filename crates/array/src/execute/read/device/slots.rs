//! Two pinned slots of one worker, each with GPU memory for its contents: one is filled while the other
//! is copied.

use std::time::{Duration, Instant};

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::{self, Direction, QueueLease};
use penstock_engine::staging::{Ring, Slot};
use penstock_sys::cuda::CUdeviceptr;

use super::gather::Rows;
use crate::execute::device::scratch::{Held, Scratch};

pub(super) struct Slots {
    ring: &'static Ring,
    pairs: [Option<Pair>; 2],
    turn: usize,
    held: Held,
    pinning: Duration,
}

/// A slot and the GPU memory to which its bytes are copied.
struct Pair {
    slot: Slot,
    /// Bytes that were asked for. The slot may be much larger, but its GPU memory is not.
    needed: u64,
    /// `None` while all bytes go directly to their destination.
    scratch: Option<Scratch>,
    busy: bool,
}

impl Pair {
    fn new(slot: Slot) -> Pair {
        Pair {
            slot,
            needed: 0,
            scratch: None,
            busy: false,
        }
    }

    fn has_scratch(&self, bytes: u64) -> bool {
        self.scratch.as_ref().is_some_and(|s| s.bytes >= bytes)
    }
}

impl Slots {
    pub(super) fn new(ring: &'static Ring) -> Slots {
        Slots {
            ring,
            pairs: [None, None],
            turn: 0,
            held: Held::default(),
            pinning: Duration::ZERO,
        }
    }

    /// Returns the time spent on getting slots since the last call. Pinning memory takes longer than filling
    /// it, so that the rate of a worker excludes it.
    pub(super) fn take_pinning(&mut self) -> Duration {
        std::mem::take(&mut self.pinning)
    }

    /// Makes the current slot free and at least this large. Its former contents have been copied.
    pub(super) fn ready(&mut self, bytes: usize, lent: &mut QueueLease<'_>) -> Result<()> {
        let fits = |pair: &Option<Pair>| pair.as_ref().is_some_and(|p| p.slot.bytes() >= bytes);
        if !fits(&self.pairs[self.turn]) {
            let start = Instant::now();
            self.release(self.turn, lent)?;
            let context = Some(lent.context());
            let other = 1 - self.turn;
            // A worker that holds one slot must not wait for another.
            let slot = match &self.pairs[other] {
                None => Some(self.ring.slot(bytes as u64, context)?),
                Some(_) => self.ring.further_slot(bytes as u64, context)?,
            };
            match slot {
                Some(slot) => self.pairs[self.turn] = Some(Pair::new(slot)),
                None if fits(&self.pairs[other]) => self.turn = other,
                None => {
                    self.release(other, lent)?;
                    let slot = self.ring.slot(bytes as u64, context)?;
                    self.pairs[self.turn] = Some(Pair::new(slot));
                }
            }
            self.pinning += start.elapsed();
        }
        let turn = self.turn;
        if let Some(pair) = &mut self.pairs[turn] {
            pair.needed = bytes as u64;
            if pair.busy {
                lent.queue()?.wait(turn)?;
                pair.busy = false;
            }
        }
        Ok(())
    }

    /// As [`ready`](Self::ready), for a slot with GPU memory. If there is no memory for a second slot, uses
    /// only the first one. Returns the error if there is no memory for any slot.
    pub(super) fn ready_with_scratch(
        &mut self,
        bytes: usize,
        lent: &mut QueueLease<'_>,
    ) -> Result<Option<Error>> {
        self.ready(bytes, lent)?;
        let Some(lacking) = self.take_scratch(lent)? else {
            return Ok(None);
        };
        let other = 1 - self.turn;
        match &self.pairs[other] {
            Some(pair) if pair.has_scratch(bytes as u64) => {
                self.pairs[self.turn] = None;
                self.turn = other;
                self.ready(bytes, lent)?;
                Ok(None)
            }
            Some(pair) if pair.scratch.is_some() => {
                self.release(other, lent)?;
                lent.queue()?.finish()?;
                self.take_scratch(lent)
            }
            _ => Ok(Some(lacking)),
        }
    }

    /// Gives the current slot GPU memory. Returns the error if there is none.
    pub(super) fn take_scratch(&mut self, lent: &mut QueueLease<'_>) -> Result<Option<Error>> {
        match self.scratch(lent) {
            Err(error) if error.kind() == Kind::Memory => Ok(Some(error)),
            taken => taken.map(|_| None),
        }
    }

    /// Returns the memory of the current slot.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.pairs[self.turn] {
            // SAFETY: the slot is this worker's own, and `ready` has waited for its copies.
            Some(pair) if !pair.busy => unsafe {
                std::slice::from_raw_parts_mut(pair.slot.start(), pair.slot.bytes())
            },
            _ => &mut [],
        }
    }

    /// Returns the GPU memory of the slot, for the bytes for which the slot was asked.
    pub(super) fn scratch(&mut self, lent: &mut QueueLease<'_>) -> Result<CUdeviceptr> {
        let Some(pair) = &mut self.pairs[self.turn] else {
            return Ok(0);
        };
        if !pair.has_scratch(pair.needed) {
            // Slots have such sizes, too, and only memory of the same size is used again.
            let bytes = pair.needed.next_power_of_two();
            let context = lent.context();
            // No work uses a slot that is being filled, nor its memory.
            if let Some(small) = pair.scratch.take()
                && !context.keep_memory(small.address, small.bytes)
            {
                small.release(lent.queue()?);
            }
            let queue = lent.queue()?;
            let taken = self.held.take(context, || match context.spare(bytes) {
                Some(address) => Ok(Scratch { address, bytes }),
                None => Scratch::new(queue, bytes),
            });
            pair.scratch = Some(taken?);
        }
        Ok(pair.scratch.as_ref().map_or(0, |s| s.address))
    }

    /// Queues a copy of a part of the slot.
    ///
    /// # Safety
    /// The GPU memory is valid for `length` bytes until the queue has finished.
    pub(super) unsafe fn upload(
        &mut self,
        from: usize,
        length: usize,
        to: CUdeviceptr,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let start = self.bytes()[from..from + length].as_mut_ptr();
        // SAFETY: the slot is untouched until `ready` has waited for it; the rest is passed on to
        // the caller.
        unsafe {
            lent.queue()?
                .copy(Direction::ToGpu, start, to, length as u64)
        }
    }

    /// Queues the copies of rows to their places in the memory at `target`, from these offsets in the slot on.
    ///
    /// # Safety
    /// The GPU memory of each row is valid until the queue has finished. The rows do not overlap there.
    pub(super) unsafe fn upload_rows(
        &mut self,
        copies: impl Iterator<Item = (usize, Rows)>,
        target: CUdeviceptr,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let slot = self.bytes();
        let rows = copies.map(|(from, rows)| {
            let bytes = (rows.width * rows.rows) as usize;
            gpu::Rows {
                host: slot[from..from + bytes].as_mut_ptr(),
                host_pitch: rows.width,
                gpu: target + rows.target,
                gpu_pitch: rows.pitch,
                width: rows.width,
                count: rows.rows,
            }
        });
        // SAFETY: as for `upload`.
        unsafe { lent.queue()?.copy_all(Direction::ToGpu, rows) }
    }

    /// Marks the work queued last as the last that needs this slot, and switches to the other slot.
    pub(super) fn sent(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        if let Some(pair) = &mut self.pairs[self.turn] {
            pair.busy = true;
            lent.queue()?.mark(self.turn)?;
            self.turn = 1 - self.turn;
        }
        Ok(())
    }

    /// Waits for all queued work, then returns slots and memory.
    pub(super) fn drain(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        // The marks are not enough: after an error there may be work behind them.
        let finished = lent.queue()?.finish();
        for turn in 0..2 {
            self.give_back(turn, finished.is_ok(), lent)?;
        }
        let freed = lent.queue()?.finish();
        self.held.returned();
        finished.and(freed)
    }

    fn release(&mut self, turn: usize, lent: &mut QueueLease<'_>) -> Result<()> {
        if self.pairs[turn].as_ref().is_some_and(|pair| pair.busy) {
            lent.queue()?.wait(turn)?;
        }
        self.give_back(turn, true, lent)
    }

    /// Returns a slot and its memory. `is_idle` says that no work uses them any more.
    fn give_back(&mut self, turn: usize, is_idle: bool, lent: &mut QueueLease<'_>) -> Result<()> {
        if let Some(pair) = self.pairs[turn].take()
            && let Some(scratch) = pair.scratch
            && !(is_idle && lent.context().keep_memory(scratch.address, scratch.bytes))
        {
            scratch.release(lent.queue()?);
        }
        Ok(())
    }
}
