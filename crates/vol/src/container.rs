//! Containers: a connector's term for files.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::connector::H5VL_dataset_class_t;

use super::connector_below::ConnectorBelow;
use super::owned_id::OwnedId;
use super::policy::Policy;
use super::registration::VALUE;
use super::settings::ConnectorSettings;
use super::shared_file::SharedFile;
use penstock_hdf5::dataset::FileInfo;
use penstock_hdf5::transfer::InCall;
use penstock_hdf5::transfer::conflicts::{FileKey, Identity};

/// State shared by the objects of one file.
pub(crate) struct Container {
    pub(crate) below: Arc<ConnectorBelow>,
    pub(crate) policy: Policy,
    /// Whether the connector at the bottom is the native one, queried once.
    pub(crate) is_native: OnceLock<bool>,
    /// Whether the connector below is another instance of this one.
    pub(crate) is_above_own: bool,
    /// Functions of the native connector if it is directly below, queried once.
    pub(crate) native: OnceLock<Option<&'static H5VL_dataset_class_t>>,
    /// Whether the processes of an MPI program share the file.
    pub(crate) is_parallel: bool,
    /// The shared file, if each process may transfer elements by itself.
    pub(crate) shared: OnceLock<Arc<SharedFile>>,
    /// Reason why only HDF5 accesses a shared file.
    pub(crate) why_hdf5s: OnceLock<String>,
    /// Device and inode number of the file, if the container is one named file.
    pub(crate) identity: OnceLock<Identity>,
    /// Whether other processes may read the file while this one writes it.
    pub(crate) has_readers: AtomicBool,
    /// The file that the engine opened last, with its key. External links lead to other files.
    opened: Mutex<Option<(FileKey, Arc<File>)>>,
    /// File object of the connector below. External links lead to other file objects, which HDF5
    /// closes separately.
    pub(crate) file: OnceLock<usize>,
    pub(crate) is_closed: AtomicBool,
    /// The list of the last transfer, if this connector made it.
    list: Mutex<Option<OwnedId>>,
}

impl Drop for Container {
    fn drop(&mut self) {
        // No file was closed, so HDF5 itself is closing, and closes its lists.
        let list = self.list.get_mut().recover();
        std::mem::forget(list.take());
    }
}

impl Container {
    /// `is_parallel` says whether the processes of an MPI program open the file together.
    pub(crate) fn new(
        below: &Arc<ConnectorBelow>,
        settings: &Arc<ConnectorSettings>,
        is_parallel: bool,
    ) -> Result<Arc<Container>> {
        Ok(Arc::new(Container {
            below: Arc::clone(below),
            is_above_own: below.value() == Some(VALUE),
            policy: Policy::of(settings, is_parallel)?,
            is_native: OnceLock::new(),
            native: OnceLock::new(),
            is_parallel,
            shared: OnceLock::new(),
            why_hdf5s: OnceLock::new(),
            identity: OnceLock::new(),
            has_readers: AtomicBool::new(false),
            opened: Mutex::default(),
            file: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            list: Mutex::default(),
        }))
    }

    /// Makes a call of the connector below during which HDF5 cannot flush a file. Another instance
    /// of this connector below makes such calls itself.
    pub(crate) fn in_call<T>(&self, call: impl FnOnce() -> T) -> T {
        let _in_call = (!self.is_above_own).then(InCall::begin);
        call()
    }

    /// Opens the file of a dataset with HDF5's access mode. Returns `None` if the storage is not
    /// one plain file.
    pub(crate) fn open_file(&self, key: FileKey, info: &FileInfo) -> Result<Option<Arc<File>>> {
        if !info.is_plain || info.descriptor.is_none() {
            return Ok(None);
        }
        let mut opened = self.opened.lock().recover();
        if let Some((of, file)) = &*opened
            && of.is_same(&key)
            && file.access().write == info.is_writable
        {
            return Ok(Some(Arc::clone(file)));
        }
        let operation = if info.is_writable {
            Operation::Write
        } else {
            Operation::Read
        };
        let file = penstock_hdf5::transfer::open_file(info, operation)?;
        if !self.is_closed.load(Relaxed) {
            *opened = Some((key, Arc::clone(&file)));
        }
        Ok(Some(file))
    }

    /// Keeps a transfer list while HDF5 may write into it, at the end of the application's call.
    /// Closes the previous list.
    pub(crate) fn keep_list(&self, list: OwnedId) {
        let mut kept = self.list.lock().recover();
        *kept = Some(list);
    }

    /// Closes the descriptor when the application closes a file object of this container. Otherwise
    /// it would stay open as long as objects and wrappers of the file.
    pub(crate) fn closes(&self, file: *mut c_void) {
        if self.file.get() == Some(&(file as usize)) {
            self.is_closed.store(true, Relaxed);
        }
        drop(self.list.lock().recover().take());
        drop(self.opened.lock().recover().take());
    }
}
