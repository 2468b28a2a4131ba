//! Changed chunks on their way to workers, in order.

use penstock_engine::error::Result;

use super::Writing;
use crate::execute::device::slots::ALIGNMENT;
use crate::plan::{Changed, Changes};

/// A chunk and its place in the order.
pub struct Numbered {
    pub number: u64,
    pub changed: Changed,
}

pub struct Feed {
    changes: Changes,
    next: u64,
    is_over: bool,
    /// Did not fit into the last bite.
    left: Option<Changed>,
}

/// A bite ends when it has so many decoded bytes.
pub const BITE: u64 = 1 << 20;

impl Feed {
    pub fn new(writing: &Writing) -> Feed {
        Feed {
            changes: Changes::new(&writing.reading.plan),
            next: 0,
            is_over: false,
            left: None,
        }
    }

    /// What one worker takes on at a time: one chunk, or as many as are small together. Empty when
    /// all are handed out.
    pub fn bite(&mut self) -> Result<Vec<Numbered>> {
        let mut bite = Vec::new();
        let mut bytes = 0;
        loop {
            let changed = match self.left.take() {
                Some(changed) => changed,
                None => match self.changes.next().transpose()? {
                    Some(changed) => changed,
                    None => {
                        self.is_over = true;
                        return Ok(bite);
                    }
                },
            };
            // So much a slot of the ring needs for it.
            bytes += changed.job.decoded_size.next_multiple_of(ALIGNMENT as u64);
            if bytes > BITE && !bite.is_empty() {
                self.left = Some(changed);
                return Ok(bite);
            }
            bite.push(Numbered {
                number: self.next,
                changed,
            });
            self.next += 1;
        }
    }

    /// How many were handed out.
    pub fn handed_out(&self) -> u64 {
        self.next
    }

    /// Whether all were, as far as is known.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
