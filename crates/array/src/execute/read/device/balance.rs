//! The rates of decoding that this process has measured, by device, filters and size of chunks.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

use penstock_engine::Recover;

use super::gpu_filters::GpuFilters;
use super::rates::{Rates, Remaining};

/// A kind of chunks of deflate that take about the same time to decode. A device has some hundred
/// kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    device: i32,
    is_shuffled: bool,
    is_checked: bool,
    /// Binary logarithm of the decoded size.
    size: u32,
}

static RATES: LazyLock<Mutex<HashMap<Kind, Arc<Mutex<Rates>>>>> = LazyLock::new(Mutex::default);

/// Smallest and largest binary logarithm of a size; sizes beyond count as these.
const SIZES: (u32, u32) = (10, 31);

/// The rates for one plan.
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
    pub(super) fn new(device: i32, filters: &GpuFilters, chunk: u64, workers: usize) -> Balance {
        let kind = Kind {
            device,
            is_shuffled: filters.is_shuffled,
            is_checked: filters.fletcher.is_some(),
            size: chunk.max(1).ilog2().clamp(SIZES.0, SIZES.1),
        };
        let mut all = RATES.lock().recover();
        let rates = all
            .entry(kind)
            .or_insert_with(|| Arc::new(Mutex::new(Rates::new(chunk))));
        Balance {
            rates: Arc::clone(rates),
            workers: workers as u64,
        }
    }

    pub(super) fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().recover()
    }

    /// Returns how many of `chunks` chunks, each of `chunk` decoded bytes, the GPU should decode.
    pub(super) fn share(&self, chunks: u64, chunk: u64, busy: Option<&Busy>) -> u64 {
        self.rates().share_of_gpu(&Remaining {
            chunks,
            chunk,
            workers: self.workers,
            on_gpu: busy.map_or(0, |busy| busy.chunks),
            since: busy.map(|busy| busy.since.elapsed()).unwrap_or_default(),
        })
    }
}
