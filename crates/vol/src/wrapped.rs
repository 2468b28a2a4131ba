//! The wrappers that HDF5 holds for files, groups, datasets, attributes, named datatypes and requests.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::{H5I_DATASET, Req};

use super::access_sets::DatasetAccess;
use super::calling_library::CallingLibrary;
use super::container::Container;
use super::dataspace::extent_of_dataset;
use super::last_ids::LastIds;
use super::operation::AsyncOperation;
use super::report_order::ReportOrder;
use super::shared_file::{SharedFile, VersionedDescription};
use super::temporary_id::{TemporaryId, TemporaryState};
use super::under::Under;
use super::unwrapped;
use penstock_hdf5::dataset::DatasetInfo;
use penstock_hdf5::library::Session;
use penstock_hdf5::transfer::{Planned, Refused, StoredDataset, is_inside};

/// Its address is at the beginning of each wrapper. Native objects begin with null or another address.
static MARK: u8 = 0;

/// The wrapper of an object of the connector below, or a request of this connector.
#[repr(C)]
pub(crate) struct Wrapped {
    mark: *const u8,
    under: *mut c_void,
    container: Arc<Container>,
    role: Role,
    /// Properties for the access sets of a dataset, once known.
    access: OnceLock<DatasetAccess>,
    /// Number of elements of a dataset whose extent cannot change.
    elements: OnceLock<u64>,
    /// Description of a dataset that cannot change any more.
    fixed_info: OnceLock<DatasetInfo>,
    /// Description of a dataset of a shared file.
    stored: Mutex<Option<VersionedDescription>>,
    /// Datatype and dataspace of the memory in the last transfer.
    pub(crate) last_ids: LastIds,
    /// Whether a failed call has closed the object. HDF5 keeps its identifier.
    is_gone: AtomicBool,
}

/// The purpose of a wrapper.
enum Role {
    /// HDF5 closes the object through this wrapper.
    Owned,
    /// HDF5 closes the object through another wrapper.
    Temporary(Arc<TemporaryState>),
    Request(Arc<AsyncOperation>, ReportOrder),
}

impl Wrapped {
    /// Makes a wrapper for HDF5, which [`Wrapped::release`] drops. Null stays null.
    pub(crate) fn wrap(under: *mut c_void, container: &Arc<Container>) -> *mut c_void {
        if under.is_null() {
            under
        } else {
            Wrapped::boxed(under, container, Role::Owned)
        }
    }

    /// As [`Wrapped::wrap`], for an object with a temporary identifier.
    pub(crate) fn wrap_temporary(
        under: *mut c_void,
        container: &Arc<Container>,
        state: Arc<TemporaryState>,
    ) -> *mut c_void {
        Wrapped::boxed(under, container, Role::Temporary(state))
    }

    /// Makes a request of this connector, for HDF5.
    pub(crate) fn request(
        operation: &Arc<AsyncOperation>,
        container: &Arc<Container>,
    ) -> *mut c_void {
        let role = Role::Request(Arc::clone(operation), ReportOrder::new());
        Wrapped::boxed(ptr::null_mut(), container, role)
    }

    /// Wraps the request that the connector below has returned. Returns false if there is none.
    ///
    /// # Safety
    /// `req` is null, or points to null or to a request of the connector below.
    pub(crate) unsafe fn wrap_request(req: Req, container: &Arc<Container>) -> bool {
        // SAFETY: the caller guarantees this.
        unsafe {
            let is_left = !req.is_null() && !(*req).is_null();
            if is_left {
                *req = Wrapped::wrap(*req, container);
            }
            is_left
        }
    }

    fn boxed(under: *mut c_void, container: &Arc<Container>, role: Role) -> *mut c_void {
        let wrapped = Wrapped {
            mark: &raw const MARK,
            under,
            container: Arc::clone(container),
            role,
            access: OnceLock::new(),
            elements: OnceLock::new(),
            fixed_info: OnceLock::new(),
            stored: Mutex::default(),
            last_ids: LastIds::default(),
            is_gone: AtomicBool::new(false),
        };
        Box::into_raw(Box::new(wrapped)).cast()
    }

    /// Returns whether an object is a wrapper, rather than a native file ([`unwrapped`]).
    ///
    /// # Safety
    /// `object` is one of both.
    pub(crate) unsafe fn is_wrapper(object: *const c_void) -> bool {
        // SAFETY: the caller guarantees this; the first member of both is a pointer.
        unsafe { *object.cast::<*const u8>() == &raw const MARK }
    }

    /// Returns the object of the connector below for one call, and `None` if HDF5 passes a native
    /// file while it cannot be used.
    ///
    /// # Safety
    /// HDF5 has passed `object` to a callback.
    pub(crate) unsafe fn under_of(object: *const c_void) -> Option<Under> {
        // SAFETY: the caller guarantees this.
        unsafe {
            if Wrapped::is_wrapper(object) {
                return Some(Wrapped::of(object).under());
            }
            let container = unwrapped::of_caller()?;
            Some(Under {
                is_internal: true,
                is_gone: false,
                object: object.cast_mut(),
                id: container.below.id,
                calls: container.below.library.calls,
                container,
            })
        }
    }

    /// # Safety
    /// `object` is a wrapper, and exists as long as the answer.
    pub(crate) unsafe fn of<'a>(object: *const c_void) -> &'a Wrapped {
        // SAFETY: the caller guarantees this.
        unsafe { &*object.cast::<Wrapped>() }
    }

    /// Returns the operation and its position in the order of reports, if this is a request of this
    /// connector.
    pub(crate) fn own_request(&self) -> Option<(&Arc<AsyncOperation>, &ReportOrder)> {
        match &self.role {
            Role::Request(operation, order) => Some((operation, order)),
            Role::Owned | Role::Temporary(_) => None,
        }
    }

    pub(crate) fn temporary(&self) -> Option<&Arc<TemporaryState>> {
        match &self.role {
            Role::Temporary(state) if !state.is_handed_over() => Some(state),
            Role::Owned | Role::Temporary(_) | Role::Request(..) => None,
        }
    }

    /// Returns whether the object is closed, although HDF5 keeps the identifier.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Records that a failed call has closed the object.
    pub(crate) fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    pub(crate) fn container(&self) -> &Arc<Container> {
        &self.container
    }

    pub(crate) fn library(&self) -> CallingLibrary {
        self.container.below.library
    }

    /// Returns whether Penstock makes the thread's call itself, in an operation or a transfer.
    pub(crate) fn is_internal(&self) -> bool {
        self.temporary().is_some() || is_inside()
    }

    /// Returns the object of the connector below.
    pub(crate) fn object(&self) -> *mut c_void {
        self.under
    }

    /// Returns the properties for the access sets of a dataset.
    ///
    /// # Safety
    /// The thread is inside a callback on `under`, which this wraps, and `id` is an identifier of
    /// it.
    pub(crate) unsafe fn dataset_access(
        &self,
        under: &Under,
        id: &TemporaryId,
    ) -> Result<DatasetAccess> {
        if let Some(known) = self.access.get() {
            return Ok(known.clone());
        }
        // SAFETY: the caller guarantees this.
        let access = unsafe { DatasetAccess::of(under, id)? };
        Ok(self.access.get_or_init(|| access).clone())
    }

    /// Returns the result of an earlier [`Wrapped::dataset_access`].
    pub(crate) fn known_dataset_access(&self) -> Option<&DatasetAccess> {
        self.access.get()
    }

    /// Returns the number of elements of a dataset; `None` if HDF5 does not return it.
    ///
    /// # Safety
    /// The thread is inside a callback on this dataset.
    pub(crate) unsafe fn elements(&self) -> Option<u64> {
        if let Some(known) = self.elements.get() {
            return Some(*known);
        }
        // SAFETY: the caller guarantees this.
        let extent = unsafe { extent_of_dataset(&self.under())? };
        if extent.is_fixed {
            let _ = self.elements.set(extent.elements);
        }
        Some(extent.elements)
    }

    /// Returns the description of a dataset. Queries HDF5 if the dataset may have changed.
    pub(crate) fn info(&self, session: &Session<'_>, id: &TemporaryId) -> Result<DatasetInfo> {
        // With readers, HDF5 may describe another state of the file.
        let may_reuse = !self.container.has_readers.load(Relaxed);
        if let Some(known) = self.fixed_info.get().filter(|_| may_reuse) {
            return Ok(known.clone());
        }
        let info = DatasetInfo::read(session, id.get())?;
        if info.is_final() {
            let _ = self.fixed_info.set(info.clone());
        }
        Ok(info)
    }

    /// Returns the description of the dataset of a shared file, or the reason why only HDF5
    /// transfers its elements.
    ///
    /// # Safety
    /// As for [`Wrapped::dataset_access`], of which `under` is.
    pub(crate) unsafe fn stored(
        &self,
        under: &Under,
        shared: &SharedFile,
    ) -> Result<Arc<Planned<StoredDataset>>> {
        if shared.opening.reads_together {
            let why = "the processes read metadata together, and have not described the dataset";
            let refused = || Arc::new(Err(Refused(why.to_owned())));
            return Ok(self.described(shared).unwrap_or_else(refused));
        }
        // SAFETY: the caller guarantees this.
        unsafe { self.describe_shared(under, shared) }
    }

    /// Returns the description of the dataset, if it was made after the last change of its extent.
    pub(crate) fn described(&self, shared: &SharedFile) -> Option<Arc<Planned<StoredDataset>>> {
        let (changes, stored) = self.stored_lock().clone()?;
        let is_current = changes == shared.changes_of(&self.access.get()?.key);
        is_current.then_some(stored)
    }

    /// Describes the dataset of a shared file. If the processes read metadata together, all of them
    /// must be in the same call.
    ///
    /// # Safety
    /// As for [`Wrapped::stored`].
    pub(crate) unsafe fn describe_shared(
        &self,
        under: &Under,
        shared: &SharedFile,
    ) -> Result<Arc<Planned<StoredDataset>>> {
        if let Some(stored) = self.described(shared) {
            return Ok(stored);
        }
        // SAFETY: the caller guarantees this.
        let (id, access) = unsafe {
            let id = TemporaryId::of(under, H5I_DATASET)?;
            let access = self.dataset_access(under, &id)?;
            (id, access)
        };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.library().hdf5) };
        let described = shared.describe(&session, id.get(), &access.key)?;
        let stored = Arc::clone(&described.1);
        *self.stored_lock() = Some(described);
        Ok(stored)
    }

    fn stored_lock(&self) -> MutexGuard<'_, Option<VersionedDescription>> {
        self.stored.lock().recover()
    }

    /// Returns the object, for one call.
    pub(crate) fn under(&self) -> Under {
        let below = &self.container.below;
        Under {
            is_internal: self.is_internal(),
            is_gone: self.is_gone(),
            object: self.under,
            id: below.id,
            calls: below.library.calls,
            container: Arc::clone(&self.container),
        }
    }

    /// Drops a wrapper.
    ///
    /// # Safety
    /// `object` is a wrapper, and HDF5 releases it.
    pub(crate) unsafe fn release(object: *mut c_void) {
        // SAFETY: the caller guarantees this.
        drop(unsafe { Box::from_raw(object.cast::<Wrapped>()) });
    }
}
