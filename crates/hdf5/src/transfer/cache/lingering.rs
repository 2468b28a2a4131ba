//! Files that stay open while reads follow each other.

use std::sync::Arc;

/// A file that stays open until no read has used it between two searches for idle files.
pub(super) struct Lingering<T> {
    open: Option<Arc<T>>,
    is_in_use: bool,
}

impl<T> Default for Lingering<T> {
    fn default() -> Self {
        Lingering {
            open: None,
            is_in_use: false,
        }
    }
}

impl<T> Lingering<T> {
    /// Returns the file, for a read, if it is open.
    pub(super) fn get(&mut self) -> Option<Arc<T>> {
        self.is_in_use = true;
        self.open.clone()
    }

    /// Lets a file stay open that a read uses.
    pub(super) fn keep(&mut self, file: &Arc<T>) {
        self.is_in_use = true;
        self.open = Some(Arc::clone(file));
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the file out, for the caller to close.
    pub(super) fn take(&mut self) -> Option<Arc<T>> {
        self.open.take()
    }

    /// As [`take`](Self::take), unless a read has used the file since the last call.
    pub(super) fn take_idle(&mut self) -> Option<Arc<T>> {
        let is_idle = !std::mem::take(&mut self.is_in_use);
        is_idle.then(|| self.take()).flatten()
    }
}
