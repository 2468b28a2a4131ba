//! The resources that the GPUs of a host share: the last-level cache and the memory behind it.
//!
//! A staged read writes a slot, which the GPU then reads. While all slots stay in the last-level
//! cache, memory carries only the reads of the page cache. Otherwise it carries each byte three
//! times. With one GPU, memory has room for that; with two, it does not (docs/decisions/0011).

mod cache;
mod reading;

use std::sync::OnceLock;

use crate::gpu::Driver;
pub(crate) use reading::Mark;

/// The share of the last-level cache that the slots of all GPUs may take that are read at the moment;
/// the rest is for the bytes that are read into them.
const SHARE: (u64, u64) = (2, 5);
/// Workers for a GPU, if there are cores for them. More workers copy no faster, and on a host of
/// several GPUs they slow each other down.
const LEAST_THREADS: usize = 8;
const MOST_THREADS: usize = 12;
/// Larger blocks leave the caches before the GPU has read them. Smaller ones take more calls, which
/// pays only where several GPUs share the cache.
const MOST_BLOCK: u64 = 4 << 20;
const LEAST_BLOCK: u64 = 1 << 20;
const BLOCK_STEP: u64 = 512 << 10;
/// The block of several GPUs that share a cache of unknown size.
const UNKNOWN_BLOCK: u64 = 2 << 20;

/// The number of GPUs of the host: those on its buses, even if this process sees fewer, or else
/// those of the driver.
pub(crate) fn gpus_of_host(driver: &Driver) -> usize {
    static ON_BUSES: OnceLock<usize> = OnceLock::new();
    let on_buses = *ON_BUSES.get_or_init(|| count_gpus("/sys/bus/pci/devices".as_ref()));
    on_buses.max(driver.device_count().map_or(0, |n| n.max(0) as usize))
}

/// The number of NVIDIA's display controllers and accelerators.
fn count_gpus(devices: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(devices) else {
        return 0;
    };
    let says = |path: std::path::PathBuf, start: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.starts_with(start))
    };
    entries
        .flatten()
        .filter(|entry| {
            let path = entry.path();
            says(path.join("vendor"), "0x10de") && says(path.join("class"), "0x03")
        })
        .count()
}

/// The workers and blocks of a staged read from the page cache, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    /// The most workers.
    pub threads: usize,
    /// The largest block in bytes.
    pub block: u64,
}

/// The known properties of the host.
#[derive(Clone, Copy, Debug)]
struct Host {
    gpus: usize,
    /// GPUs into which large reads go at the moment.
    read: usize,
    cores: usize,
    /// Bytes of the last-level caches.
    cache: Option<u64>,
}

impl Staging {
    /// The choice for a read from the page cache into the memory of a GPU, with this number of
    /// slots a worker. A large read has marked its GPU.
    pub(crate) fn of(driver: &Driver, slots: u32, cores: usize, is_large: bool) -> Staging {
        static CACHE: OnceLock<Option<u64>> = OnceLock::new();
        let host = Host {
            gpus: gpus_of_host(driver).max(1),
            read: if is_large {
                reading::gpus_read_now()
            } else {
                1
            },
            cores,
            cache: *CACHE.get_or_init(cache::last_level),
        };
        host.staging(slots)
    }
}

impl Host {
    fn staging(&self, slots: u32) -> Staging {
        let share = match self.gpus {
            // The program needs some cores for its own work, too.
            1 => self.cores / 4 * 3,
            gpus => self.cores / gpus,
        };
        let threads = share.clamp(LEAST_THREADS, MOST_THREADS);
        let slots = (self.read * threads) as u64 * u64::from(slots.max(1));
        let block = match self.cache {
            _ if self.read == 1 => MOST_BLOCK,
            None => UNKNOWN_BLOCK,
            Some(bytes) => {
                let room = bytes / SHARE.1 * SHARE.0 / slots;
                (room / BLOCK_STEP * BLOCK_STEP).clamp(LEAST_BLOCK, MOST_BLOCK)
            }
        };
        Staging { threads, block }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn host(gpus: usize, read: usize, cores: usize, cache_mib: u64) -> Host {
        Host {
            gpus,
            read,
            cores,
            cache: (cache_mib > 0).then_some(cache_mib << 20),
        }
    }

    #[test]
    fn one_gpu_has_three_quarters_of_the_cores_at_most() {
        let of_cores = |cores| host(1, 1, cores, 300).staging(2).threads;
        assert_eq!([4, 12, 16, 32].map(of_cores), [8, 9, 12, 12]);
    }

    #[test]
    fn slots_of_all_gpus_that_are_read_take_a_share_of_the_cache() {
        let kib = |read, cache| host(8, read, 128, cache).staging(2).block >> 10;
        let of_cache = |cache| [1, 2, 4, 8].map(|read| kib(read, cache));
        assert_eq!(of_cache(300), [4096, 2560, 1024, 1024]);
        assert_eq!(of_cache(1200), [4096, 4096, 4096, 2560]);
        assert_eq!(of_cache(16), [4096, 1024, 1024, 1024]);
        assert_eq!(of_cache(0), [4096, 2048, 2048, 2048]);
    }

    #[test]
    fn more_slots_per_worker_are_smaller() {
        assert_eq!(host(2, 2, 32, 300).staging(4).block, 1 << 20);
    }

    #[test]
    fn the_workers_of_all_gpus_have_cores_but_none_has_fewer_than_eight() {
        assert_eq!(host(8, 8, 128, 600).staging(2).threads, 12);
        assert_eq!(host(8, 8, 72, 600).staging(2).threads, 9);
        assert_eq!(host(2, 2, 8, 300).staging(2).threads, 8);
    }

    #[test]
    fn gpus_are_counted_on_the_bus() {
        let folder = tempfile::tempdir().unwrap();
        for (name, vendor, class) in [
            ("0000:01:00.0", "0x10de", "0x030200"),
            ("0000:02:00.0", "0x10de", "0x030000"),
            ("0000:03:00.0", "0x10de", "0x068000"),
            ("0000:04:00.0", "0x8086", "0x030000"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(path.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(count_gpus(folder.path()), 2);
        assert_eq!(count_gpus(&folder.path().join("absent")), 0);
    }
}
