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
use super::lingering::Lingering;
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
        files.files.get_mut(&self.file)?.lingers.get()
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
            file.lingers.keep(&open);
            if !start_closer(&mut files) {
                // No thread would close them.
                files
                    .files
                    .values_mut()
                    .for_each(|file| drop(file.lingers.take()));
            }
        }
        Ok(open)
    }
}

/// The files of sources that are open. Locked after the other files, and before each of its own.
static SOURCES: Mutex<Vec<Arc<LingeringSource>>> = Mutex::new(Vec::new());

/// A file that HDF5 does not have open.
pub(super) type LingeringSource = Mutex<Lingering<SourceFile>>;

/// Lets the file of a source stay open, if a thread closes it later.
pub(super) fn keep_source(place: &Arc<LingeringSource>, file: &Arc<SourceFile>) {
    let mut files = files();
    if !start_closer(&mut files) {
        return;
    }
    let mut sources = SOURCES.lock().recover();
    let mut lingering = place.lock().recover();
    if !lingering.is_open() {
        sources.push(Arc::clone(place));
    }
    lingering.keep(file);
}

/// Starts a thread that closes idle files, and ends when no file is open. A file that
/// the program has closed, and may want to delete or to unmount, thus stays open for a moment
/// only. Returns whether the thread runs.
fn start_closer(files: &mut Files) -> bool {
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
    let sources = std::mem::take(&mut *SOURCES.lock().recover());
    let open = sources.iter().map(|source| source.lock().recover().take());
    drop((idle, open.collect::<Vec<_>>()));
}

fn close_idle_files() {
    loop {
        thread::sleep(LINGER);
        let mut files = files();
        let mut sources = SOURCES.lock().recover();
        let idle_sources: Vec<_> = sources
            .iter()
            .map(|source| source.lock().recover().take_idle())
            .collect();
        sources.retain(|source| source.lock().recover().is_open());
        let are_open = !sources.is_empty();
        drop(sources);
        let all = files.files.values_mut();
        let idle: Vec<_> = all.map(|file| file.lingers.take_idle()).collect();
        files.has_closer = are_open || files.files.values().any(|file| file.lingers.is_open());
        let is_last = !files.has_closer;
        drop(files);
        drop((idle, idle_sources));
        if is_last {
            return;
        }
    }
}
