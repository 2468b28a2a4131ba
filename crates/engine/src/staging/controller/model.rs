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
//! 2026-11-25 within 13 %, that of decision 11 within 2 %.

use super::*;
use crate::sharing;

/// A host. Rates are in GB/s, sizes in MB or MiB, times in ms.
#[derive(Clone, Copy)]
pub(super) struct Host {
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

pub(super) const TWO_H100: Host = Host {
    name: "two H100, small share of the cache",
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
pub(super) const TWO_H200: Host = Host {
    name: "two H200, whole cache",
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
    name: "one H100, 16 cores",
    gpus: 1,
    cores: 16,
    cache: 150.0,
    ..TWO_H100
};
const FEW_CORES: Host = Host {
    name: "one GPU, 8 cores",
    cores: 8,
    ..ONE
};
const EIGHT: Host = Host {
    name: "eight GPUs, two sockets, 600 MiB",
    gpus: 8,
    cores: 192,
    cache: 600.0,
    memory: 800.0,
    links: 440.0,
    neighbours: 0.5,
    ..TWO_H200
};
const EIGHT_SMALL: Host = Host {
    name: "eight GPUs, 200 MiB, slow memory",
    cores: 96,
    cache: 200.0,
    memory: 450.0,
    ..EIGHT
};
const FOUR_GEN4: Host = Host {
    name: "four GPUs, links of 25 GB/s, 64 MiB",
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
    name: "eight GPUs, nothing is scarce",
    cache: 4000.0,
    memory: 4000.0,
    neighbours: 0.0,
    ..EIGHT
};
pub(super) const HOSTS: [Host; 8] = [
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
    pub(super) fn limits(&self) -> Limits {
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
    pub(super) fn rates(&self, settings: &[Setting]) -> Vec<f64> {
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

    /// The best rate of all ranks together under a setting that all of them have.
    pub(super) fn best(&self, ranks: usize) -> (Setting, f64) {
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

pub(super) struct Rank {
    pub controller: Controller,
    pub moved: f64,
    /// Bytes after which the controller settled first.
    pub settled: Option<f64>,
    noise: f64,
    hiccup: u32,
}

/// Ranks of a host that read at the same time.
pub(super) struct Simulation {
    pub host: Host,
    pub ranks: Vec<Rank>,
    pub seconds: f64,
    random: u64,
}

impl Simulation {
    pub(super) fn new(host: Host, ranks: usize, seed: u64) -> Simulation {
        let limits = host.limits();
        let rank = |at: usize| Rank {
            controller: Controller::new(limits, seed * 1000 + at as u64 + 1),
            moved: 0.0,
            settled: None,
            noise: 0.0,
            hiccup: 0,
        };
        Simulation {
            host,
            ranks: (0..ranks).map(rank).collect(),
            seconds: 0.0,
            random: seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        self.ranks
            .iter()
            .map(|rank| rank.controller.setting())
            .collect()
    }

    /// The rate of all ranks under their best settings, without noise.
    pub(super) fn chosen_rate(&self) -> f64 {
        let best: Vec<Setting> = self
            .ranks
            .iter()
            .map(|rank| rank.controller.best())
            .collect();
        self.host.rates(&best).iter().sum()
    }

    /// Reads until each rank has moved this many bytes more; those that have more go on meanwhile.
    pub(super) fn read(&mut self, bytes: f64) {
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
