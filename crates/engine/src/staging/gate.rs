//! Admits workers that read into one GPU, as many as its controller says, and measures them.
//!
//! 1. A worker enters before it opens a lane. It waits while as many others are inside as the setting
//!    has workers, and as long as its request has blocks left. A waiting worker has neither a lane nor
//!    slots, and waits only for workers that run: it cannot be waited for in turn.
//! 2. After each block it reports the bytes, and learns the fill of the next block. If too many
//!    workers are inside now, or another request is to have its place, it has left, and enters again
//!    once it has concluded its lane.
//! 3. Requests share the places: the next worker to enter is of the request that has the fewest inside,
//!    and among those with as few, of the one that was served least recently. A worker leaves for a
//!    request that has at least two fewer inside, or for one that has none after [`TURN`].
//! 4. Time counts while at least one worker is inside.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::controller::{Controller, Setting};
use crate::sync::{Condvar, Mutex, MutexGuard, Recover};

/// Windows that are kept for reports.
const REPORTED_WINDOWS: usize = 1024;
/// A cancelled request has no event that wakes its waiting workers.
const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes after which the only worker of a request leaves for a request that has none inside. Leaving
/// costs the time in which its slots are empty.
const TURN: u64 = 64 << 20;

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
    /// The requests that have workers inside or waiting.
    requests: Vec<Admission>,
    /// Counts admissions.
    admissions: u64,
    /// The time up to which the controller knows what moved.
    counted_to: Instant,
    /// Slots that the ring had made by then.
    slots_made: u64,
    moved: u64,
    windows: VecDeque<Window>,
    /// Whether the controller has settled since `on_settled` was called.
    has_news: bool,
}

/// The workers of a request.
struct Admission {
    request: usize,
    inside: usize,
    waiting: usize,
    /// The number of its last admission.
    last: u64,
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
    request: usize,
    is_inside: bool,
    fill: u64,
    /// Bytes since it entered.
    moved: u64,
}

impl Gate {
    pub(crate) fn new(controller: Controller, on_settled: Option<OnSettled>) -> Gate {
        Gate {
            state: Mutex::new(State {
                controller,
                inside: 0,
                requests: Vec::new(),
                admissions: 0,
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

    /// Lets a worker of a request in, after other workers if there are too many. Returns `None` as soon
    /// as `has_work` is false. `request` is a number that no other request has at the same time.
    pub(crate) fn enter(&self, request: usize, has_work: impl Fn() -> bool) -> Option<Pass<'_>> {
        let mut state = self.state.lock().recover();
        state.of(request).waiting += 1;
        let mut fill = None;
        while has_work() {
            let setting = state.controller.setting();
            if state.inside < setting.workers && state.is_next(request) {
                state.admit(request);
                fill = Some(setting.fill);
                break;
            }
            (state, _) = self.changed.wait_timeout(state, PATIENCE).recover();
        }
        state.of(request).waiting -= 1;
        state.requests.retain(Admission::is_present);
        // Another worker may be the next one now.
        self.changed.notify_all();
        fill.map(|fill| Pass {
            gate: self,
            request,
            is_inside: true,
            fill,
            moved: 0,
        })
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

    fn leave(&self, mut state: MutexGuard<'_, State>, request: usize) {
        state.inside -= 1;
        state.of(request).inside -= 1;
        state.requests.retain(Admission::is_present);
        let news = state.inside == 0 && std::mem::take(&mut state.has_news);
        let best = state.controller.best();
        self.changed.notify_all();
        drop(state);
        if let Some(tell) = self.on_settled.as_ref().filter(|_| news) {
            tell(best);
        }
    }
}

impl Admission {
    fn is_present(&self) -> bool {
        self.inside + self.waiting > 0
    }
}

impl State {
    /// The admission of a request, which is added if it is not there.
    fn of(&mut self, request: usize) -> &mut Admission {
        let known = self.requests.iter().position(|of| of.request == request);
        let at = known.unwrap_or_else(|| {
            self.requests.push(Admission {
                request,
                inside: 0,
                waiting: 0,
                last: 0,
            });
            self.requests.len() - 1
        });
        &mut self.requests[at]
    }

    /// Whether no worker of another request is to enter first.
    fn is_next(&mut self, request: usize) -> bool {
        let own = self.of(request);
        let own = (own.inside, own.last);
        let mut waiting = self.requests.iter().filter(|of| of.waiting > 0);
        waiting.all(|of| of.request == request || own <= (of.inside, of.last))
    }

    fn admit(&mut self, request: usize) {
        if self.inside == 0 {
            self.counted_to = Instant::now();
        }
        self.inside += 1;
        self.admissions += 1;
        let number = self.admissions;
        let own = self.of(request);
        own.inside += 1;
        own.last = number;
    }

    /// Whether a worker of a request, which has moved these bytes since it entered, is to leave.
    fn is_to_leave(&mut self, request: usize, moved: u64) -> bool {
        let workers = self.controller.setting().workers;
        let own = self.of(request).inside;
        self.inside > workers
            || self.inside == workers
                && self.requests.iter().any(|of| {
                    let is_fewer = of.inside + 1 < own || of.inside == 0 && moved >= TURN;
                    of.request != request && of.waiting > 0 && is_fewer
                })
    }

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
        self.fill = state.controller.setting().fill;
        self.moved += bytes;
        if state.is_to_leave(self.request, self.moved) {
            self.is_inside = false;
            self.gate.leave(state, self.request);
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
            self.gate.leave(state, self.request);
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
        let first = gate.enter(1, || true).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.enter(1, || true).is_some());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_worker_whose_request_has_no_work_left_waits_no_longer() {
        let gate = gate(1);
        let _first = gate.enter(1, || true).unwrap();
        let calls = std::cell::Cell::new(0);
        let has_work = || calls.replace(calls.get() + 1) < 2;
        assert!(gate.enter(1, has_work).is_none());
    }

    #[test]
    fn workers_beyond_a_smaller_setting_leave() {
        let gate = Gate::new(Controller::new(limits(8), 1), None);
        let mut passes: Vec<_> = (0..8).map(|_| gate.enter(1, || true).unwrap()).collect();
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
    fn a_request_that_comes_later_gets_half_of_the_places() {
        let gate = gate(8);
        let mut first: Vec<_> = (0..8).map(|_| gate.enter(1, || true).unwrap()).collect();
        std::thread::scope(|scope| {
            let second: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| gate.enter(2, || true).map(std::mem::forget)))
                .collect();
            let of_second = || {
                let mut state = gate.state.lock().recover();
                let second = state.of(2);
                (second.inside, second.waiting)
            };
            let mut go_on = || first.retain_mut(|pass| pass.goes_on(1, 0));
            while of_second() != (4, 4) {
                go_on();
                std::thread::yield_now();
            }
            go_on();
            assert_eq!(of_second(), (4, 4));
            assert_eq!(first.len(), 4);
            drop(first);
            assert!(
                second
                    .into_iter()
                    .all(|worker| worker.join().unwrap().is_some())
            );
        });
    }

    #[test]
    fn a_long_request_with_one_place_leaves_it_in_turn() {
        let gate = gate(1);
        let mut first = gate.enter(1, || true).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.enter(2, || true).is_some());
            while gate.state.lock().recover().of(2).waiting == 0 {
                std::thread::yield_now();
            }
            assert!(first.goes_on(TURN - 1, 0));
            assert!(!first.goes_on(1, 0));
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_new_slot_begins_the_measurement_again() {
        let gate = gate(1);
        let mut pass = gate.enter(1, || true).unwrap();
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
                    while let Some(mut pass) = gate.enter(worker % 2, has_work) {
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
