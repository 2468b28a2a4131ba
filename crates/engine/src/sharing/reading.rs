//! The GPUs of the host into which large reads go at the moment, by any process of this user.
//!
//! A read marks its GPU at its beginning and while it runs: it sets the time of a file of the GPU in
//! shared memory. A GPU is read now if its mark is younger than [`RECENT`]. Marks need no cleaning up,
//! however a process ends. Processes whose shared memory is not the same, such as containers, do not
//! see each other's marks.

use std::fs::{DirBuilder, File, FileTimes, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crate::gpu::Context;
use crate::sync::Recover;

/// Reads of a loop follow each other sooner.
const RECENT: Duration = Duration::from_secs(1);
/// How often a read that goes on renews its mark.
const RENEWED: Duration = Duration::from_millis(250);

/// The mark of one GPU.
#[derive(Debug)]
pub(crate) struct Mark {
    device: i32,
    /// `None` if this process cannot use the shared memory. Then only this process sees the mark.
    file: Option<File>,
    /// Milliseconds of this process at which it was last set.
    set: AtomicU64,
}

/// The marks that this process sets.
static OWN: Mutex<Vec<Arc<Mark>>> = Mutex::new(Vec::new());

/// Milliseconds since the first call, and some more, so that zero is long ago.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    (start.elapsed() + 2 * RECENT).as_millis() as u64
}

/// The folder of the marks of this user's processes.
fn folder() -> Option<PathBuf> {
    // SAFETY: the call has no arguments and always succeeds.
    let user = unsafe { libc::geteuid() };
    let folder = PathBuf::from(format!("/dev/shm/penstock-{user}"));
    // An error means that it is there, or that the next check fails.
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    // Anyone may create files in /dev/shm.
    let found = folder.symlink_metadata().ok()?;
    (found.is_dir() && found.uid() == user).then_some(folder)
}

impl Mark {
    /// The mark of the GPU of a context, set now.
    pub(crate) fn set(context: &Context) -> Arc<Mark> {
        let mut own = OWN.lock().recover();
        let known = own.iter().find(|mark| mark.device == context.device);
        let mark = known.cloned().unwrap_or_else(|| {
            let gpu = context.driver.pci_bus_id(context.device);
            let path = folder().zip(gpu);
            let path = path.map(|(folder, gpu)| folder.join(gpu.replace(':', "_")));
            let mark = Arc::new(Mark::new(context.device, path.as_deref()));
            own.push(Arc::clone(&mark));
            mark
        });
        drop(own);
        mark.renew();
        mark
    }

    fn new(device: i32, path: Option<&Path>) -> Mark {
        let open = |path| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.custom_flags(libc::O_NOFOLLOW).open(path)
        };
        Mark {
            device,
            file: path.and_then(|path| open(path).ok()),
            set: AtomicU64::new(0),
        }
    }

    /// Sets the mark again unless it is fresh.
    pub(crate) fn renew(&self) {
        let now = now();
        if now.saturating_sub(self.set.load(Relaxed)) < RENEWED.as_millis() as u64 {
            return;
        }
        self.set.store(now, Relaxed);
        if let Some(file) = &self.file {
            // Without it, other processes read as if this one did not.
            let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        }
    }

    fn is_recent(&self) -> bool {
        // Another thread may set it meanwhile.
        now().saturating_sub(self.set.load(Relaxed)) < RECENT.as_millis() as u64
    }
}

/// The number of GPUs with a recent mark; at least 1, for the caller's own, whose mark a process that
/// was stopped finds old.
pub(crate) fn gpus_read_now() -> usize {
    let marks = OWN.lock().recover();
    let own = marks.iter().filter(|mark| mark.is_recent()).count();
    let is_shared = marks.iter().any(|mark| mark.file.is_some());
    drop(marks);
    let of_all = folder().filter(|_| is_shared);
    of_all.map_or(1, |folder| recent(&folder)).max(own).max(1)
}

/// The number of recent marks in a folder.
fn recent(folder: &Path) -> usize {
    let Ok(marks) = std::fs::read_dir(folder) else {
        return 0;
    };
    let times = marks
        .flatten()
        .filter_map(|mark| mark.metadata().ok()?.modified().ok());
    // A time in the future is that of a clock that was set back.
    let age = |time: SystemTime| time.elapsed().unwrap_or_default();
    times.filter(|time| age(*time) < RECENT).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_of_several_processes_count_while_they_are_recent() {
        let folder = tempfile::tempdir().unwrap();
        let mark = |device: i32, gpu: &str| Mark::new(device, Some(&folder.path().join(gpu)));
        let (first, second) = (mark(0, "0000_01_00.0"), mark(1, "0000_02_00.0"));
        // As another process that sees the first GPU only.
        let again = mark(0, "0000_01_00.0");
        for mark in [&first, &second, &again] {
            mark.renew();
            assert!(mark.is_recent());
        }
        assert_eq!(recent(folder.path()), 2);
        let old = SystemTime::now() - RECENT;
        let file = second.file.as_ref().unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();
        assert_eq!(recent(folder.path()), 1);
    }

    #[test]
    fn a_mark_without_shared_memory_is_seen_by_its_process() {
        let mark = Mark::new(0, Some("/dev/null/no folder".as_ref()));
        assert!(!mark.is_recent());
        mark.renew();
        assert!(mark.is_recent());
    }

    #[test]
    fn a_mark_does_not_follow_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(Mark::new(0, Some(&link)).file.is_none());
    }
}
