//! Estimates how fast CPU and GPU decode a kind of chunk, and divides the chunks of a request.
//!
//! The idea: the GPU gets the number of chunks with which the GPU and the workers end at the same
//! time. Four times per byte, each the mean of what was measured, predict both ends:
//!
//! - A worker decodes chunks one after the other, and loads those of the GPU.
//! - The GPU decodes chunks side by side: one chunk alone has a latency, and each chunk adds a time
//!   that is far shorter. A measured time corrects both in proportion to their shares of the
//!   expected time.
//! - A side that gets no chunks is never measured, and may have become faster. It gets some as a
//!   trial as soon as 2 % of the run time pays for the expected loss.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use penstock_engine::Recover;

use super::gpu_filters::GpuFilters;

/// The rates that this process has measured, by device, filters (shuffle, checksum) and binary logarithm
/// of the decoded size. Chunks of deflate with the same key take about the same time to decode.
static RATES: LazyLock<Mutex<HashMap<Key, Arc<Mutex<Rates>>>>> = LazyLock::new(Mutex::default);
type Key = (i32, bool, bool, u32);

/// Returns the rates of chunks of `chunk` decoded bytes.
pub(super) fn rates_of(device: i32, filters: &GpuFilters, chunk: u64) -> Arc<Mutex<Rates>> {
    let has_checksum = filters.fletcher.is_some();
    let key = (
        device,
        filters.is_shuffled,
        has_checksum,
        chunk.max(1).ilog2(),
    );
    let mut all = RATES.lock().recover();
    let rates = all
        .entry(key)
        .or_insert_with(|| Arc::new(Mutex::new(Rates::new(chunk))));
    Arc::clone(rates)
}

/// Measured times, of which newer ones count more, in seconds per decoded byte.
#[derive(Debug)]
pub(super) struct Rates {
    /// Of a worker that decodes, from the file to a slot.
    cpu: f64,
    /// Of a worker that loads chunks for the GPU.
    load: f64,
    /// Of the GPU for one chunk alone.
    latency: f64,
    /// Of the GPU for each of many chunks.
    gpu: f64,
    /// Seconds that a trial of the unused side may cost.
    credit: f64,
}

/// Rates of an H100 or H200, and of one core of its host, in decoded bytes per second.
const CPU: f64 = 300e6;
const LOAD: f64 = 3e9;
const GPU_SINGLE: f64 = 38e6;
const GPU_MANY: f64 = 35e9;
/// Seconds of the GPU for a batch besides decoding.
const FIXED: f64 = 300e-6;

/// Weight of a worker's newest time in its mean.
const CPU_WEIGHT: f64 = 1.0 / 16.0;
/// Weight of the GPU's newest time.
const GPU_WEIGHT: f64 = 0.5;
/// Most that a measured time counts, as a multiple of the expected one. A single measurement may
/// include an allocation, or the load of another program.
const MOST_CHANGE: f64 = 4.0;
/// Fraction of run time spent on trials.
const TRIALS: f64 = 0.02;
/// Parts of a request in which its chunks are divided, besides the rest of a turn of the workers.
const PARTS: u64 = 64;

fn learn(mean: &mut f64, bytes: u64, time: Duration) {
    if bytes > 0 {
        let seen = time.as_secs_f64() / bytes as f64;
        *mean += (seen.min(MOST_CHANGE * *mean) - *mean) * CPU_WEIGHT;
    }
}

impl Rates {
    /// Returns the rates before the first measurement, for chunks of about `chunk` decoded bytes.
    fn new(chunk: u64) -> Rates {
        Rates {
            cpu: 1.0 / CPU,
            load: 1.0 / LOAD,
            latency: FIXED / chunk.max(1) as f64 + 1.0 / GPU_SINGLE,
            gpu: 1.0 / GPU_MANY,
            credit: 0.0,
        }
    }

    /// Records that a worker decoded `bytes`.
    pub(super) fn cpu_did(&mut self, bytes: u64, time: Duration) {
        learn(&mut self.cpu, bytes, time);
    }

    /// Records that a worker loaded chunks of `bytes` decoded bytes for the GPU.
    pub(super) fn loaded(&mut self, bytes: u64, time: Duration) {
        learn(&mut self.load, bytes, time);
    }

    /// Records that the GPU, idle before, decoded `chunks` chunks. The time includes loading.
    pub(super) fn gpu_did(&mut self, chunks: u64, chunk: u64, time: Duration) {
        if chunks == 0 || chunk == 0 {
            return;
        }
        let expected = self.gpu_time(chunks, chunk);
        let ratio = (time.as_secs_f64() / expected).clamp(1.0 / MOST_CHANGE, MOST_CHANGE);
        let of_latency = self.latency * chunk as f64 / expected;
        self.latency *= ratio.powf(GPU_WEIGHT * of_latency);
        self.gpu *= ratio.powf(GPU_WEIGHT * (1.0 - of_latency));
    }

    /// Returns how many of the remaining chunks, of `chunk` decoded bytes each, the GPU should decode so
    /// that it and the workers have decoded all soonest. `busy` is the number of chunks that it has got
    /// since it was idle, and the time since then.
    pub(super) fn share_of_gpu(
        &mut self,
        chunks: u64,
        chunk: u64,
        workers: u64,
        busy: Option<(u64, Duration)>,
    ) -> u64 {
        if chunks == 0 || chunk == 0 {
            return 0;
        }
        let (workers, bytes) = (workers.max(1), chunk as f64);
        let pending = busy.map_or(0.0, |(on_gpu, since)| {
            (on_gpu as f64 * self.gpu * bytes - since.as_secs_f64()).max(0.0)
        });
        let end = |on_gpu: u64| {
            let turns = (chunks - on_gpu).div_ceil(workers) as f64;
            let workers_end =
                (on_gpu as f64 / workers as f64 * self.load + turns * self.cpu) * bytes;
            match on_gpu {
                0 => workers_end,
                some => workers_end.max(pending + self.gpu_time(some, chunk)),
            }
        };
        let shares = (0..=PARTS).flat_map(|part| {
            let share = chunks * part / PARTS;
            // With the rest of a turn, the workers do whole turns.
            [share, share + (chunks - share) % workers]
        });
        let soonest = shares.min_by(|a, b| end(*a).total_cmp(&end(*b)));
        let share = soonest.unwrap_or(0);
        let trial = match share {
            0 => chunks.div_ceil(4),
            _ => share.saturating_sub(workers),
        };
        if busy.is_some() || (1..chunks).contains(&share) {
            return share;
        }
        let (credit, loss) = (self.credit + TRIALS * end(share), end(trial) - end(share));
        self.credit = if loss > credit { credit } else { 0.0 };
        if loss > credit { share } else { trial }
    }

    fn gpu_time(&self, chunks: u64, chunk: u64) -> f64 {
        (self.latency + chunks as f64 * self.gpu) * chunk as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers and a GPU whose times are known.
    #[derive(Clone, Copy)]
    struct Machine {
        /// Decoded bytes of a chunk.
        chunk: u64,
        workers: u64,
        /// Seconds that a worker takes for a chunk.
        cpu: f64,
        /// Seconds of the GPU, until it has more chunks than it decodes at a time.
        gpu: f64,
        side_by_side: f64,
    }

    /// Images of 150 KB on an H200 with 16 cores.
    const H200: Machine = Machine {
        chunk: 150_528,
        workers: 16,
        cpu: 650e-6,
        gpu: 8e-3,
        side_by_side: 700.0,
    };

    impl Machine {
        fn gpu_time(&self, chunks: u64) -> f64 {
            match chunks {
                0 => 0.0,
                some => self.gpu * (some as f64 / self.side_by_side).max(1.0),
            }
        }

        fn time(&self, chunks: u64, on_gpu: u64) -> f64 {
            let turns = (chunks - on_gpu).div_ceil(self.workers);
            (turns as f64 * self.cpu).max(self.gpu_time(on_gpu))
        }

        fn best(&self, chunks: u64) -> f64 {
            let times = (0..=chunks).map(|on_gpu| self.time(chunks, on_gpu));
            times.fold(f64::INFINITY, f64::min)
        }

        fn share(&self, rates: &mut Rates, chunks: u64) -> u64 {
            rates.share_of_gpu(chunks, self.chunk, self.workers, None)
        }

        /// Carries out a request, and returns its time.
        fn request(&self, rates: &mut Rates, chunks: u64) -> f64 {
            let on_gpu = self.share(rates, chunks);
            for _ in on_gpu..chunks {
                rates.cpu_did(self.chunk, Duration::from_secs_f64(self.cpu));
            }
            rates.loaded(on_gpu * self.chunk, Duration::from_nanos(10 * on_gpu));
            let time = Duration::from_secs_f64(self.gpu_time(on_gpu));
            rates.gpu_did(on_gpu, self.chunk, time);
            self.time(chunks, on_gpu)
        }

        /// Returns the time of many requests over that of as many at best.
        fn excess(&self, rates: &mut Rates, chunks: u64) -> f64 {
            let requests = (1_000_000 / chunks).clamp(100, 20_000);
            let all: f64 = (0..requests).map(|_| self.request(rates, chunks)).sum();
            all / (requests as f64 * self.best(chunks))
        }

        fn learnt(&self, chunks: u64) -> Rates {
            let mut rates = Rates::new(self.chunk);
            self.excess(&mut rates, chunks);
            rates
        }
    }

    #[test]
    fn the_division_comes_within_three_per_cent_of_the_best() {
        let machines = [
            H200,
            Machine { gpu: 2e-3, ..H200 },
            Machine { gpu: 60e-3, ..H200 },
            Machine { cpu: 2e-3, ..H200 },
            Machine { workers: 2, ..H200 },
            Machine {
                side_by_side: 60.0,
                ..H200
            },
        ];
        for (number, machine) in machines.iter().enumerate() {
            for chunks in [8, 16, 32, 64, 256, 1024, 20_000] {
                let mut rates = machine.learnt(chunks);
                let excess = machine.excess(&mut rates, chunks);
                assert!(excess < 1.03, "machine {number}, {chunks} chunks: {excess}");
            }
        }
    }

    /// docs/performance/gzip-on-gpu.md has the times of the GPU, decode.md those of workers.
    #[test]
    fn the_first_requests_of_a_process_come_within_a_quarter_of_the_best() {
        let kinds = [
            (150_528, 2.9e-3, 1050.0),
            (64 << 10, 2.2e-3, 1100.0),
            (256 << 10, 4.1e-3, 1120.0),
            (1 << 20, 30.6e-3, 1140.0),
        ];
        let hosts = [(16, 230e6), (2, 230e6), (64, 270e6), (16, 570e6)];
        let mut logarithms = Vec::new();
        for (chunk, gpu, side_by_side) in kinds {
            for (workers, rate) in hosts {
                let machine = Machine {
                    chunk,
                    workers,
                    cpu: chunk as f64 / rate,
                    gpu,
                    side_by_side,
                };
                for chunks in [8, 32, 64, 256, 1024] {
                    let mut rates = Rates::new(machine.chunk);
                    let all: f64 = (0..40).map(|_| machine.request(&mut rates, chunks)).sum();
                    let excess = all / (40.0 * machine.best(chunks));
                    assert!(excess < 1.25, "{chunks} of {chunk}, {workers}: {excess}");
                    logarithms.push(excess.ln());
                }
            }
        }
        let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
        assert!(mean < 1.05, "{mean}");
    }

    #[test]
    fn requests_of_changing_sizes_are_divided_as_well() {
        let sizes = [8, 300, 64, 1500, 256];
        let mut rates = Rates::new(H200.chunk);
        let mut times = (0.0, 0.0);
        for turn in 0..100 {
            for chunks in sizes {
                let time = H200.request(&mut rates, chunks);
                if turn >= 20 {
                    times = (times.0 + time, times.1 + H200.best(chunks));
                }
            }
        }
        assert!(times.0 / times.1 < 1.03, "{}", times.0 / times.1);
    }

    #[test]
    fn changes_are_learnt_at_little_cost() {
        let (slow_gpu, slow_workers) = (60e-3, 50e-3);
        for (cpu, gpu, chunks, requests) in [
            (2.6e-3, H200.gpu, 256, 20),
            (H200.cpu, slow_gpu, 256, 1000),
            (slow_workers, H200.gpu, 64, 1000),
        ] {
            let before = Machine { cpu, gpu, ..H200 };
            let mut rates = H200.learnt(chunks);
            for machine in [before, H200] {
                for _ in 0..requests {
                    machine.request(&mut rates, chunks);
                }
                assert!(machine.excess(&mut rates, chunks) < 1.03);
            }
        }
    }

    #[test]
    fn one_slow_batch_does_not_keep_the_gpu_from_work() {
        let mut rates = Rates::new(H200.chunk);
        rates.gpu_did(64, H200.chunk, Duration::from_secs(1));
        for _ in 0..200 {
            H200.request(&mut rates, 256);
        }
        assert!(H200.excess(&mut rates, 256) < 1.03);
    }

    #[test]
    fn one_slow_chunk_does_not_keep_the_workers_from_work() {
        let mut rates = Rates::new(H200.chunk);
        rates.cpu_did(H200.chunk, Duration::from_secs(1));
        assert_eq!(H200.share(&mut rates, 64), 0);
    }

    #[test]
    fn the_gpu_gets_no_more_while_what_it_has_takes_as_long_as_the_rest() {
        let mut rates = H200.learnt(1024);
        let share = H200.share(&mut rates, 1024);
        assert!(share > 500);
        let busy = Some((share, Duration::ZERO));
        let more = rates.share_of_gpu(1024 - share, H200.chunk, H200.workers, busy);
        assert!(more <= share / 20);
    }

    #[test]
    fn before_anything_is_measured_few_large_chunks_are_for_the_workers() {
        let share = |chunk, chunks| {
            let machine = Machine { chunk, ..H200 };
            machine.share(&mut Rates::new(chunk), chunks)
        };
        assert_eq!(share(4 << 20, 128), 0);
        assert!(share(64 << 10, 1 << 15) > 20_000);
    }
}
