//! Divides decoding between GPU and CPU so that both finish at the same time.
//!
//! One warp decodes one chunk, so the GPU takes the same time for few chunks as for one; it reaches
//! its full rate only with enough chunks at a time. The rates are those measured in this process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use penstock_codec::gpu::nvcomp::Method;

/// Decoded bytes per second.
struct Rates {
    /// Rate of one worker, from the file to a slot.
    cpu: AtomicU64,
    /// Rate of the GPU with one chunk, and with as many as it can hold.
    gpu_single: AtomicU64,
    gpu_all: AtomicU64,
}

const MB: u64 = 1_000_000;

/// Initial values until the first measurement: those of an H200 and of one core of its host.
static DEFLATE: Rates = Rates::new(400 * MB, 22 * MB, 30_000 * MB);
static LZ4: Rates = Rates::new(1500 * MB, 60 * MB, 60_000 * MB);
static ZSTD: Rates = Rates::new(900 * MB, 20 * MB, 25_000 * MB);

impl Rates {
    const fn new(cpu: u64, gpu_single: u64, gpu_all: u64) -> Rates {
        Rates {
            cpu: AtomicU64::new(cpu),
            gpu_single: AtomicU64::new(gpu_single),
            gpu_all: AtomicU64::new(gpu_all),
        }
    }

    fn of(method: Method) -> &'static Rates {
        match method {
            Method::Deflate => &DEFLATE,
            Method::Lz4 => &LZ4,
            Method::Zstd => &ZSTD,
        }
    }
}

/// Updates a rate: a new measurement has a weight of one quarter.
fn learn(rate: &AtomicU64, bytes: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    if bytes == 0 || seconds <= 0.0 {
        return;
    }
    let seen = bytes as f64 / seconds;
    let known = rate.load(Relaxed) as f64;
    rate.store((known * 0.75 + seen * 0.25).max(1.0) as u64, Relaxed);
}

pub(super) struct Balance {
    method: Option<Method>,
    workers: u64,
}

/// Smallest number of chunks that is worth a batch.
const LEAST: u64 = 16;

impl Balance {
    pub(super) fn new(method: Option<Method>, workers: usize) -> Balance {
        Balance {
            method,
            workers: workers as u64,
        }
    }

    /// Records that one worker has decoded this many bytes.
    pub(super) fn cpu_did(&self, bytes: u64, time: Duration) {
        if let Some(method) = self.method {
            learn(&Rates::of(method).cpu, bytes, time);
        }
    }

    /// Records that the GPU has decoded a batch of chunks.
    pub(super) fn gpu_did(&self, chunks: u64, chunk: u64, time: Duration) {
        let Some(method) = self.method else { return };
        let rates = Rates::of(method);
        if chunks * rates.gpu_single.load(Relaxed) < rates.gpu_all.load(Relaxed) {
            learn(&rates.gpu_single, chunk, time);
        } else {
            learn(&rates.gpu_all, chunks * chunk, time);
        }
    }

    /// Returns how many chunks at a time the GPU needs to reach its full rate.
    pub(super) fn saturation(&self) -> u64 {
        self.method.map_or(0, |method| {
            let rates = Rates::of(method);
            rates.gpu_all.load(Relaxed) / rates.gpu_single.load(Relaxed).max(1)
        })
    }

    /// Returns how many of `chunks` chunks, each of `chunk` decoded bytes, the GPU should decode.
    pub(super) fn share(&self, chunks: u64, chunk: u64) -> u64 {
        let Some(method) = self.method else { return 0 };
        let rates = Rates::of(method);
        let rate = |rate: &AtomicU64| rate.load(Relaxed) as f64;
        let (single, all) = (rate(&rates.gpu_single), rate(&rates.gpu_all));
        let cpu = rate(&rates.cpu) * self.workers as f64;
        share_of(chunks as f64, chunk as f64, cpu, single, all) as u64
    }
}

/// Returns the largest share with which the GPU finishes no later than the CPU with the rest.
fn share_of(chunks: f64, chunk: f64, cpu: f64, single: f64, all: f64) -> f64 {
    let by_rate = chunks * all / (all + cpu);
    let is_slow_enough = by_rate * chunk / all >= chunk / single;
    let share = if is_slow_enough {
        by_rate
    } else {
        (chunks - cpu / single).min(all / single)
    };
    if share < LEAST as f64 {
        0.0
    } else {
        share.floor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    fn share(chunks: f64, chunk: f64) -> f64 {
        share_of(chunks, chunk, 5.6e9, 8e6, 12e9)
    }

    #[test]
    fn with_thousands_of_chunks_each_side_gets_what_its_rate_says() {
        let share = share(32768.0, 65536.0);
        assert_eq!(share, (32768.0_f64 * 12.0 / 17.6).floor());
    }

    #[test]
    fn with_few_large_chunks_the_cpu_does_it_alone() {
        assert_eq!(share(128.0, 4.0 * MIB), 0.0);
    }

    #[test]
    fn in_between_the_cpu_has_enough_to_last_as_long_as_one_chunk_on_the_gpu() {
        let got = share(2048.0, MIB);
        assert_eq!(got, 2048.0 - 700.0);
        let (gpu, cpu) = (MIB / 8e6, 700.0 * MIB / 5.6e9);
        assert!((gpu - cpu).abs() < 1e-3);
    }
}
