//! Counters of the process and, by path, of each GPU.
//!
//! They count between `cuFileStatsStart` and `cuFileStatsStop`, according to the level.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_sys::cufile::stats::*;
use penstock_sys::cufile::*;

use super::session::{self, Mode};
use super::{Failure, Result};
use crate::device;

struct Statistics {
    level: i32,
    since: Option<Instant>,
    counted: CUfileStatsLevel3,
}

static STATISTICS: Mutex<Option<Statistics>> = Mutex::new(None);

/// One finished transfer.
pub struct Moved {
    pub write: bool,
    pub vectored: bool,
    /// The GPU of the memory; `None` for host memory.
    pub device: Option<usize>,
    pub path: Mode,
    pub aligned: bool,
    /// `None` if it failed.
    pub bytes: Option<usize>,
    pub time: Duration,
}

/// Selects a counter of successes and failures from level 1.
pub type Counter = fn(&mut CUfileStatsLevel1) -> &mut CUfileOpCounter;

fn with<T>(touch: impl FnOnce(&mut Statistics) -> T) -> T {
    let mut statistics = STATISTICS.lock().unwrap();
    touch(statistics.get_or_insert_with(|| Statistics {
        level: 0,
        since: None,
        counted: CUfileStatsLevel3::default(),
    }))
}

fn counting(touch: impl FnOnce(&mut CUfileStatsLevel3, i32)) {
    with(|statistics| {
        if statistics.since.is_some() && statistics.level > 0 {
            touch(&mut statistics.counted, statistics.level);
        }
    });
}

pub fn level() -> i32 {
    with(|statistics| statistics.level)
}

pub fn set_level(level: i32) -> Result {
    if !(0..=3).contains(&level) {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    with(|statistics| statistics.level = level);
    Ok(())
}

pub fn start() -> Result {
    session::mode()?;
    with(|statistics| _ = statistics.since.get_or_insert_with(Instant::now));
    Ok(())
}

pub fn stop() -> Result {
    session::mode()?;
    with(|statistics| statistics.since = None);
    Ok(())
}

pub fn reset() -> Result {
    session::mode()?;
    with(|statistics| {
        statistics.counted = CUfileStatsLevel3::default();
        statistics.since = statistics.since.map(|_| Instant::now());
    });
    Ok(())
}

/// The counters. Fails if the current level is below `level`.
pub fn get(level: i32) -> Result<CUfileStatsLevel3> {
    session::mode()?;
    let gpus = device::count()?;
    with(|statistics| {
        if statistics.level < level {
            return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
        }
        let mut found = statistics.counted;
        let seconds = statistics
            .since
            .map_or(0.0, |since| since.elapsed().as_secs_f64());
        found.detailed.basic.derive_rates(seconds);
        found.num_gpus = gpus.min(CUFILE_MAX_GPUS) as u32;
        for (ordinal, gpu) in found.per_gpu_stats.iter_mut().take(gpus).enumerate() {
            gpu.uuid = [ordinal as u8 + 1; CUFILE_GPU_UUID_LEN];
        }
        Ok(found)
    })
}

/// Counts the success or failure of a call.
pub fn count(counter: Counter, worked: bool) {
    counting(|counted, _| counter(&mut counted.detailed.basic).count(worked));
}

pub fn count_registration(device: Option<usize>, bytes: usize, worked: bool) {
    count(|basic| &mut basic.buf_register_ops, worked);
    counting(|counted, level| {
        if let Some(gpu) = of_gpu(counted, level, device) {
            gpu.n_mmap += 1;
            *(if worked {
                &mut gpu.n_mmap_ok
            } else {
                &mut gpu.n_mmap_err
            }) += 1;
            gpu.reg_bytes += if worked { bytes as u64 } else { 0 };
        }
    });
}

pub fn count_deregistration(device: Option<usize>, bytes: usize) {
    count(|basic| &mut basic.buf_deregister_ops, true);
    counting(|counted, level| {
        if let Some(gpu) = of_gpu(counted, level, device) {
            gpu.n_mmap_free += 1;
            gpu.reg_bytes = gpu.reg_bytes.saturating_sub(bytes as u64);
        }
    });
}

pub fn count_transfer(moved: &Moved) {
    let bytes = moved.bytes.unwrap_or(0) as u64;
    let micros = moved.time.as_micros() as u64;
    counting(|counted, level| {
        let basic = &mut counted.detailed.basic;
        let (operations, total, latency) = match (moved.write, moved.vectored) {
            (false, false) => (
                &mut basic.read_ops,
                &mut basic.read_bytes,
                &mut basic.read_lat_sum_us,
            ),
            (true, false) => (
                &mut basic.write_ops,
                &mut basic.write_bytes,
                &mut basic.write_lat_sum_us,
            ),
            (false, true) => (
                &mut basic.readv_ops,
                &mut basic.readv_bytes,
                &mut basic.readv_lat_sum_us,
            ),
            (true, true) => (
                &mut basic.writev_ops,
                &mut basic.writev_bytes,
                &mut basic.writev_lat_sum_us,
            ),
        };
        operations.count(moved.bytes.is_some());
        *total += bytes;
        *latency += micros;
        if level >= 2 {
            let detailed = &mut counted.detailed;
            let sizes = match moved.write {
                false => &mut detailed.read_size_kb_hist,
                true => &mut detailed.write_size_kb_hist,
            };
            let kilobytes = (bytes >> 10).max(1);
            sizes[(kilobytes.ilog2() as usize).min(sizes.len() - 1)] += 1;
        }
        if let Some(gpu) = of_gpu(counted, level, moved.device) {
            if moved.write {
                gpu.count_write(moved, bytes)
            } else {
                gpu.count_read(moved, bytes)
            }
        }
    });
}

fn of_gpu(
    counted: &mut CUfileStatsLevel3,
    level: i32,
    device: Option<usize>,
) -> Option<&mut CUfilePerGpuStats> {
    if level < 3 {
        None
    } else {
        counted.per_gpu_stats.get_mut(device?)
    }
}

trait Count {
    fn count(&mut self, worked: bool);
}

impl Count for CUfileOpCounter {
    fn count(&mut self, worked: bool) {
        *(if worked { &mut self.ok } else { &mut self.err }) += 1;
    }
}

trait CountTransfers {
    fn count_read(&mut self, moved: &Moved, bytes: u64);
    fn count_write(&mut self, moved: &Moved, bytes: u64);
}

impl CountTransfers for CUfilePerGpuStats {
    fn count_read(&mut self, moved: &Moved, bytes: u64) {
        self.n_total_reads += 1;
        self.read_bytes += bytes;
        self.read_duration_us += moved.time.as_micros() as u64;
        self.n_reads_err += u64::from(moved.bytes.is_none());
        self.n_unaligned_reads += u64::from(!moved.aligned);
        *(match moved.path {
            Mode::PeerToPeer => &mut self.n_p2p_reads,
            Mode::NvidiaFs => &mut self.n_nvfs_reads,
            Mode::Posix => &mut self.n_posix_reads,
        }) += 1;
    }

    fn count_write(&mut self, moved: &Moved, bytes: u64) {
        self.n_total_writes += 1;
        self.writes_bytes += bytes;
        self.write_duration_us += moved.time.as_micros() as u64;
        self.n_writes_err += u64::from(moved.bytes.is_none());
        self.n_unaligned_writes += u64::from(!moved.aligned);
        *(match moved.path {
            Mode::PeerToPeer => &mut self.n_p2p_writes,
            Mode::NvidiaFs => &mut self.n_nvfs_writes,
            Mode::Posix => &mut self.n_posix_writes,
        }) += 1;
    }
}

trait Rates {
    fn derive_rates(&mut self, seconds: f64);
}

impl Rates for CUfileStatsLevel1 {
    fn derive_rates(&mut self, seconds: f64) {
        let rate = |count: u64| {
            if seconds > 0.0 {
                (count as f64 / seconds) as u64
            } else {
                0
            }
        };
        let average = |sum: u64, operations: CUfileOpCounter| {
            sum.checked_div(operations.ok + operations.err).unwrap_or(0)
        };
        self.read_bw_bytes_per_sec = rate(self.read_bytes);
        self.write_bw_bytes_per_sec = rate(self.write_bytes);
        self.read_ops_per_sec = rate(self.read_ops.ok);
        self.write_ops_per_sec = rate(self.write_ops.ok);
        self.read_lat_avg_us = average(self.read_lat_sum_us, self.read_ops);
        self.write_lat_avg_us = average(self.write_lat_sum_us, self.write_ops);
        self.readv_bw_bytes_per_sec = rate(self.readv_bytes);
        self.writev_bw_bytes_per_sec = rate(self.writev_bytes);
        self.readv_ops_per_sec = rate(self.readv_ops.ok);
        self.writev_ops_per_sec = rate(self.writev_ops.ok);
        self.readv_lat_avg_us = average(self.readv_lat_sum_us, self.readv_ops);
        self.writev_lat_avg_us = average(self.writev_lat_sum_us, self.writev_ops);
    }
}
