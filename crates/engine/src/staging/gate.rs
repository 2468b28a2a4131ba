//! Admits workers that read into one GPU, as many as its controller says, and measures them.
//!
//! 1. A worker enters before it opens a lane. It waits while as many others are inside as the setting
//!    has workers, and as long as its request has blocks left. A waiting worker has neither a lane nor
//!    slots, and waits only for workers that run: it cannot be waited for in turn.
//! 2. After each block it reports the bytes, and learns the fill of the next block. If too many
//!    workers are inside now, it has left, and enters again once it has concluded its lane.
//! 3. Time counts while at least one worker is inside.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::controller::{Controller, Setting};
use crate::sync::{Condvar, Mutex, MutexGuard, Recover};

/// Windows that are kept for reports.
const REPORTED_WINDOWS: usize = 1024;
/// A cancelled request has no event that wakes its waiting workers.
const PATIENCE: Duration = Duration::from_millis(50);

/// Is called with each setting at which the controller settles.
pub(crate) type OnSettled = Box<dyn Fn(Setting) + Send + Sync>;

pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    on_settled: Option<OnSettled>,
}

struct State {
    controller: Controller,
    inside: usize,
    /// The time up to which the controller knows what moved.
    counted_to: Instant,
    /// Slots that the ring had made by then.
    slots_made: u64,
    moved: u64,
    windows: VecDeque<Window>,
    /// Whether the controller has settled since `on_settled` was called.
    has_news: bool,
}

/// A measurement, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes that had moved at its end.
    pub moved: u64,
    pub setting: Setting,
    /// Bytes per second.
    pub rate: f64,
    /// Whether the controller had settled.
    pub is_settled: bool,
}

/// A worker that is inside. Dropping it leaves.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    is_inside: bool,
    fill: u64,
}

impl Gate {
    pub(crate) fn new(controller: Controller, on_settled: Option<OnSettled>) -> Gate {
        Gate {
            state: Mutex::new(State {
                controller,
                inside: 0,
                counted_to: Instant::now(),
                slots_made: 0,
                moved: 0,
                windows: VecDeque::new(),
                has_news: false,
            }),
            changed: Condvar::new(),
            on_settled,
        }
    }

    /// Lets a worker in, after other workers if there are too many. Returns `None` as soon as
    /// `has_work` is false.
    pub(crate) fn enter(&self, has_work: impl Fn() -> bool) -> Option<Pass<'_>> {
        let mut state = self.state.lock().recover();
        while has_work() {
            let Setting { workers, fill } = state.controller.setting();
            if state.inside < workers {
                if state.inside == 0 {
                    state.counted_to = Instant::now();
                }
                state.inside += 1;
                return Some(Pass {
                    gate: self,
                    is_inside: true,
                    fill,
                });
            }
            (state, _) = self.changed.wait_timeout(state, PATIENCE).recover();
        }
        None
    }

    /// The best setting so far.
    pub(crate) fn best(&self) -> Setting {
        self.state.lock().recover().controller.best()
    }

    /// The setting in force.
    pub(crate) fn setting(&self) -> Setting {
        self.state.lock().recover().controller.setting()
    }

    /// The most workers that a request of these bytes may need before it ends.
    pub(crate) fn lanes(&self, bytes: u64) -> usize {
        /// A request of this length meets several settings if the controller explores again.
        const LONG: u64 = 256 << 20;
        let state = self.state.lock().recover();
        let controller = &state.controller;
        if bytes >= LONG || !controller.is_settled() {
            controller.most_workers()
        } else {
            controller.best().workers
        }
    }

    /// Whether the controller has settled, and its last windows.
    pub(crate) fn history(&self) -> (bool, Vec<Window>) {
        let state = self.state.lock().recover();
        let windows = state.windows.iter().copied().collect();
        (state.controller.is_settled(), windows)
    }

    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.inside -= 1;
        let news = state.inside == 0 && std::mem::take(&mut state.has_news);
        let best = state.controller.best();
        self.changed.notify_all();
        drop(state);
        if let Some(tell) = self.on_settled.as_ref().filter(|_| news) {
            tell(best);
        }
    }
}

impl State {
    /// Passes to the controller what has moved since it was last called. Returns whether the
    /// setting has changed.
    fn count(&mut self, bytes: u64, slots_made: u64) -> bool {
        let now = Instant::now();
        let seconds = (now - self.counted_to).as_secs_f64();
        self.counted_to = now;
        self.moved += bytes;
        if slots_made != self.slots_made {
            // Pinning a slot takes as long as moving several blocks.
            self.slots_made = slots_made;
            self.controller.disturbed();
        }
        let (setting, was_settled) = (self.controller.setting(), self.controller.is_settled());
        if let Some(rate) = self.controller.moved(bytes, seconds) {
            if self.windows.len() == REPORTED_WINDOWS {
                self.windows.pop_front();
            }
            self.windows.push_back(Window {
                moved: self.moved,
                setting,
                rate,
                is_settled: was_settled,
            });
        }
        self.has_news |= self.controller.is_settled() && !was_settled;
        self.controller.setting() != setting
    }
}

impl Pass<'_> {
    /// The bytes to which the next block may fill its slot.
    pub(crate) fn fill(&self) -> u64 {
        self.fill
    }

    /// Reports a block that has been read, and the slots that the ring has made so far. Returns
    /// whether this worker may take another block; otherwise it has left.
    pub(crate) fn goes_on(&mut self, bytes: u64, slots_made: u64) -> bool {
        let mut state = self.gate.state.lock().recover();
        if state.count(bytes, slots_made) {
            self.gate.changed.notify_all();
        }
        let Setting { workers, fill } = state.controller.setting();
        self.fill = fill;
        if state.inside > workers {
            self.is_inside = false;
            self.gate.leave(state);
        }
        self.is_inside
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_inside {
            let mut state = self.gate.state.lock().recover();
            let made = state.slots_made;
            state.count(0, made);
            self.gate.leave(state);
        }
    }
}

/// Whether the requests of a gate are long enough for blocks that fill whole slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Long,
}

impl Length {
    /// The largest fill of its blocks. Four blocks a worker let all workers end together.
    pub(crate) fn most_fill(self) -> u64 {
        match self {
            Length::Short => 2 << 20,
            Length::Long => 4 << 20,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Length::Short => "short",
            Length::Long => "long",
        }
    }
}

/// The gates of a process: two for each GPU, since short requests need smaller blocks.
#[derive(Default)]
pub(crate) struct Gates {
    known: Mutex<Vec<(i32, Length, Arc<Gate>)>>,
}

impl Gates {
    /// The gate of a GPU, which the first caller makes.
    pub(crate) fn of(&self, device: i32, length: Length, make: impl FnOnce() -> Gate) -> Arc<Gate> {
        let mut known = self.known.lock().recover();
        let is_it = |(of, long, _): &&(i32, Length, _)| (*of, *long) == (device, length);
        if let Some((.., gate)) = known.iter().find(is_it) {
            return Arc::clone(gate);
        }
        let gate = Arc::new(make());
        known.push((device, length, Arc::clone(&gate)));
        gate
    }

    pub(crate) fn all(&self) -> Vec<(i32, Length, Arc<Gate>)> {
        self.known.lock().recover().clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::staging::Limits;

    fn limits(workers: usize) -> Limits {
        let fill = 4 << 20;
        Limits {
            start: Setting { workers, fill },
            most_workers: workers,
            most_fill: fill,
        }
    }

    fn gate(workers: usize) -> Gate {
        let limits = limits(workers);
        Gate::new(Controller::settled_at(limits.start, limits, 1), None)
    }

    #[test]
    fn a_worker_waits_until_another_one_leaves() {
        let gate = gate(1);
        let first = gate.enter(|| true).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.enter(|| true).is_some());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_worker_whose_request_has_no_work_left_waits_no_longer() {
        let gate = gate(1);
        let _first = gate.enter(|| true).unwrap();
        let calls = std::cell::Cell::new(0);
        let has_work = || calls.replace(calls.get() + 1) < 2;
        assert!(gate.enter(has_work).is_none());
    }

    #[test]
    fn workers_beyond_a_smaller_setting_leave() {
        let gate = Gate::new(Controller::new(limits(8), 1), None);
        let mut passes: Vec<_> = (0..8).map(|_| gate.enter(|| true).unwrap()).collect();
        // Until the race measures a setting with fewer workers.
        let inside = || gate.state.lock().recover().inside;
        for turn in 0..10_000 {
            let pass = &mut passes[turn % 8];
            if pass.is_inside && !pass.goes_on(8 << 20, 0) && inside() == 6 {
                break;
            }
        }
        assert_eq!((inside(), gate.setting().workers), (6, 6));
    }

    #[test]
    fn a_new_slot_begins_the_measurement_again() {
        let gate = gate(1);
        let mut pass = gate.enter(|| true).unwrap();
        for made in 1..100 {
            assert!(pass.goes_on(64 << 20, made));
        }
        assert!(gate.history().1.is_empty());
        for _ in 0..4 {
            assert!(pass.goes_on(64 << 20, 99));
        }
        assert_eq!(gate.history().1.len(), 2);
    }

    #[test]
    fn many_workers_of_two_requests_finish_while_the_setting_changes() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let limits = Limits {
            most_workers: 16,
            ..limits(10)
        };
        let gate = Gate::new(Controller::new(limits, 3), None);
        let left = [AtomicUsize::new(500), AtomicUsize::new(500)];
        let carried = AtomicUsize::new(0);
        let take = |left: &AtomicUsize| {
            let less = |n: usize| n.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        };
        std::thread::scope(|scope| {
            for worker in 0..32 {
                let left = &left[worker % 2];
                let (gate, carried) = (&gate, &carried);
                scope.spawn(move || {
                    let has_work = || left.load(Ordering::Relaxed) > 0;
                    while let Some(mut pass) = gate.enter(has_work) {
                        while take(left).is_ok() {
                            carried.fetch_add(1, Ordering::Relaxed);
                            if !pass.goes_on(16 << 20, 0) {
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(carried.load(Ordering::Relaxed), 1000);
        assert_eq!(gate.state.lock().recover().inside, 0);
        assert!(gate.history().1.iter().any(|w| w.setting != limits.start));
    }
}
