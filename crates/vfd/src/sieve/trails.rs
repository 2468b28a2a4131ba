//! Records where small accesses ended, to recognise accesses that follow each other.

/// Largest distance in bytes at which accesses are close: one is then taken to follow the other.
pub(crate) const NEAR: usize = 4 << 10;

const TRAILS: usize = 16;

/// Number of accesses that must have followed each other before the next counts as following.
const FOLLOWED: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Trail {
    end: u64,
    followed: u32,
}

/// Ends of the last accesses that no block has served. Accesses of several datasets may take turns.
#[derive(Default)]
pub(super) struct Trails {
    trails: [Trail; TRAILS],
    oldest: usize,
}

impl Trails {
    /// Records an access. Returns whether it closely follows others, so that more are expected.
    pub(super) fn follows(&mut self, start: u64, end: u64) -> bool {
        let near = |trail: &&mut Trail| trail.end > 0 && trail.end.abs_diff(start) <= NEAR as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_close_access_follows_in_either_direction() {
        let mut up = Trails::default();
        let found: Vec<_> = (10..14).map(|i| up.follows(8 * i, 8 * i + 8)).collect();
        assert_eq!(found, [false, false, true, true]);
        let mut down = Trails::default();
        let found: Vec<_> = (10..14)
            .rev()
            .map(|i| down.follows(8 * i, 8 * i + 8))
            .collect();
        assert_eq!(found, [false, false, true, true]);
    }

    #[test]
    fn accesses_of_several_datasets_take_turns() {
        let mut trails = Trails::default();
        for row in 0..3 {
            for dataset in 1..=TRAILS as u64 {
                let start = dataset * 1_000_000 + 8 * row;
                assert_eq!(trails.follows(start, start + 8), row == 2);
            }
        }
    }

    #[test]
    fn scattered_accesses_do_not_follow() {
        let mut trails = Trails::default();
        for i in 0..1000 {
            let start = (i * 7_919 % 1000) * 10_000 + 1;
            assert!(!trails.follows(start, start + 8));
        }
    }
}
