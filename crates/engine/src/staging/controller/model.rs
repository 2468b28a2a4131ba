//! A model of a host whose GPUs share a last-level cache, to test the controller without any.
//!
//! Each rank reads cached files into its own GPU. Its rate is a smooth minimum of four limits: its
//! workers, which copy more slowly when slots miss the cache; its link; its share of the links
//! together; and the memory that the other ranks leave. The share of slots that miss follows from
//! the bytes that enter the cache between two uses of a slot: its own slots and as many bytes of
//! the page cache, times the ratio of all ranks' rates to its own. Time is virtual and noise is
//! seeded, so a run is the same each time.
//!
//! The parameters of `TWO_H100` and `TWO_H200` are fitted to measurements: the table of two H100s of
//! 2026-11-25 within 13 %, that of decision 11 within 4 %.

use std::fmt::Write;

use super::*;
use crate::sharing;

/// A host. Rates are in GB/s, sizes in MB or MiB, times in ms.
#[derive(Clone, Copy)]
struct Host {
    pub name: &'static str,
    pub gpus: usize,
    pub cores: usize,
    /// Bytes per second that a worker copies while slots stay in the cache.
    copy: f64,
    /// Time of a worker besides copying, a block.
    overhead: f64,
    /// How much longer copying takes if all slots miss, as a share.
    miss_cost: f64,
    /// MiB of the cache that the host really has.
    cache: f64,
    /// Width of the transition between hits and misses, as a share of the cache.
    width: f64,
    link: f64,
    /// Time of a link besides the bytes, a block.
    link_overhead: f64,
    memory: f64,
    /// All links together.
    links: f64,
    /// What each worker above eight costs the link, as a share.
    crowd: f64,
    /// How much longer copying takes while all other GPUs are fed, as a share.
    neighbours: f64,
}

const TWO_H100: Host = Host {
    name: "2 H100, 32 cores (measured)",
    gpus: 2,
    cores: 32,
    copy: 9.03,
    overhead: 0.0933,
    miss_cost: 1.5,
    cache: 257.0,
    width: 0.05,
    link: 53.7,
    link_overhead: 0.0062,
    memory: 258.7,
    links: 140.0,
    crowd: 0.0031,
    neighbours: 0.526,
};
const TWO_H200: Host = Host {
    name: "2 H200, 32 cores (measured)",
    copy: 9.43,
    overhead: 0.0367,
    miss_cost: 1.477,
    cache: 446.0,
    width: 0.109,
    link: 55.4,
    link_overhead: 0.0059,
    memory: 284.5,
    crowd: 0.0065,
    neighbours: 0.059,
    ..TWO_H100
};
const ONE: Host = Host {
    name: "1 H100, 16 cores, 150 MiB",
    gpus: 1,
    cores: 16,
    cache: 150.0,
    ..TWO_H100
};
const FEW_CORES: Host = Host {
    name: "1 H100, 8 cores, 150 MiB",
    cores: 8,
    ..ONE
};
const EIGHT: Host = Host {
    name: "8 GPUs, 192 cores, 600 MiB",
    gpus: 8,
    cores: 192,
    cache: 600.0,
    memory: 800.0,
    links: 440.0,
    neighbours: 0.5,
    ..TWO_H200
};
const EIGHT_SMALL: Host = Host {
    name: "8 GPUs, 96 cores, 200 MiB, slow memory",
    cores: 96,
    cache: 200.0,
    memory: 450.0,
    ..EIGHT
};
const FOUR_GEN4: Host = Host {
    name: "4 GPUs on 25 GB/s, 64 cores, 64 MiB",
    gpus: 4,
    cores: 64,
    cache: 64.0,
    link: 25.0,
    links: 100.0,
    memory: 170.0,
    neighbours: 0.3,
    ..TWO_H200
};
const AMPLE: Host = Host {
    name: "8 GPUs, 192 cores, nothing is scarce",
    cache: 4000.0,
    memory: 4000.0,
    neighbours: 0.0,
    ..EIGHT
};
const HOSTS: [Host; 8] = [
    TWO_H100,
    TWO_H200,
    ONE,
    FEW_CORES,
    EIGHT,
    EIGHT_SMALL,
    FOUR_GEN4,
    AMPLE,
];

const SLOTS: f64 = 2.0;
const NOISE: f64 = 0.04;
const STEP: f64 = 0.25e-3;

impl Host {
    fn limits(&self) -> Limits {
        let staging = sharing::staging_of(self.gpus, self.cores, Some((self.cache as u64) << 20));
        let start = Setting {
            workers: staging.threads.min(self.cores),
            fill: staging.block,
        };
        Limits {
            start,
            most_workers: staging.most_threads.min(self.cores),
            most_fill: 4 * MIB,
        }
    }

    /// Rates of ranks that read at the same time under these settings.
    fn rates(&self, settings: &[Setting]) -> Vec<f64> {
        let count = settings.len();
        let others = (count - 1) as f64 / (self.gpus - 1).max(1) as f64;
        let mut rates = vec![self.link; count];
        let mut traffic = vec![self.memory / count as f64; count];
        for _ in 0..60 {
            let all: f64 = rates.iter().sum();
            let used: f64 = traffic.iter().sum();
            for (at, setting) in settings.iter().enumerate() {
                let fill = setting.fill as f64 / MIB as f64;
                let workers = setting.workers as f64;
                let own = SLOTS * workers * fill;
                let distance = 2.0 * own * all / rates[at].max(1e-3);
                let missed = 1.0 / (1.0 + (-(distance / self.cache - 1.0) / self.width).exp());
                let megabytes = fill * 1.048576;
                let slower = 1.0 + self.miss_cost * missed + self.neighbours * others;
                let copied = workers / (slower / self.copy + self.overhead / megabytes);
                let linked = 1.0
                    / (1.0 / self.link + self.link_overhead / megabytes)
                    / (1.0 + self.crowd * (workers - 8.0).max(0.0));
                let left = (self.memory - (used - traffic[at])).max(self.memory / count as f64);
                let remembered = left / (1.0 + 2.0 * missed);
                let together = self.links / count as f64;
                let limits = [copied, linked, remembered, together];
                let sum: f64 = limits.iter().map(|limit| limit.powi(-5)).sum();
                let rate = sum.powf(-0.2);
                rates[at] = 0.7 * rates[at] + 0.3 * rate;
                traffic[at] = rates[at] * (1.0 + 2.0 * missed);
            }
        }
        rates
    }

    /// The best setting that all ranks have, and their rate together. Slots have 4 MiB, so larger
    /// blocks are left out.
    fn best(&self, ranks: usize) -> (Setting, f64) {
        let most = self.limits().most_workers;
        let mut best = (
            Setting {
                workers: 0,
                fill: 0,
            },
            0.0,
        );
        for workers in [6, 8, 10, 12, 14, 16].into_iter().filter(|w| *w <= most) {
            for fill in [1, 2, 3, 4] {
                let setting = Setting {
                    workers,
                    fill: fill * MIB,
                };
                let rate: f64 = self.rates(&vec![setting; ranks]).iter().sum();
                if rate > best.1 {
                    best = (setting, rate);
                }
            }
        }
        best
    }
}

struct Rank {
    pub controller: Controller,
    pub moved: f64,
    /// Bytes after which the controller settled first.
    pub settled: Option<f64>,
    noise: f64,
    hiccup: u32,
}

/// Ranks of a host that read at the same time.
struct Simulation {
    pub host: Host,
    pub ranks: Vec<Rank>,
    seconds: f64,
    /// Bytes that would have moved without noise.
    ideal: f64,
    random: u64,
}

impl Simulation {
    fn new(host: Host, ranks: usize, seed: u64) -> Simulation {
        let mut simulation = Simulation {
            host,
            ranks: Vec::new(),
            seconds: 0.0,
            ideal: 0.0,
            random: seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1,
        };
        for _ in 0..ranks {
            simulation.join();
        }
        simulation
    }

    /// Adds a rank with a new controller.
    fn join(&mut self) {
        let seed = (self.uniform() * 1e12) as u64;
        self.ranks.push(Rank {
            controller: Controller::new(self.host.limits(), seed),
            moved: 0.0,
            settled: None,
            noise: 0.0,
            hiccup: 0,
        });
    }

    /// Bytes that all ranks have moved.
    fn moved(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.moved).sum()
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn settings(&self) -> Vec<Setting> {
        self.ranks
            .iter()
            .map(|rank| rank.controller.setting())
            .collect()
    }

    /// The rate of all ranks under their best settings, without noise.
    fn chosen_rate(&self) -> f64 {
        let best: Vec<Setting> = self
            .ranks
            .iter()
            .map(|rank| rank.controller.best())
            .collect();
        self.host.rates(&best).iter().sum()
    }

    /// Reads until each rank has moved this many bytes more; those that have more go on meanwhile.
    fn read(&mut self, bytes: f64) {
        let goals: Vec<f64> = self.ranks.iter().map(|rank| rank.moved + bytes).collect();
        let mut settings = Vec::new();
        let mut rates = Vec::new();
        while self
            .ranks
            .iter()
            .zip(&goals)
            .any(|(rank, goal)| rank.moved < *goal)
        {
            let now = self.settings();
            if now != settings {
                rates = self.host.rates(&now);
                settings = now;
            }
            self.seconds += STEP;
            self.ideal += rates.iter().sum::<f64>() * 1e9 * STEP;
            for (at, rate) in rates.iter().enumerate() {
                let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
                let starts_hiccup = self.uniform() < 5e-4;
                let rank = &mut self.ranks[at];
                // Correlated over some milliseconds, as load is.
                rank.noise = 0.9 * rank.noise + NOISE * 0.43 * normal;
                rank.hiccup = if starts_hiccup {
                    12
                } else {
                    rank.hiccup.saturating_sub(1)
                };
                let slowed = if rank.hiccup > 0 { 0.6 } else { 1.0 };
                let bytes = rate * 1e9 * STEP * rank.noise.exp() * slowed;
                rank.moved += bytes;
                rank.controller.moved(bytes as u64, STEP);
                if rank.settled.is_none() && rank.controller.is_settled() {
                    rank.settled = Some(rank.moved);
                }
            }
        }
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// What several runs of the same ranks, with different noise, came to.
struct Outcome {
    /// The rate of the choice as a share of the best of the grid: in each run, from the worst.
    shares: Vec<f64>,
    /// Bytes a rank after which all have settled, in the slowest run.
    settled: f64,
    /// The share of time that was lost to the default of the host over the first 8 GiB a rank;
    /// negative if it was won.
    cost: f64,
    /// The choice of the first rank in the last run.
    chosen: Setting,
}

const RUNS: u64 = 40;

fn outcome(host: Host, ranks: usize) -> Outcome {
    let (_, best) = host.best(ranks);
    let default: f64 = host.rates(&vec![host.limits().start; ranks]).iter().sum();
    let mut outcome = Outcome {
        shares: Vec::new(),
        settled: 0.0,
        cost: 0.0,
        chosen: host.limits().start,
    };
    for seed in 1..=RUNS {
        let mut simulation = Simulation::new(host, ranks, seed);
        simulation.read(8.0 * GIB);
        let moved = simulation.moved();
        outcome.cost += (1.0 - moved / simulation.seconds / 1e9 / default) / RUNS as f64;
        for rank in &simulation.ranks {
            outcome.settled = rank.settled.unwrap_or(f64::MAX).max(outcome.settled);
        }
        outcome.shares.push(simulation.chosen_rate() / best);
        outcome.chosen = simulation.ranks[0].controller.best();
    }
    outcome.shares.sort_by(f64::total_cmp);
    outcome
}

fn in_words(setting: Setting) -> String {
    format!("{} x {} MiB", setting.workers, setting.fill / MIB)
}

#[test]
fn the_controller_comes_close_to_the_best_of_the_grid_on_each_host() {
    let mut table = String::from(
        "| Host | GPUs that read | Default, GB/s | Best of the grid | Chosen, e.g. | Share: median, worst of 40 \
         | Settled after | Cost in the first 8 GiB |\n|---|---:|---:|---|---|---:|---:|---:|\n",
    );
    let mut poor = String::new();
    for host in HOSTS {
        for ranks in [1, 2, 4, 8].into_iter().filter(|n| *n <= host.gpus) {
            let (best, rate) = host.best(ranks);
            let default: f64 = host.rates(&vec![host.limits().start; ranks]).iter().sum();
            let found = outcome(host, ranks);
            let (median, worst) = (found.shares[RUNS as usize / 2], found.shares[0]);
            let row = format!(
                "| {} | {ranks} | {default:.1} | {}: {rate:.1} | {} | {median:.3}, {worst:.3} | {:.2} GiB | {:+.1} % |",
                host.name,
                in_words(best),
                in_words(found.chosen),
                found.settled / GIB,
                100.0 * found.cost,
            );
            let (least, most_cost) = match (ranks, host.cache < 250.0 && host.gpus == 8) {
                (1, _) => (0.97, 0.02),
                // The best setting is far from the default, and all ranks have to find it at the
                // same time. Trials of small footprints cost more here.
                (_, true) => (0.94, 0.025),
                _ => (0.95, 0.02),
            };
            let is_default_best = default > 0.99 * rate;
            if median < least
                || worst < 0.88
                || found.settled > 2.0 * GIB
                || (is_default_best && found.cost > most_cost)
            {
                let _ = writeln!(poor, "{row}");
            }
            let _ = writeln!(table, "{row}");
        }
    }
    println!("{table}");
    assert!(poor.is_empty(), "\n{poor}");
}

#[test]
fn the_model_gives_the_rates_that_were_measured() {
    // Workers, MiB, one GPU alone, two together; GB/s.
    let h100 = [
        (10, 4, 50.0, 60.0),
        (8, 2, 44.5, 65.8),
        (12, 2, 46.4, 85.8),
        (16, 2, 43.4, 84.0),
        (12, 1, 37.7, 69.1),
        (8, 4, 49.2, 57.7),
        (12, 4, 48.0, 58.8),
        (8, 8, 35.9, 43.4),
        (10, 3, 48.4, 88.0),
        (14, 2, 46.4, 88.3),
    ];
    let h200 = [
        (8, 8, 50.9, 64.0),
        (8, 4, 49.6, 93.8),
        (10, 4, 50.2, 95.5),
        (12, 4, 49.8, 94.9),
        (16, 4, 48.7, 85.4),
        (10, 2, 45.9, 91.8),
        (12, 2, 46.3, 91.5),
    ];
    let check = |host: Host, rows: &[(usize, u64, f64, f64)], within: f64| {
        for &(workers, mib, alone, together) in rows {
            let setting = Setting {
                workers,
                fill: mib * MIB,
            };
            for (ranks, measured) in [(1, alone), (2, together)] {
                let rate: f64 = host.rates(&vec![setting; ranks]).iter().sum();
                let off = (rate / measured).ln().abs();
                assert!(
                    off < within,
                    "{workers} x {mib}, {ranks}: {rate:.1}, not {measured}"
                );
            }
        }
    };
    check(TWO_H100, &h100, 0.13);
    check(TWO_H200, &h200, 0.04);
}

#[test]
fn a_settled_host_oscillates_by_no_more_than_five_percent() {
    for host in [TWO_H100, TWO_H200, EIGHT] {
        let ranks = host.gpus.min(2);
        let mut simulation = Simulation::new(host, ranks, 11);
        simulation.read(2.0 * GIB);
        let usual = simulation.chosen_rate();
        for _ in 0..40 {
            let (seconds, ideal) = (simulation.seconds, simulation.ideal);
            simulation.read(GIB);
            let rate = (simulation.ideal - ideal) / (simulation.seconds - seconds) / 1e9;
            assert!(
                rate > 0.95 * usual,
                "{}: {rate:.1} of {usual:.1}",
                host.name
            );
        }
    }
}

/// The median and the worst of some shares.
fn median_and_worst(mut shares: Vec<f64>) -> (f64, f64) {
    shares.sort_by(f64::total_cmp);
    (shares[shares.len() / 2], shares[0])
}

#[test]
fn ranks_adapt_to_one_that_joins_them_later_and_to_its_end() {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for seed in 1..=20 {
        let mut simulation = Simulation::new(TWO_H100, 1, seed);
        simulation.read(8.0 * GIB);
        simulation.join();
        simulation.read(10.0 * GIB);
        together.push(simulation.chosen_rate() / TWO_H100.best(2).1);
        simulation.ranks.pop();
        simulation.read(16.0 * GIB);
        alone.push(simulation.chosen_rate() / TWO_H100.best(1).1);
    }
    let (median, worst) = median_and_worst(together);
    assert!(
        median > 0.95 && worst > 0.7,
        "together: {median:.3}, {worst:.3}"
    );
    let (median, worst) = median_and_worst(alone);
    assert!(
        median > 0.95 && worst > 0.9,
        "alone: {median:.3}, {worst:.3}"
    );
}
