//! Measures how fast CPU and GPU decode a kind of chunk, and divides the chunks of a request.
//!
//! The idea: choose the number of chunks for the GPU with which the GPU and the workers end at the
//! same time. Both ends are predicted.
//!
//! - A worker decodes chunks one after the other, so its time is a mean per byte.
//! - The GPU decodes chunks side by side. Its time is nearly constant for few chunks, and then grows
//!   with their number. A formula with prior rates gives the shape, and a correction for each power
//!   of 2 of the number of chunks, learned from measurements, gives the scale.
//! - The GPU gets no chunks if that gains less than 1 %.
//! - A side that gets no chunks is never measured, and may have become faster. It gets some as a
//!   trial as soon as 2 % of the run time pays for the expected loss.

/// Decoded bytes per second before the first measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    /// Rate of one worker, from the file to a slot.
    pub cpu: f64,
    /// Rate of the GPU with one chunk.
    pub gpu_single: f64,
    /// Rate of the GPU with the most chunks that it decodes at a time.
    pub gpu_all: f64,
}

/// What remains of a request when its chunks are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    /// Number of chunks that are not begun.
    pub chunks: u64,
    /// Decoded bytes of one chunk.
    pub chunk: u64,
    /// Number of workers that decode on the CPU.
    pub workers: u64,
    /// Number of chunks that the GPU has got since it was idle.
    pub on_gpu: u64,
    /// Seconds since the GPU was idle.
    pub since: f64,
}

/// Measured times, of which newer ones count more.
#[derive(Debug)]
pub(super) struct Rates {
    prior: Prior,
    cpu: Mean,
    load: Mean,
    /// Corrections by the binary logarithm of the number of chunks.
    gpu: [Correction; NUMBERS],
    /// Mean distance of the GPU's times from the expected ones, as a logarithm.
    deviation: f64,
    /// Seconds that a trial of the unused side may cost.
    credit: f64,
    /// Whether the GPU was given chunks as a trial.
    on_trial: bool,
    /// Whether the GPU's last time was far from the expected one.
    was_far: bool,
}

/// Moving means of a worker's time and bytes.
#[derive(Debug)]
struct Mean {
    seconds: f64,
    bytes: f64,
    /// Weight of all values so far; `None` before the first.
    count: Option<f64>,
}

/// The logarithm of the GPU's time over that of the prior.
#[derive(Clone, Copy, Debug, Default)]
struct Correction {
    logarithm: f64,
    /// Weight of the measurements; 0 without any.
    weight: f64,
}

/// Number of corrections, one for each power of 2 of chunks. The last one applies to all more chunks.
const NUMBERS: usize = 21;
/// Seconds of the GPU for a batch besides decoding, before the first measurement.
const FIXED: f64 = 300e-6;
/// Decoded bytes per second that a worker loads, before the first measurement.
const LOAD: f64 = 3e9;
/// Window of a worker's mean, in measurements.
const CPU_MEAN: f64 = 64.0;
/// Weight of the prior in a worker's mean, in measurements.
const PRIOR_COUNT: f64 = 4.0;
/// Window of the GPU's means, in measurements.
const GPU_MEAN: f64 = 4.0;
/// Factor of the weight of a measurement with half or twice the number of chunks.
const NEIGHBOUR: f64 = 1.0 / 16.0;
/// Factor by which each batch of the GPU reduces the weight of older measurements: those with other
/// numbers of chunks, and those of workers.
const AGED: f64 = 0.9;
/// Largest factor by which one measurement changes the expected time, unless the measurement before
/// was as far away. A single one may include an allocation, or the load of another program.
const MOST_CHANGE: f64 = 4.0;
/// Deviation before the first measurement.
const FIRST_DEVIATION: f64 = 0.1;
/// Largest deviation.
const MOST_DEVIATION: f64 = 0.5;
/// Least gain for which the GPU is used, as a fraction of the time.
const LEAST_GAIN: f64 = 0.01;
/// Fraction of run time spent on trials.
const TRIALS: f64 = 0.02;
/// Budget of the first trial, in seconds.
const FIRST_TRIAL: f64 = 10e-3;

impl Mean {
    fn of_rate(rate: f64) -> Mean {
        Mean {
            seconds: 1.0 / rate,
            bytes: 1.0,
            count: None,
        }
    }

    fn per_byte(&self) -> f64 {
        self.seconds / self.bytes
    }

    fn learn(&mut self, bytes: u64, seconds: f64) {
        if bytes == 0 || seconds <= 0.0 {
            return;
        }
        let bytes = bytes as f64;
        let known = self.count.unwrap_or_else(|| {
            self.seconds *= bytes;
            self.bytes = bytes;
            PRIOR_COUNT
        });
        let count = (known + 1.0).min(CPU_MEAN);
        self.count = Some(count);
        let weight = 1.0 / count;
        // The first measurements may include allocations.
        let seconds = seconds.min(MOST_CHANGE * self.per_byte() * bytes);
        self.seconds += (seconds - self.seconds) * weight;
        self.bytes += (bytes - self.bytes) * weight;
    }

    fn age(&mut self) {
        self.count = self.count.map(|count| count * AGED);
    }
}

impl Rates {
    pub(super) fn new(prior: Prior) -> Rates {
        Rates {
            prior,
            cpu: Mean::of_rate(prior.cpu),
            load: Mean::of_rate(LOAD),
            gpu: [Correction::default(); NUMBERS],
            deviation: FIRST_DEVIATION,
            credit: FIRST_TRIAL,
            on_trial: false,
            was_far: false,
        }
    }

    /// Records that a worker decoded `bytes` in `seconds`.
    pub(super) fn cpu_did(&mut self, bytes: u64, seconds: f64) {
        self.cpu.learn(bytes, seconds);
    }

    /// Records that a worker loaded chunks of `bytes` decoded bytes for the GPU in `seconds`.
    pub(super) fn loaded(&mut self, bytes: u64, seconds: f64) {
        self.load.learn(bytes, seconds);
    }

    /// Records that the GPU, idle before, decoded `chunks` chunks. The time includes loading.
    pub(super) fn gpu_did(&mut self, chunks: u64, chunk: u64, seconds: f64) {
        if chunks == 0 || chunk == 0 || seconds <= 0.0 {
            return;
        }
        let place = place_of(chunks);
        let expected = self.correction(place);
        let most = MOST_CHANGE.ln();
        let seen = (seconds / self.prior_time(chunks, chunk)).ln();
        let far = seen - expected;
        let is_confirmed = self.was_far && far.abs() > most;
        self.was_far = far.abs() > most;
        let error = if is_confirmed {
            far
        } else {
            far.clamp(-most, most)
        };
        if std::mem::take(&mut self.on_trial) {
            // A trial that took longer than expected delays the next one.
            let expected = self.gpu_time(chunks, chunk);
            self.credit -= (seconds - expected).clamp(0.0, MOST_CHANGE * expected);
        }
        self.deviation += (error.abs().min(MOST_DEVIATION) - self.deviation) / GPU_MEAN;
        self.cpu.age();
        self.load.age();
        let at = (place.round() as usize).min(NUMBERS - 1);
        for (number, other) in self.gpu.iter_mut().enumerate() {
            if number != at {
                other.weight *= AGED;
            }
        }
        let known = &mut self.gpu[at];
        if known.weight == 0.0 {
            *known = Correction {
                logarithm: expected,
                // A shorter time replaces the expected one at once.
                weight: if error < 0.0 { 0.0 } else { 1.0 },
            };
        }
        known.weight = if is_confirmed {
            1.0
        } else {
            (known.weight + 1.0).min(GPU_MEAN)
        };
        known.logarithm += (expected + error - known.logarithm) / known.weight;
    }

    /// Returns how many of the remaining chunks the GPU should decode so that all are decoded soonest.
    pub(super) fn share_of_gpu(&mut self, of: &Remaining) -> u64 {
        if of.chunks == 0 || of.chunk == 0 {
            return 0;
        }
        // Bisects for the largest number with which the GPU ends no later than the workers.
        let (mut low, mut high) = (0, of.chunks + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.gpu_ends(of, middle) <= self.workers_end(of, middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (mut share, mut ends) = (0, self.workers_end(of, 0));
        ends = ends.max(self.gpu_ends(of, 0));
        let alone = ends;
        for number in [low, low + 1, of.chunks] {
            let end = self.gpu_ends(of, number).max(self.workers_end(of, number));
            if number <= of.chunks && end < ends && end < alone * (1.0 - LEAST_GAIN) {
                (share, ends) = (number, end);
            }
        }
        if of.on_gpu > 0 {
            return share;
        }
        // A side that is not used may have become faster.
        let (trial, end) = match share {
            0 => {
                let some = of.chunks.div_ceil(4);
                (some, self.gpu_ends(of, some))
            }
            all if all == of.chunks => (all - 1, self.workers_end(of, all - 1)),
            _ => return share,
        };
        self.credit += TRIALS * ends;
        if end - ends > self.credit {
            return share;
        }
        self.credit = 0.0;
        self.on_trial = share == 0;
        trial
    }

    /// Returns about how many chunks the GPU decodes at a time, so that more take longer.
    pub(super) fn saturation(&self) -> u64 {
        (self.prior.gpu_all / self.prior.gpu_single) as u64
    }

    /// Returns the seconds until the workers have loaded `on_gpu` chunks and decoded all others.
    fn workers_end(&self, of: &Remaining, on_gpu: u64) -> f64 {
        let (workers, chunk) = (of.workers.max(1), of.chunk as f64);
        let turns = (of.chunks.saturating_sub(on_gpu)).div_ceil(workers) as f64;
        let loading = on_gpu as f64 / workers as f64 * self.load.per_byte() * chunk;
        loading + turns * self.cpu.per_byte() * chunk
    }

    /// Returns the seconds until the GPU has decoded `more` chunks more, with a margin for the deviation
    /// of its times.
    fn gpu_ends(&self, of: &Remaining, more: u64) -> f64 {
        let all = of.on_gpu + more;
        if all == 0 {
            return 0.0;
        }
        let mut end = self.gpu_time(all, of.chunk) - of.since;
        if more > 0 {
            end = end.max(self.gpu_time(more, of.chunk));
        }
        end.max(0.0) * (1.0 + self.deviation)
    }

    fn gpu_time(&self, chunks: u64, chunk: u64) -> f64 {
        self.correction(place_of(chunks)).exp() * self.prior_time(chunks, chunk)
    }

    fn prior_time(&self, chunks: u64, chunk: u64) -> f64 {
        let (single, all) = (self.prior.gpu_single, self.prior.gpu_all);
        FIXED + chunk as f64 * (1.0 / single + chunks as f64 / all)
    }

    /// Returns the logarithm of the correction for a number of chunks.
    fn correction(&self, place: f64) -> f64 {
        // If all measurements are far away, the nearest one decides.
        let measured = || self.gpu.iter().enumerate().filter(|(_, c)| c.weight > 0.0);
        let away = |at: usize| (at as f64 - place).abs();
        let nearest = measured()
            .map(|(at, _)| away(at))
            .fold(f64::INFINITY, f64::min);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (at, correction) in measured() {
            let weight = correction.weight * NEIGHBOUR.powf(away(at) - nearest);
            sum += weight * correction.logarithm;
            weights += weight;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }
}

/// Returns the binary logarithm of a number of chunks.
fn place_of(chunks: u64) -> f64 {
    (chunks.max(1) as f64).log2().min((NUMBERS - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 150_528;
    const PRIOR: Prior = Prior {
        cpu: 300e6,
        gpu_single: 22e6,
        gpu_all: 20e9,
    };

    /// A CPU and a GPU whose times are known.
    #[derive(Clone, Copy)]
    struct Machine {
        workers: u64,
        /// Seconds that a worker takes for a chunk.
        cpu: f64,
        /// Seconds of the GPU, until it has more chunks than it decodes at a time.
        gpu: f64,
        side_by_side: u64,
    }

    impl Machine {
        fn cpu_time(&self, chunks: u64) -> f64 {
            chunks.div_ceil(self.workers) as f64 * self.cpu
        }

        fn gpu_time(&self, chunks: u64) -> f64 {
            let over = chunks as f64 / self.side_by_side as f64;
            if chunks == 0 {
                0.0
            } else {
                self.gpu * over.max(1.0)
            }
        }

        fn time(&self, chunks: u64, on_gpu: u64) -> f64 {
            self.cpu_time(chunks - on_gpu).max(self.gpu_time(on_gpu))
        }

        fn best(&self, chunks: u64) -> f64 {
            let times = (0..=chunks).map(|on_gpu| self.time(chunks, on_gpu));
            times.fold(f64::INFINITY, f64::min)
        }

        /// Carries out a request, and returns its time.
        fn request(&self, rates: &mut Rates, chunks: u64) -> f64 {
            let on_gpu = rates.share_of_gpu(&Remaining {
                chunks,
                chunk: CHUNK,
                workers: self.workers,
                on_gpu: 0,
                since: 0.0,
            });
            for _ in on_gpu..chunks {
                rates.cpu_did(CHUNK, self.cpu);
            }
            rates.loaded(on_gpu * CHUNK, on_gpu as f64 * 1e-8);
            rates.gpu_did(on_gpu, CHUNK, self.gpu_time(on_gpu));
            self.time(chunks, on_gpu)
        }

        /// Returns the time of many requests over that of as many at best.
        fn excess(&self, rates: &mut Rates, chunks: u64) -> f64 {
            let all: f64 = (0..REQUESTS).map(|_| self.request(rates, chunks)).sum();
            all / (f64::from(REQUESTS) * self.best(chunks))
        }
    }

    const REQUESTS: u32 = 400;

    const H200: Machine = Machine {
        workers: 16,
        cpu: 650e-6,
        gpu: 8e-3,
        side_by_side: 700,
    };

    fn learnt(machine: &Machine, chunks: u64) -> Rates {
        let mut rates = Rates::new(PRIOR);
        for _ in 0..50 {
            machine.request(&mut rates, chunks);
        }
        rates
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
                side_by_side: 60,
                ..H200
            },
        ];
        for (number, machine) in machines.iter().enumerate() {
            for chunks in [8, 16, 32, 64, 256, 1024, 20_000] {
                let mut rates = learnt(machine, chunks);
                let excess = machine.excess(&mut rates, chunks);
                assert!(excess < 1.03, "machine {number}, {chunks} chunks: {excess}");
            }
        }
    }

    #[test]
    fn requests_of_changing_sizes_are_divided_as_well() {
        let sizes = [8, 300, 64, 1500, 256];
        let mut rates = Rates::new(PRIOR);
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
    fn a_machine_that_becomes_busy_is_learnt() {
        let busy = Machine {
            cpu: 2.6e-3,
            ..H200
        };
        let mut rates = learnt(&H200, 256);
        for _ in 0..20 {
            busy.request(&mut rates, 256);
        }
        assert!(busy.excess(&mut rates, 256) < 1.03);
        for _ in 0..20 {
            H200.request(&mut rates, 256);
        }
        assert!(H200.excess(&mut rates, 256) < 1.03);
    }

    #[test]
    fn a_gpu_that_became_faster_is_found_by_trials_of_little_cost() {
        let slow = Machine { gpu: 60e-3, ..H200 };
        let mut rates = learnt(&slow, 256);
        assert!(slow.excess(&mut rates, 256) < 1.03);
        for _ in 0..1000 {
            H200.request(&mut rates, 256);
        }
        assert!(H200.excess(&mut rates, 256) < 1.03);
    }

    #[test]
    fn workers_that_became_faster_are_found_as_well() {
        let slow = Machine { cpu: 50e-3, ..H200 };
        let mut rates = learnt(&slow, 64);
        for _ in 0..1000 {
            H200.request(&mut rates, 64);
        }
        assert!(H200.excess(&mut rates, 64) < 1.03);
    }

    #[test]
    fn one_slow_batch_does_not_keep_the_gpu_from_work() {
        let mut rates = Rates::new(PRIOR);
        rates.gpu_did(64, CHUNK, 1.0);
        for _ in 0..200 {
            H200.request(&mut rates, 256);
        }
        assert!(H200.excess(&mut rates, 256) < 1.03);
    }

    #[test]
    fn one_slow_chunk_does_not_keep_the_workers_from_work() {
        let mut rates = Rates::new(PRIOR);
        rates.cpu_did(CHUNK, 1.0);
        let few = Remaining {
            chunks: 64,
            chunk: CHUNK,
            workers: 16,
            on_gpu: 0,
            since: 0.0,
        };
        let trial = rates.share_of_gpu(&few);
        assert!(trial < 64);
        assert_eq!(rates.share_of_gpu(&few), 0);
    }

    #[test]
    fn the_gpu_gets_no_more_while_what_it_has_takes_as_long_as_the_rest() {
        let mut rates = learnt(&H200, 1024);
        let mut rest = Remaining {
            chunks: 1024,
            chunk: CHUNK,
            workers: 16,
            on_gpu: 0,
            since: 0.0,
        };
        let share = rates.share_of_gpu(&rest);
        assert!(share > 500);
        rest.chunks -= share;
        rest.on_gpu = share;
        assert!(rates.share_of_gpu(&rest) <= share / 20);
    }

    #[test]
    fn before_anything_is_measured_few_large_chunks_are_for_the_workers() {
        let mut rates = Rates::new(PRIOR);
        let large = Remaining {
            chunks: 128,
            chunk: 4 << 20,
            workers: 16,
            on_gpu: 0,
            since: 0.0,
        };
        assert_eq!(rates.share_of_gpu(&large), 0);
        let many = Remaining {
            chunks: 1 << 15,
            chunk: 64 << 10,
            ..large
        };
        assert!(rates.share_of_gpu(&many) > 20_000);
    }
}
