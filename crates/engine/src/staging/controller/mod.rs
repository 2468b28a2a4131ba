//! Chooses the number of workers that read into a GPU, and how far they fill their slots, by rates.
//!
//! A slot that leaves the last-level cache before the GPU has read it lowers the rate. The share of
//! the cache depends on other processes and cannot be queried, so settings are compared under way:
//!
//! 1. A *window* is the time of [`WINDOW`] bytes under one setting, [`SETTLE`] bytes after a change.
//! 2. A *race* has rounds of one window of each of its settings, in random order, so that load and
//!    other processes affect all. What is clearly slower leaves after a round. The setting of before
//!    the race stays unless another one is faster by [`MARGIN`].
//! 3. The first race compares fills, later ones the winner with its neighbours: two workers more or
//!    fewer, the next fill. It ends when the winner stays, or after [`MOST_EXPLORED`] bytes.
//! 4. A settled controller varies nothing until the median of [`GROUP`] windows differs by [`DRIFT`]
//!    or, after a pause, by [`SHIFT`]. It reviews the workers after pauses that double.
//!
//! It is a pure state machine: bytes and seconds in, the setting in force out.

#[cfg(all(test, not(loom)))]
mod model;

use std::iter;

const MIB: u64 = 1 << 20;
/// Bytes of a measurement.
const WINDOW: u64 = 96 * MIB;
/// Bytes that move after a change of setting before the next measurement begins: those in slots that
/// were filled under the old setting.
const SETTLE: u64 = 48 * MIB;
/// The logarithm of the ratio to another setting of a race at which a window ends early, and the
/// bytes that it has at least.
const HOPELESS: f64 = 0.25;
const HOPELESS_AFTER: u64 = WINDOW / 2;
/// Bytes of an exploration at most.
const MOST_EXPLORED: u64 = 1920 * MIB;
/// Rounds of a race at most.
const ROUNDS: u32 = 3;
/// The logarithm of the ratio to the fastest setting at which a setting leaves, after each round.
const LEAVES: [f64; ROUNDS as usize] = [0.16, 0.08, 0.0];
/// The factor of these in a review, which must not slow down a settled process noticeably.
const REVIEW: f64 = 0.35;
/// The logarithm of the ratio by which another setting must be faster than that in force.
const MARGIN: f64 = 0.03;
/// Settings that were slower by this logarithm are not compared again while the rate stays.
const LOST: f64 = 0.06;
/// Windows of a settled controller whose median is compared with that of before.
const GROUP: usize = 8;
/// The logarithm of the change of rate that starts a new exploration.
const DRIFT: f64 = 0.16;
/// The logarithm of the change of rate after which what lost before is compared again, without a
/// pause that has grown.
const SHIFT: f64 = 0.04;
/// Bytes between the end of an exploration and the next one: at first, and at most.
const PAUSE: u64 = 6144 * MIB;
const LONGEST_PAUSE: u64 = 256 * 1024 * MIB;
/// Bytes after an exploration before a changed rate starts another one.
const LEAST_PAUSE: u64 = 1024 * MIB;

/// The fills that are compared, from the largest.
const FILLS: [u64; 4] = [4 * MIB, 3 * MIB, 2 * MIB, MIB];
const WORKER_STEP: usize = 2;
/// Workers below which no setting is tried.
const FEWEST: usize = 4;

/// Workers of a GPU, and the bytes to which each fills a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub workers: usize,
    pub fill: u64,
}

/// What a controller chooses from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The default for the host.
    pub start: Setting,
    /// The most workers that have cores.
    pub most_workers: usize,
    /// The largest fill, which is that of a slot.
    pub most_fill: u64,
}

pub(crate) struct Controller {
    limits: Limits,
    random: u64,
    /// The best setting so far.
    best: Setting,
    phase: Phase,
    window: Window,
    /// The settings that lost to the best one, with the logarithms of the ratios.
    lost: Vec<(Setting, f64)>,
    /// Bytes of the exploration under way.
    explored: u64,
    /// Bytes until the next exploration if the rate stays.
    pause: u64,
    /// Whether the exploration under way was not caused by a change.
    is_review: bool,
    /// The setting of the last window.
    last: Setting,
    /// The best setting before the exploration under way.
    before: Setting,
    /// Whether the race under way compares fills.
    of_fills: bool,
}

enum Phase {
    Race(Race),
    Settled(Settled),
}

/// The measurement under way.
#[derive(Default)]
struct Window {
    /// Bytes that still belong to no measurement.
    skip: u64,
    bytes: u64,
    seconds: f64,
}

struct Race {
    entries: Vec<Entry>,
    /// The entries that have no window in this round yet; the last one is measured.
    left: Vec<usize>,
    /// Complete rounds.
    rounds: u32,
}

struct Entry {
    setting: Setting,
    /// The logarithms of its rates, one a round.
    rates: Vec<f64>,
}

#[derive(Default)]
struct Settled {
    rates: Vec<f64>,
    /// The logarithm of the rate after the exploration.
    rate: Option<f64>,
    moved: u64,
}

impl Controller {
    /// A controller that begins with the default of the host. Processes with different seeds try
    /// settings in different orders.
    pub(crate) fn new(limits: Limits, seed: u64) -> Controller {
        let mut controller = Controller::settled_at(limits.start, limits, seed);
        controller.explore(true);
        controller
    }

    /// As [`new`](Self::new), with a setting that an earlier controller has found.
    pub(crate) fn settled_at(best: Setting, limits: Limits, seed: u64) -> Controller {
        Controller {
            limits: Limits {
                most_workers: limits.most_workers.max(limits.start.workers),
                ..limits
            },
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            best,
            before: best,
            last: best,
            phase: Phase::Settled(Settled::default()),
            window: Window::default(),
            lost: Vec::new(),
            explored: 0,
            pause: PAUSE,
            of_fills: false,
            is_review: false,
        }
    }

    /// The setting in force.
    pub(crate) fn setting(&self) -> Setting {
        match &self.phase {
            Phase::Race(race) => race
                .left
                .last()
                .map_or(self.best, |&at| race.entries[at].setting),
            Phase::Settled(_) => self.best,
        }
    }

    /// The best setting so far.
    pub(crate) fn best(&self) -> Setting {
        self.best
    }

    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled(_))
    }

    /// The most workers that any setting may have.
    pub(crate) fn most_workers(&self) -> usize {
        self.limits.most_workers
    }

    /// Records that `bytes` moved in `seconds` under the setting in force. Returns the rate of a
    /// window that ends here; the setting may be another one afterwards.
    pub(crate) fn moved(&mut self, bytes: u64, seconds: f64) -> Option<f64> {
        match &mut self.phase {
            Phase::Race(_) => self.explored += bytes,
            Phase::Settled(settled) => settled.moved += bytes,
        }
        let window = &mut self.window;
        if window.skip > 0 {
            window.skip = window.skip.saturating_sub(bytes);
            return None;
        }
        window.bytes += bytes;
        window.seconds += seconds;
        let rate = window.bytes as f64 / window.seconds;
        if window.bytes < WINDOW && !(window.bytes >= HOPELESS_AFTER && self.is_hopeless(rate)) {
            return None;
        }
        self.last = self.setting();
        self.window = Window::default();
        self.measured(rate.ln());
        if self.setting() != self.last {
            self.window.skip = SETTLE;
        }
        Some(rate)
    }

    /// Whether a setting of a race is so slow that its window need not be completed.
    fn is_hopeless(&self, rate: f64) -> bool {
        let Phase::Race(race) = &self.phase else {
            return false;
        };
        let mut rates = race.entries.iter().flat_map(|entry| &entry.rates);
        rates.any(|other| other - rate.ln() > HOPELESS)
    }

    /// Begins the measurement under way again, because something else has taken time.
    pub(crate) fn disturbed(&mut self) {
        self.window = Window {
            skip: SETTLE,
            ..Window::default()
        };
    }

    fn measured(&mut self, rate: f64) {
        match &mut self.phase {
            Phase::Race(race) => {
                if let Some(at) = race.left.pop() {
                    race.entries[at].rates.push(rate);
                }
                if race.left.is_empty() {
                    race.rounds += 1;
                    self.after_round();
                }
            }
            Phase::Settled(settled) => {
                settled.rates.push(rate);
                if settled.rates.len() == GROUP {
                    let now = median(&settled.rates);
                    settled.rates.clear();
                    let before = settled.rate.get_or_insert(now);
                    if settled.moved < LEAST_PAUSE {
                        // Other processes may explore longer, which slows down this one.
                        *before = before.max(now);
                        return;
                    }
                    let change = (now - *before).abs();
                    let (has_changed, has_shifted) = (change > DRIFT, change > SHIFT);
                    let pause = if has_shifted { PAUSE } else { self.pause };
                    if has_changed || settled.moved >= pause {
                        self.lost.retain(|(_, by)| !has_shifted && *by > LOST);
                        self.is_review = !has_shifted;
                        self.explore(has_changed);
                    }
                }
            }
        }
    }

    /// Starts an exploration: of all fills, or of what did not lose clearly around the best setting.
    fn explore(&mut self, has_changed: bool) {
        self.explored = 0;
        self.before = self.best;
        self.of_fills = has_changed;
        self.race(if has_changed {
            self.fills()
        } else {
            self.neighbours()
        });
    }

    /// Ends a round: removes what is clearly slower, and ends the race if one setting is left or
    /// this was the last round.
    fn after_round(&mut self) {
        let Phase::Race(race) = &mut self.phase else {
            return;
        };
        let best = self.best;
        let of = |entry: &Entry| {
            let bonus = if entry.setting == best { MARGIN } else { 0.0 };
            median(&entry.rates) + bonus
        };
        let fastest = race.entries.iter().map(of).fold(f64::MIN, f64::max);
        let scale = if self.is_review { REVIEW } else { 1.0 };
        let limit = scale * LEAVES[race.rounds as usize - 1];
        let (stay, leave): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut race.entries)
            .into_iter()
            .partition(|entry| entry.setting == best || fastest - of(entry) <= limit);
        let lost = leave
            .iter()
            .map(|entry| (entry.setting, fastest - of(entry)));
        self.lost.extend(lost);
        race.entries = stay;
        let (count, rounds) = (race.entries.len(), race.rounds);
        let winner = race
            .entries
            .iter()
            .max_by(|a, b| of(a).total_cmp(&of(b)))
            .map_or(best, |entry| entry.setting);
        if count > 1 && rounds < ROUNDS && self.has_time_for(count) {
            self.next_round(count);
        } else {
            self.after_race(winner);
        }
    }

    /// Whether a round of this many settings ends within the exploration.
    fn has_time_for(&self, settings: usize) -> bool {
        self.explored + settings as u64 * (WINDOW + SETTLE) <= MOST_EXPLORED
    }

    fn after_race(&mut self, winner: Setting) {
        let of_fills = std::mem::take(&mut self.of_fills);
        let has_moved = winner != self.best;
        self.best = winner;
        self.lost.retain(|(setting, _)| *setting != winner);
        let around = self.neighbours();
        if (has_moved || of_fills) && around.len() > 1 && self.has_time_for(around.len()) {
            self.race(around);
            return;
        }
        self.pause = if self.best == self.before {
            (self.pause * 2).min(LONGEST_PAUSE)
        } else {
            PAUSE
        };
        self.phase = Phase::Settled(Settled::default());
    }

    fn race(&mut self, settings: Vec<Setting>) {
        let entries: Vec<Entry> = settings
            .into_iter()
            .map(|setting| Entry {
                setting,
                rates: Vec::new(),
            })
            .collect();
        let count = entries.len();
        self.phase = Phase::Race(Race {
            entries,
            left: Vec::new(),
            rounds: 0,
        });
        self.next_round(count);
    }

    /// Puts the entries of a race in a random order. The order begins with the setting of the last
    /// window, if it is one of them, since nothing then has to settle.
    fn next_round(&mut self, count: usize) {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.below(at + 1));
        }
        let last = self.last;
        if let Phase::Race(race) = &mut self.phase {
            let is_last = |&at: &usize| race.entries[at].setting == last;
            if let Some(at) = order.iter().position(is_last) {
                order.swap(at, count - 1);
            }
            race.left = order;
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        // Xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % limit
    }

    /// The best setting, and the default for each other fill, down to half of the host's default.
    fn fills(&self) -> Vec<Setting> {
        let Limits {
            start, most_fill, ..
        } = self.limits;
        let compared = start.fill / 2..=most_fill;
        let others = FILLS.iter().filter(|fill| compared.contains(fill));
        let others = others.map(|fill| self.of_fill(*fill));
        let mut fills: Vec<Setting> = iter::once(self.best)
            .chain(others.filter(|setting| *setting != self.best))
            .collect();
        // Where many GPUs share a small cache, only a small footprint stays in it.
        let least = Setting {
            workers: start.workers.saturating_sub(2 * WORKER_STEP).max(FEWEST),
            fill: MIB,
        };
        if start.fill < most_fill && least.workers < start.workers && least != self.best {
            fills.push(least);
        }
        fills
    }

    /// The default number of workers for a fill. Small blocks cost a worker more time for each
    /// byte.
    fn of_fill(&self, fill: u64) -> Setting {
        let more = if fill < 3 * MIB { WORKER_STEP } else { 0 };
        let workers = if fill == self.limits.start.fill {
            self.limits.start.workers
        } else {
            (self.limits.start.workers + more).min(self.limits.most_workers)
        };
        Setting { workers, fill }
    }

    /// The best setting and those around it that have not lost.
    fn neighbours(&self) -> Vec<Setting> {
        let Limits {
            start,
            most_workers,
            most_fill,
        } = self.limits;
        let Setting { workers, fill } = self.best;
        let with = |workers: usize| Setting { workers, fill };
        let mut around = vec![
            with((workers + WORKER_STEP).min(most_workers)),
            with(
                workers
                    .saturating_sub(WORKER_STEP)
                    .max(FEWEST.min(start.workers)),
            ),
        ];
        if let Some(at) = FILLS
            .iter()
            .position(|f| *f == fill)
            .filter(|_| !self.is_review)
        {
            let next = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
            let fills = next.filter_map(|at| FILLS.get(at));
            around.extend(
                fills
                    .filter(|fill| **fill <= most_fill)
                    .map(|fill| self.of_fill(*fill)),
            );
        }
        let has_lost = |setting| self.lost.iter().any(|(lost, _)| *lost == setting);
        around.retain(|setting| *setting != self.best && !has_lost(*setting));
        around.push(self.best);
        around
    }
}

/// The middle one of some rates; of two, the faster, because disturbances only slow down.
fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(all(test, not(loom)))]
mod tests;
