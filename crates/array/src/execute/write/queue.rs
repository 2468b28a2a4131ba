//! The work queue of a write, which hands out changed chunks in order.

use std::sync::Arc;

use penstock_engine::error::Result;

use crate::execute::device::ALIGNMENT;
use crate::{Changed, Changes, Plan};

/// A chunk and its place in the order.
pub(crate) struct Numbered {
    pub number: u64,
    pub changed: Changed,
}

impl Numbered {
    /// Returns the room that the chunk takes in a slot of the ring.
    pub(super) fn room(&self) -> u64 {
        room_of(&self.changed)
    }
}

fn room_of(changed: &Changed) -> u64 {
    changed.job.decoded_size.next_multiple_of(ALIGNMENT as u64)
}

pub(super) struct ChangeQueue {
    changes: Changes,
    next: u64,
    is_over: bool,
    /// A chunk that did not fit into the last batch.
    left: Option<Changed>,
}

/// Largest number of decoded bytes in a batch of several chunks.
pub(super) const BATCH: u64 = 1 << 20;

impl ChangeQueue {
    pub(super) fn new(plan: &Arc<Plan>) -> ChangeQueue {
        ChangeQueue::of(Changes::new(plan))
    }

    /// Returns the queue of a write of the new elements alone.
    pub(super) fn in_place(plan: &Arc<Plan>) -> ChangeQueue {
        ChangeQueue::of(Changes::in_place(plan))
    }

    fn of(changes: Changes) -> ChangeQueue {
        ChangeQueue {
            changes,
            next: 0,
            is_over: false,
            left: None,
        }
    }

    /// Returns the work for one worker: one chunk, or several small ones. Empty once all are handed
    /// out.
    pub(super) fn next_batch(&mut self) -> Result<Vec<Numbered>> {
        self.next_batch_of(BATCH, |_| true)
    }

    /// Returns the next chunks that `fits` accepts, at most `limit` bytes of them or one chunk. Empty
    /// if it does not accept the next one, or if all are handed out.
    pub(super) fn next_batch_of(
        &mut self,
        limit: u64,
        fits: impl Fn(&Changed) -> bool,
    ) -> Result<Vec<Numbered>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            let changed = match self.left.take() {
                Some(changed) => changed,
                None => match self.changes.next().transpose()? {
                    Some(changed) => changed,
                    None => {
                        self.is_over = true;
                        return Ok(batch);
                    }
                },
            };
            bytes += room_of(&changed);
            if !fits(&changed) || bytes > limit && !batch.is_empty() {
                self.left = Some(changed);
                return Ok(batch);
            }
            batch.push(Numbered {
                number: self.next,
                changed,
            });
            self.next += 1;
        }
    }

    /// Returns the next chunk if it is already determined, because it did not fit into the last
    /// batch.
    pub(super) fn peek(&self) -> Option<&Changed> {
        self.left.as_ref()
    }

    /// Returns the number of chunks handed out.
    pub(super) fn handed_out(&self) -> u64 {
        self.next
    }

    /// Returns whether all chunks are known to be handed out.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}
