//! Files that stay open between small reads, and the thread that closes them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::threads;

use super::cached_dataset::CachedDataset;
use super::files::{Files, files};
use crate::dataset::FileInfo;
use crate::open_files::{SourceFile, shared, shared_as, with_room};

impl CachedDataset {
    /// Returns the file, without options of its own, for a request. HDF5 has it open, since the
    /// dataset is. Requests that overlap in time share it.
    pub(in crate::transfer) fn file(&self) -> Result<Arc<File>> {
        let identity = self.key.file.identity.unwrap_or_default();
        with_room(close_idle, || {
            shared_as(&self.info.file, identity, Operation::Read)
        })
    }

    /// Returns the file if it is still open for small reads.
    pub(in crate::transfer) fn lingering_file(&self) -> Option<Arc<File>> {
        let mut files = files();
        let file = files.files.get_mut(&self.file)?;
        let open = file.lingers.as_ref().map(Arc::clone)?;
        file.is_in_use = true;
        Some(open)
    }

    /// As [`file`](Self::file), for a small read: the file stays open a little longer, since to open
    /// it takes longer than the read.
    pub(in crate::transfer) fn file_for_small_read(&self) -> Result<Arc<File>> {
        if let Some(open) = self.lingering_file() {
            return Ok(open);
        }
        let open = self.file()?;
        let mut files = files();
        // A duplicate would keep HDF5's lock of the file.
        if !open.is_duplicate()
            && let Some(file) = files.files.get_mut(&self.file)
        {
            file.lingers = Some(Arc::clone(&open));
            file.is_in_use = true;
            if !start_closer(&mut files) {
                // No thread would close them.
                files
                    .files
                    .values_mut()
                    .for_each(|file| file.lingers = None);
            }
        }
        Ok(open)
    }
}

/// A file that HDF5 does not have open, and that stays open while reads follow each other.
#[derive(Default)]
pub(super) struct Lingering(Mutex<Open>);

#[derive(Default)]
struct Open {
    file: Option<Arc<SourceFile>>,
    /// Whether a read has used it since the last search for idle files.
    is_in_use: bool,
}

/// Those that are open. Locked after the other files.
static LINGERING: Mutex<Vec<Arc<Lingering>>> = Mutex::new(Vec::new());

impl Lingering {
    /// Returns the file if it is open.
    pub(super) fn get(&self) -> Option<Arc<SourceFile>> {
        let mut open = self.0.lock().recover();
        open.is_in_use = true;
        open.file.clone()
    }

    /// Lets a file stay open, if a thread closes it later.
    pub(super) fn keep(self: &Arc<Self>, file: &Arc<SourceFile>) {
        let mut files = files();
        if !start_closer(&mut files) {
            return;
        }
        let open = Open {
            file: Some(Arc::clone(file)),
            is_in_use: true,
        };
        let before = std::mem::replace(&mut *self.0.lock().recover(), open);
        if before.file.is_none() {
            LINGERING.lock().recover().push(Arc::clone(self));
        }
    }

    /// Takes the file out, for the caller to close, unless a read has used it since the last call.
    fn take_idle(&self) -> Option<Arc<SourceFile>> {
        let mut open = self.0.lock().recover();
        let is_idle = !std::mem::take(&mut open.is_in_use);
        is_idle.then(|| open.file.take()).flatten()
    }

    fn is_open(&self) -> bool {
        self.0.lock().recover().file.is_some()
    }
}

/// Starts a thread that closes idle files, and ends when no file is open. A file that
/// the program has closed, and may want to delete or to unmount, thus stays open for a moment
/// only. Returns whether the thread runs.
pub(super) fn start_closer(files: &mut Files) -> bool {
    files.has_closer =
        files.has_closer || threads::start("penstock-idle", close_idle_files).is_ok();
    files.has_closer
}

/// Least time for which an idle file stays open.
const LINGER: Duration = Duration::from_millis(50);

/// Returns a file that HDF5 has open, for a request. Closes idle files if no descriptor is left.
pub fn open_file(file: &FileInfo, operation: Operation) -> Result<Arc<File>> {
    with_room(close_idle, || shared(file, operation))
}

fn close_idle() {
    let idle: Vec<_> = files()
        .files
        .values_mut()
        .map(|f| f.lingers.take())
        .collect();
    let lingering = std::mem::take(&mut *LINGERING.lock().recover());
    let all = lingering
        .iter()
        .map(|one| one.0.lock().recover().file.take());
    drop((idle, all.collect::<Vec<_>>()));
}

fn close_idle_files() {
    loop {
        thread::sleep(LINGER);
        let mut files = files();
        let mut lingering = LINGERING.lock().recover();
        let sources: Vec<_> = lingering.iter().map(|one| one.take_idle()).collect();
        lingering.retain(|one| one.is_open());
        let are_open = !lingering.is_empty();
        drop(lingering);
        let mut idle = Vec::new();
        for file in files.files.values_mut() {
            if !std::mem::take(&mut file.is_in_use) {
                idle.extend(file.lingers.take());
            }
        }
        files.has_closer = are_open || files.files.values().any(|file| file.lingers.is_some());
        let is_last = !files.has_closer;
        drop(files);
        drop((idle, sources));
        if is_last {
            return;
        }
    }
}
