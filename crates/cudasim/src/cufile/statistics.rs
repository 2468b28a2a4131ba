//! Counters of the process and, by path, of each GPU.
//!
//! They count from `cuFileStatsStart` until cuFile is closed, if the level is the highest, 3.

use std::sync::Mutex;

use penstock_sys::cufile::stats::*;
use penstock_sys::cufile::*;

use super::session::{self, Mode};
use super::{Failure, Result};
use crate::device;

#[derive(Default)]
struct Statistics {
    level: i32,
    is_started: bool,
    counted: CUfileStatsLevel3,
}

static STATISTICS: Mutex<Option<Statistics>> = Mutex::new(None);

/// One finished transfer.
pub struct Moved {
    pub write: bool,
    /// The GPU of the memory; `None` for host memory.
    pub device: Option<usize>,
    pub path: Mode,
    pub aligned: bool,
    /// `None` if it failed.
    pub bytes: Option<usize>,
}

/// Selects a counter of successes and failures from level 1.
pub type Counter = fn(&mut CUfileStatsLevel1) -> &mut CUfileOpCounter;

fn with<T>(touch: impl FnOnce(&mut Statistics) -> T) -> T {
    let mut statistics = STATISTICS.lock().unwrap();
    touch(statistics.get_or_insert_default())
}

fn counting(touch: impl FnOnce(&mut CUfileStatsLevel3)) {
    with(|statistics| {
        if statistics.is_started && statistics.level == 3 {
            touch(&mut statistics.counted);
        }
    });
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
    with(|statistics| statistics.is_started = true);
    Ok(())
}

/// Stops counting and sets all counters to zero.
pub fn clear() {
    with(|statistics| {
        statistics.is_started = false;
        statistics.counted = CUfileStatsLevel3::default();
    });
}

/// The counters. Fails unless the level is 3.
pub fn get() -> Result<CUfileStatsLevel3> {
    session::mode()?;
    let gpus = device::count()?;
    with(|statistics| {
        if statistics.level < 3 {
            return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
        }
        let mut found = statistics.counted;
        found.num_gpus = gpus.min(CUFILE_MAX_GPUS) as u32;
        for (ordinal, gpu) in found.per_gpu_stats.iter_mut().take(gpus).enumerate() {
            gpu.uuid = [ordinal as u8 + 1; CUFILE_GPU_UUID_LEN];
        }
        Ok(found)
    })
}

/// Counts the success or failure of a call.
pub fn count(counter: Counter, worked: bool) {
    counting(|counted| count_call(counter(&mut counted.detailed.basic), worked));
}

pub fn count_registration(device: Option<usize>, bytes: usize, worked: bool) {
    count(|basic| &mut basic.buf_register_ops, worked);
    counting(|counted| {
        if let Some(gpu) = of_gpu(counted, device) {
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
    counting(|counted| {
        if let Some(gpu) = of_gpu(counted, device) {
            gpu.n_mmap_free += 1;
            gpu.reg_bytes = gpu.reg_bytes.saturating_sub(bytes as u64);
        }
    });
}

pub fn count_transfer(moved: &Moved) {
    let bytes = moved.bytes.unwrap_or(0) as u64;
    counting(|counted| {
        let basic = &mut counted.detailed.basic;
        let (operations, total) = if moved.write {
            (&mut basic.write_ops, &mut basic.write_bytes)
        } else {
            (&mut basic.read_ops, &mut basic.read_bytes)
        };
        count_call(operations, moved.bytes.is_some());
        *total += bytes;
        if let Some(gpu) = of_gpu(counted, moved.device) {
            if moved.write {
                count_write(gpu, moved, bytes);
            } else {
                count_read(gpu, moved, bytes);
            }
        }
    });
}

fn of_gpu(
    counted: &mut CUfileStatsLevel3,
    device: Option<usize>,
) -> Option<&mut CUfilePerGpuStats> {
    counted.per_gpu_stats.get_mut(device?)
}

fn count_call(counter: &mut CUfileOpCounter, worked: bool) {
    *(if worked {
        &mut counter.ok
    } else {
        &mut counter.err
    }) += 1;
}

fn count_read(gpu: &mut CUfilePerGpuStats, moved: &Moved, bytes: u64) {
    gpu.n_total_reads += 1;
    gpu.read_bytes += bytes;
    gpu.n_reads_err += u64::from(moved.bytes.is_none());
    gpu.n_unaligned_reads += u64::from(!moved.aligned);
    *(match moved.path {
        Mode::PeerToPeer => &mut gpu.n_p2p_reads,
        Mode::NvidiaFs => &mut gpu.n_nvfs_reads,
        Mode::Posix => &mut gpu.n_posix_reads,
    }) += 1;
}

fn count_write(gpu: &mut CUfilePerGpuStats, moved: &Moved, bytes: u64) {
    gpu.n_total_writes += 1;
    gpu.writes_bytes += bytes;
    gpu.n_writes_err += u64::from(moved.bytes.is_none());
    gpu.n_unaligned_writes += u64::from(!moved.aligned);
    *(match moved.path {
        Mode::PeerToPeer => &mut gpu.n_p2p_writes,
        Mode::NvidiaFs => &mut gpu.n_nvfs_writes,
        Mode::Posix => &mut gpu.n_posix_writes,
    }) += 1;
}
