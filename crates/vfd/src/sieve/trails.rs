//! Where small accesses ended, by which one that follows another is known.

use super::block::GAP;

const TRAILS: usize = 16;

/// From this number of accesses on that followed each other, the next is expected to follow as well.
const FOLLOWED: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Trail {
    end: u64,
    followed: u32,
}

/// The last accesses that no block has served: those of several datasets may take turns.
#[derive(Default)]
pub(super) struct Trails {
    trails: [Trail; TRAILS],
    oldest: usize,
}

impl Trails {
    /// Records an access, and returns whether it follows others closely, so that more are to be
    /// expected.
    pub(super) fn follows(&mut self, start: u64, end: u64) -> bool {
        let near = |trail: &&mut Trail| trail.end > 0 && trail.end.abs_diff(start) <= GAP as u64;
        if let Some(trail) = self.trails.iter_mut().find(near) {
            trail.end = end;
            trail.followed = trail.followed.saturating_add(1);
            return trail.followed >= FOLLOWED;
        }
        self.trails[self.oldest] = Trail { end, followed: 0 };
        self.oldest = (self.oldest + 1) % TRAILS;
        false
    }
}
