//! Containers: what a file is for a connector.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::connector::H5VL_dataset_class_t;

use super::connector_below::ConnectorBelow;
use super::policy::Policy;
use super::registration::VALUE;
use super::settings::ConnectorSettings;
use super::shared_file::SharedFile;
use super::transfer_list::OwnedList;
use penstock_hdf5::dataset::FileInfo;
use penstock_hdf5::transfer::InCall;
use penstock_hdf5::transfer::conflicts::{FileKey, Identity};

/// The state that the objects of one file share.
pub(crate) struct Container {
    pub(crate) below: Arc<ConnectorBelow>,
    pub(crate) policy: Policy,
    /// Whether the connector at the bottom is the native one. HDF5 is asked once.
    pub(crate) is_native: OnceLock<bool>,
    /// Whether the connector below is another instance of this one.
    is_above_own: bool,
    /// The functions of the native connector if it lies directly below. HDF5 is asked once.
    pub(crate) native: OnceLock<Option<&'static H5VL_dataset_class_t>>,
    /// Whether the processes of an MPI program share the file.
    pub(crate) is_parallel: bool,
    /// The file if processes share it and each may transfer elements by itself.
    pub(crate) shared: OnceLock<Arc<SharedFile>>,
    /// Why only HDF5 accesses a file that processes share.
    pub(crate) why_hdf5s: OnceLock<String>,
    /// The device and the number of the file, if the container is one named file.
    pub(crate) identity: OnceLock<Identity>,
    /// Whether other processes may read the file while this one writes it.
    pub(crate) has_readers: AtomicBool,
    /// The file that the engine has opened last, with its key: external links lead to other files.
    opened: Mutex<Option<(FileKey, Arc<File>)>>,
    /// The file object of the connector below. External links lead to other file objects, which HDF5 closes
    /// separately.
    pub(crate) file: OnceLock<usize>,
    pub(crate) is_closed: AtomicBool,
    /// The list of the last transfer, if this connector has made it.
    list: Mutex<Option<OwnedList>>,
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

    /// Makes a call of the connector below, during which HDF5 cannot flush a file. Another instance of this
    /// connector below makes such calls itself.
    pub(crate) fn in_call<T>(&self, call: impl FnOnce() -> T) -> T {
        let _in_call = (!self.is_above_own).then(InCall::begin);
        call()
    }

    /// Opens the file of a dataset, with the access that HDF5 has. `None` if the storage is not one plain
    /// file.
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
        let operation = match info.is_writable {
            true => Operation::Write,
            false => Operation::Read,
        };
        let file = penstock_hdf5::transfer::open_file(info, operation)?;
        if !self.is_closed.load(Relaxed) {
            *opened = Some((key, Arc::clone(&file)));
        }
        Ok(Some(file))
    }

    /// Keeps a transfer list as long as HDF5 may write into it, which it does at the end of the application's call.
    /// Closes the one before.
    pub(crate) fn keep_list(&self, list: OwnedList) {
        let mut kept = self.list.lock().recover();
        *kept = Some(list);
    }

    /// Called when the application closes a file object of this container. Closes the descriptor, which would
    /// otherwise stay open as long as objects and wrappers of the file.
    pub(crate) fn closes(&self, file: *mut c_void) {
        /// The time in which a worker that has finished its last block releases the file.
        const TIME_TO_RELEASE: Duration = Duration::from_millis(5);
        if self.file.get() == Some(&(file as usize)) {
            self.is_closed.store(true, Relaxed);
        }
        drop(self.list.lock().recover().take());
        let opened = self.opened.lock().recover().take();
        if let Some((_, file)) = opened {
            let since = Instant::now();
            while Arc::strong_count(&file) > 1 && since.elapsed() < TIME_TO_RELEASE {
                thread::yield_now();
            }
        }
    }
}
