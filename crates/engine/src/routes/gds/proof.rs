//! Determines the path that bytes took, from cuFile's statistics.

use std::sync::Mutex;

use penstock_sys::cufile::CuFile;

use crate::cufile::{Driver, Mode};
use crate::file::File;
use crate::file::position::Operation;
use crate::report::Path;
use crate::sync::Recover;

/// The operations that cuFile has counted since it opened, by path, on all GPUs.
#[derive(Clone, Copy, Debug, Default)]
struct OperationCounts {
    p2p: u64,
    nvfs: u64,
    posix: u64,
}

/// Watches the counters around the calls of one lane.
///
/// The counters are those of the whole process, so they include calls of other lanes. The result is
/// correct all the same: if all calls took one path, so did this lane's; if the paths differ, none
/// is reported.
pub(super) struct Witness {
    cufile: &'static CuFile,
    operation: Operation,
    before: Option<OperationCounts>,
}

impl Witness {
    pub(crate) fn new(driver: &Driver, operation: Operation) -> Witness {
        Witness {
            cufile: driver.cufile,
            operation,
            before: OperationCounts::now(driver.cufile, operation),
        }
    }

    /// The path of the `calls` that this lane has made since this was called last.
    pub(crate) fn path_of_last(&mut self, calls: u64) -> Path {
        let now = OperationCounts::now(self.cufile, self.operation);
        let before = std::mem::replace(&mut self.before, now);
        match (before, now) {
            (Some(before), Some(now)) => now.path_since(before, calls),
            _ => Path::GdsUnproven,
        }
    }
}

impl OperationCounts {
    /// The present counts; `None` if this cuFile keeps no such statistics.
    fn now(cufile: &CuFile, operation: Operation) -> Option<OperationCounts> {
        let stats = cufile.stats_level3().ok()??;
        let mut counts = OperationCounts::default();
        for gpu in stats.gpus() {
            let (p2p, nvfs, posix) = match operation {
                Operation::Read => (gpu.n_p2p_reads, gpu.n_nvfs_reads, gpu.n_posix_reads),
                Operation::Write => (gpu.n_p2p_writes, gpu.n_nvfs_writes, gpu.n_posix_writes),
            };
            counts.p2p += p2p;
            counts.nvfs += nvfs;
            counts.posix += posix;
        }
        Some(counts)
    }

    fn path_since(self, before: OperationCounts, calls: u64) -> Path {
        // OperationCounts decrease if another part of the process resets the statistics.
        let grown = |now: u64, before: u64| now.checked_sub(before);
        let ways = (
            grown(self.p2p, before.p2p),
            grown(self.nvfs, before.nvfs),
            grown(self.posix, before.posix),
        );
        let calls = calls.max(1);
        match ways {
            (Some(n), Some(0), Some(0)) if n >= calls => Path::GdsP2p,
            (Some(0), Some(n), Some(0)) if n >= calls => Path::GdsNvfs,
            (Some(0), Some(0), Some(n)) if n >= calls => Path::GdsPosix,
            _ => Path::GdsUnproven,
        }
    }
}

/// Devices of file systems, and whether bytes of them went straight to the GPU.
static PROVEN: Mutex<Vec<(libc::dev_t, bool)>> = Mutex::new(Vec::new());

/// Stores what a direct transfer has proven about its file system.
pub(super) fn remember(driver: &Driver, file: &File, path: Path) {
    let straight = match path {
        Path::GdsP2p | Path::GdsNvfs => true,
        Path::GdsPosix => false,
        _ => return,
    };
    if driver.mode == Mode::Compat {
        return;
    }
    let Ok(stat) = file.stat() else { return };
    let mut proven = PROVEN.lock().recover();
    match proven.iter_mut().find(|(device, _)| *device == stat.st_dev) {
        // Within one file system, some files may qualify while inline or compressed ones do not.
        Some((_, known)) => *known |= straight,
        None => proven.push((stat.st_dev, straight)),
    }
}

/// Whether cuFile may move bytes of this file straight to the GPU, as far as earlier transfers have
/// shown.
pub(super) fn may_go_straight(driver: &Driver, file: &File) -> bool {
    if driver.mode == Mode::Compat || file.direct_fd().is_none() {
        return false;
    }
    let Ok(stat) = file.stat() else { return false };
    let proven = PROVEN.lock().recover();
    let known = proven.iter().find(|(device, _)| *device == stat.st_dev);
    known.is_none_or(|(_, straight)| *straight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(p2p: u64, nvfs: u64, posix: u64) -> OperationCounts {
        OperationCounts { p2p, nvfs, posix }
    }

    #[test]
    fn calls_that_took_one_path_alone_prove_it() {
        let before = counts(5, 6, 7);
        assert_eq!(counts(8, 6, 7).path_since(before, 3), Path::GdsP2p);
        assert_eq!(counts(5, 9, 7).path_since(before, 3), Path::GdsNvfs);
        assert_eq!(counts(5, 6, 99).path_since(before, 3), Path::GdsPosix);
    }

    #[test]
    fn mixed_missing_or_reset_counts_prove_nothing() {
        let before = counts(5, 6, 7);
        for now in [
            counts(6, 7, 7),
            counts(5, 6, 7),
            counts(6, 6, 7),
            counts(0, 0, 0),
        ] {
            assert_eq!(now.path_since(before, 2), Path::GdsUnproven, "{now:?}");
        }
        assert_eq!(before.path_since(before, 0), Path::GdsUnproven);
    }
}
