//! The rates of decoding that this process has measured, by device, filters and size of chunks, for
//! the plans of a request.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use penstock_codec::gpu::nvcomp::Method;
use penstock_engine::Recover;

use super::rates::{Prior, Rates, Remaining};

/// A kind of chunks that take about the same time to decode. A device has some hundred kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    device: i32,
    method: Method,
    is_shuffled: bool,
    is_checked: bool,
    /// Binary logarithm of the decoded size.
    size: u32,
}

static RATES: LazyLock<Mutex<HashMap<Kind, Arc<Mutex<Rates>>>>> = LazyLock::new(Mutex::default);

/// Smallest and largest binary logarithm of a size; sizes beyond count as these.
const SIZES: (u32, u32) = (10, 31);

/// Returns the rates of an H100 or H200, and of one core of its host.
fn prior(method: Method) -> Prior {
    let (cpu, gpu_single, gpu_all) = match method {
        Method::Deflate => (300e6, 38e6, 35e9),
        Method::Lz4 => (1500e6, 60e6, 40e9),
        Method::Zstd => (900e6, 20e6, 25e9),
    };
    Prior {
        cpu,
        gpu_single,
        gpu_all,
    }
}

/// The rates for one plan.
#[derive(Clone)]
pub(super) struct Balance {
    rates: Arc<Mutex<Rates>>,
    workers: u64,
}

/// The chunks that the GPU has got since it was idle.
#[derive(Clone, Copy)]
pub(super) struct Busy {
    /// Number of the plan; `None` if the chunks are of several plans.
    pub plan: Option<usize>,
    pub chunks: u64,
    pub since: Instant,
}

impl Balance {
    pub(super) fn new(
        device: i32,
        (method, is_shuffled, is_checked): (Method, bool, bool),
        chunk: u64,
        workers: usize,
    ) -> Balance {
        let kind = Kind {
            device,
            method,
            is_shuffled,
            is_checked,
            size: chunk.max(1).ilog2().clamp(SIZES.0, SIZES.1),
        };
        let mut all = RATES.lock().recover();
        let rates = all
            .entry(kind)
            .or_insert_with(|| Arc::new(Mutex::new(Rates::new(prior(method)))));
        Balance {
            rates: Arc::clone(rates),
            workers: workers as u64,
        }
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().recover()
    }

    /// Records that one worker decoded `bytes`.
    pub(super) fn cpu_did(&self, bytes: u64, time: Duration) {
        self.rates().cpu_did(bytes, time.as_secs_f64());
    }

    /// Records that one worker loaded chunks of `bytes` decoded bytes.
    pub(super) fn loaded(&self, bytes: u64, time: Duration) {
        self.rates().loaded(bytes, time.as_secs_f64());
    }

    /// Records that the GPU, idle before, decoded `chunks` chunks of `chunk` bytes.
    pub(super) fn gpu_did(&self, chunks: u64, chunk: u64, time: Duration) {
        self.rates().gpu_did(chunks, chunk, time.as_secs_f64());
    }

    /// Returns about how many chunks the GPU decodes at a time.
    pub(super) fn saturation(&self) -> u64 {
        self.rates().saturation()
    }

    /// Returns how many of `chunks` chunks, each of `chunk` decoded bytes, the GPU should decode.
    pub(super) fn share(&self, chunks: u64, chunk: u64, busy: Option<&Busy>) -> u64 {
        self.rates().share_of_gpu(&Remaining {
            chunks,
            chunk,
            workers: self.workers,
            on_gpu: busy.map_or(0, |busy| busy.chunks),
            since: busy.map_or(0.0, |busy| busy.since.elapsed().as_secs_f64()),
        })
    }
}
