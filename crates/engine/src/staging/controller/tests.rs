use super::*;

const GIB: u64 = 1 << 30;
const STEP: u64 = 4 * MIB;

fn setting(workers: usize, mib: u64) -> Setting {
    Setting {
        workers,
        fill: mib * MIB,
    }
}

fn limits() -> Limits {
    Limits {
        start: setting(10, 4),
        most_workers: 16,
        most_fill: 4 * MIB,
    }
}

/// Moves bytes at rates in GB/s that depend on the setting in force. Returns the settings in order,
/// each with the bytes that moved under it.
fn drive(
    controller: &mut Controller,
    bytes: u64,
    rate: impl Fn(Setting) -> f64,
) -> Vec<(Setting, u64)> {
    let mut used: Vec<(Setting, u64)> = Vec::new();
    for _ in 0..bytes / STEP {
        let now = controller.setting();
        match used.last_mut() {
            Some((last, bytes)) if *last == now => *bytes += STEP,
            _ => used.push((now, STEP)),
        }
        controller.moved(STEP, STEP as f64 / 1e9 / rate(now));
    }
    used
}

fn settled(rate: impl Fn(Setting) -> f64) -> Controller {
    let mut controller = Controller::new(limits(), 7);
    drive(&mut controller, 2 * GIB, rate);
    assert!(controller.is_settled());
    controller
}

/// Rates of a host on which slots of more than 60 MiB leave the cache.
fn small_cache(now: Setting) -> f64 {
    let footprint = 2 * now.workers as u64 * now.fill / MIB;
    let copied = 4.0 * now.workers as f64 * (1.0 - 0.2 * MIB as f64 / now.fill as f64);
    copied.min(44.0) * if footprint > 60 { 0.6 } else { 1.0 }
}

#[test]
fn the_default_stays_where_all_settings_are_equal() {
    let mut controller = Controller::new(limits(), 1);
    drive(&mut controller, 2 * GIB, |_| 50.0);
    assert!(controller.is_settled());
    assert_eq!(controller.setting(), limits().start);
}

#[test]
fn the_default_stays_where_another_setting_is_faster_by_less_than_the_margin() {
    let faster = |now| if now == limits().start { 50.0 } else { 51.0 };
    assert_eq!(settled(faster).setting(), limits().start);
}

#[test]
fn a_smaller_footprint_is_chosen_where_slots_leave_the_cache() {
    let best = settled(small_cache).best();
    assert!(
        small_cache(best) > 0.97 * small_cache(setting(15, 2)),
        "{best:?}"
    );
}

#[test]
fn one_slow_window_of_the_default_does_not_displace_it() {
    for slow in 0..12 {
        let mut controller = Controller::new(limits(), 3);
        let windows = std::cell::Cell::new(0);
        let rate = |now: Setting| match now == limits().start {
            true if windows.get() / 24 == slow => 30.0,
            true => 50.0,
            false => 47.0,
        };
        for _ in 0..2 * GIB / STEP {
            let now = controller.setting();
            controller.moved(STEP, STEP as f64 / 1e9 / rate(now));
            windows.set(windows.get() + u64::from(now == limits().start));
        }
        assert_eq!(controller.best(), limits().start, "window {slow}");
    }
}

#[test]
fn bytes_directly_after_a_change_belong_to_no_window() {
    let mut controller = Controller::new(limits(), 1);
    let first = controller.setting();
    while controller.setting() == first {
        controller.moved(STEP, 1e-4);
    }
    let mut skipped = 0;
    while controller.window.bytes == 0 {
        controller.moved(STEP, 1e-4);
        skipped += STEP;
    }
    assert_eq!(skipped, SETTLE + STEP);
}

#[test]
fn a_disturbed_window_begins_again() {
    let mut controller = Controller::new(limits(), 1);
    for _ in 0..100 {
        assert_eq!(controller.moved(WINDOW / 2, 1e-3), None);
        controller.disturbed();
    }
    assert_eq!(controller.moved(SETTLE, 1.0), None);
    let rate = controller.moved(WINDOW, 1.0);
    assert_eq!(rate, Some(WINDOW as f64));
}

#[test]
fn an_exploration_ends_within_two_gib() {
    for seed in 0..50 {
        let mut controller = Controller::new(limits(), seed);
        // Each change of the setting raises the rate, so that no setting is best for long.
        let changes = std::cell::Cell::new((limits().start, 50.0));
        drive(&mut controller, 2 * GIB, |now| {
            let (last, rate) = changes.get();
            let rate = if now == last { rate } else { rate * 1.2 };
            changes.set((now, rate));
            rate
        });
        assert!(controller.is_settled(), "seed {seed}");
    }
}

#[test]
fn a_settled_controller_varies_nothing_while_the_rate_stays() {
    let mut controller = settled(small_cache);
    let best = controller.best();
    let used = drive(&mut controller, PAUSE - GIB, small_cache);
    assert_eq!(used.len(), 1);
    assert_eq!(used[0].0, best);
}

#[test]
fn a_rate_that_falls_lastingly_starts_a_new_exploration() {
    let mut controller = settled(|_| 50.0);
    drive(&mut controller, 2 * GIB, |_| 50.0);
    assert_eq!(controller.best(), limits().start);
    // From now on another GPU needs a part of the cache.
    drive(&mut controller, 4 * GIB, small_cache);
    assert!(controller.best().fill < 4 * MIB);
}

#[test]
fn a_rate_that_rises_lastingly_starts_a_new_exploration() {
    let mut controller = settled(small_cache);
    drive(&mut controller, 2 * GIB, small_cache);
    let large_is_best = |now: Setting| 60.0 + 4.0 * (now.fill / MIB) as f64;
    drive(&mut controller, 4 * GIB, large_is_best);
    assert_eq!(controller.best().fill, 4 * MIB);
}

#[test]
fn a_short_dip_starts_none() {
    let mut controller = settled(|_| 50.0);
    drive(&mut controller, GIB, |_| 50.0);
    drive(&mut controller, 2 * WINDOW, |_| 20.0);
    let used = drive(&mut controller, GIB, |_| 50.0);
    assert_eq!(used.len(), 1);
}

#[test]
fn explorations_become_rarer_while_they_change_nothing() {
    let mut controller = settled(|_| 50.0);
    let used = drive(&mut controller, 60 * GIB, |_| 50.0);
    // The last one has not ended.
    let pauses: Vec<u64> = used[..used.len() - 1]
        .iter()
        .filter(|(_, bytes)| *bytes > 2 * GIB)
        .map(|(_, bytes)| bytes / GIB)
        .collect();
    assert!(pauses.is_sorted() && pauses.len() <= 4, "{pauses:?}");
}

#[test]
fn what_lost_clearly_is_not_tried_again_while_the_rate_stays() {
    let rate = |now: Setting| if now.fill < 3 * MIB { 20.0 } else { 50.0 };
    let mut controller = settled(rate);
    let used = drive(&mut controller, 20 * GIB, rate);
    assert!(used.len() > 1);
    assert!(used.iter().all(|(now, _)| now.fill >= 3 * MIB), "{used:?}");
}

#[test]
fn no_setting_has_more_workers_than_cores_or_larger_blocks_than_slots() {
    for (start, most_workers, most_fill) in [(8, 8, 4), (2, 2, 2), (1, 1, 4), (10, 12, 2)] {
        let limits = Limits {
            start: setting(start, most_fill),
            most_workers,
            most_fill: most_fill * MIB,
        };
        let mut controller = Controller::new(limits, 5);
        // More is always better.
        let rate = |now: Setting| now.workers as f64 * now.fill as f64 / MIB as f64;
        let used = drive(&mut controller, 20 * GIB, rate);
        let is_allowed =
            |now: Setting| (1..=most_workers).contains(&now.workers) && now.fill <= most_fill * MIB;
        assert!(used.iter().all(|(now, _)| is_allowed(*now)), "{used:?}");
        assert_eq!(controller.best().fill, most_fill * MIB);
    }
}

#[test]
fn more_workers_are_found_where_they_are_faster() {
    let rate = |now: Setting| 20.0 + 2.0 * now.workers as f64;
    assert!(settled(rate).best().workers >= 12);
}

#[test]
fn a_controller_begins_settled_at_a_setting_that_was_stored() {
    let stored = setting(14, 2);
    let mut controller = Controller::settled_at(stored, limits(), 1);
    let used = drive(&mut controller, PAUSE / 2, small_cache);
    assert_eq!(used, [(stored, PAUSE / 2)]);
}

#[test]
fn processes_with_different_seeds_try_settings_in_different_orders() {
    let order = |seed| {
        let mut controller = Controller::new(limits(), seed);
        drive(&mut controller, GIB, |_| 50.0)
    };
    let first = order(1);
    assert_eq!(first, order(1));
    assert!((2..10).any(|seed| order(seed) != first));
}
