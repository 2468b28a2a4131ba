//! The access sets of operations on an object.

use std::ffi::c_int;
use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{
    H5D_CHUNKED, H5D_COMPACT, H5D_CONTIGUOUS, H5P_DEFAULT, H5S_MAX_RANK, hid_t,
};

use super::dataspace::bounds;
use super::temporary_id::TemporaryId;
use super::under::Under;
use penstock_hdf5::dataset::creation_properties;
use penstock_hdf5::library::Session;
use penstock_hdf5::transfer::conflicts::{
    Access, AccessSet, FileKey, ObjectKey, Region, identity_of_file, known_identity,
};

/// Properties of a dataset that determine its access sets. They never change.
#[derive(Clone, Debug)]
pub(crate) struct DatasetAccess {
    pub(crate) key: ObjectKey,
    /// The shape of a chunk, in elements. Empty if the dataset is not chunked.
    chunk: Vec<u64>,
    /// Whether elements may be in other datasets, or in files that HDF5 finds only by name.
    is_elsewhere: bool,
}

const EVERYTHING: AccessSet = AccessSet::All(Access::Write);

/// Returns the number of the file that contains the object of this kind, and the token of the object.
///
/// # Safety
/// The thread is inside a callback on `under`.
pub(crate) unsafe fn place_of(under: &Under, kind: H5I_type_t) -> Result<(u64, [u8; 16])> {
    let location = LocationBySelf::new(kind);
    let mut info = H5O_info2_t::default();
    let mut args = ObjectGetInfo::new(&mut info);
    // SAFETY: the caller guarantees this; the arguments belong to the operation and outlive the call.
    let status = unsafe {
        (under.calls.H5VLobject_get)(
            under.object,
            location.as_location(),
            under.id,
            args.as_args(),
            H5P_DEFAULT,
            ptr::null_mut(),
        )
    };
    if status < 0 {
        Err(Error::invalid(
            "HDF5 does not return the address of the object",
        ))
    } else {
        Ok((info.fileno, info.token))
    }
}

/// Returns the key of an object. `id` is an identifier of the object if the caller has one. The key
/// contains the identity of the file, by which transfers through other handles recognise it. The
/// file is the one that contains the object: an external link may lead to it from another file.
///
/// # Safety
/// As for [`place_of`].
unsafe fn key_of(under: &Under, kind: H5I_type_t, id: Option<&TemporaryId>) -> Result<ObjectKey> {
    // SAFETY: the caller guarantees this.
    let (number, token) = unsafe { place_of(under, kind)? };
    let hdf5 = under.library().hdf5;
    // MPI-IO has no descriptor, and this process's own descriptor identifies the file when it is
    // opened again.
    let shared = under.container.shared.get().map(|shared| shared.key);
    if let Some(file) = shared.filter(|file| file.number == Some(number)) {
        return Ok(ObjectKey { file, token });
    }
    let identity = known_identity(hdf5, number).unwrap_or_else(|| {
        let own = match id {
            // SAFETY: the caller guarantees this.
            None => unsafe { TemporaryId::of(under, kind) }.ok(),
            Some(_) => None,
        };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let id = id.or(own.as_ref())?;
        identity_of_file(&session, id.get(), number)
    });
    Ok(ObjectKey {
        file: FileKey {
            number: Some(number),
            identity,
        },
        token,
    })
}

/// Returns the access set of the whole file that contains an object. If HDF5 does not identify the
/// file, returns the access set of everything.
///
/// # Safety
/// As for [`place_of`].
pub(crate) unsafe fn file_access(under: &Under, kind: H5I_type_t) -> AccessSet {
    if let Some(shared) = under.container.shared.get() {
        return AccessSet::File(shared.key);
    }
    // SAFETY: the caller guarantees this.
    unsafe { key_of(under, kind, None) }.map_or(EVERYTHING, |key| AccessSet::File(key.file))
}

/// Returns the access set of an object. If HDF5 does not identify the object, returns the access
/// set of everything.
///
/// # Safety
/// As for [`place_of`].
pub(crate) unsafe fn object_access(under: &Under, kind: H5I_type_t) -> AccessSet {
    // HDF5 may read metadata to identify the object. Processes that share a file may do that only
    // together.
    if let Some(shared) = under.container.shared.get() {
        return AccessSet::File(shared.key);
    }
    // SAFETY: the caller guarantees this.
    unsafe { key_of(under, kind, None) }.map_or(EVERYTHING, AccessSet::Object)
}

impl DatasetAccess {
    /// Queries HDF5 for the properties of a dataset.
    ///
    /// # Safety
    /// The thread is inside a callback on `under`, a dataset, and `id` is an identifier of it.
    pub(crate) unsafe fn of(under: &Under, id: &TemporaryId) -> Result<DatasetAccess> {
        let hdf5 = under.library().hdf5;
        let failed = || Error::invalid("HDF5 does not return the layout of the dataset");
        let mut chunk = [0u64; H5S_MAX_RANK];
        // SAFETY: the thread is inside a callback of HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let list = creation_properties(&session, id.get())?;
        // SAFETY: the identifiers are open, and `chunk` has the given length.
        unsafe {
            let list = list.get();
            let key = key_of(under, H5I_DATASET, Some(id))?;
            let layout = (hdf5.H5Pget_layout)(list);
            let rank = match layout {
                H5D_CHUNKED => (hdf5.H5Pget_chunk)(list, chunk.len() as c_int, chunk.as_mut_ptr()),
                _ => 0,
            };
            let external = match layout {
                H5D_CONTIGUOUS => (hdf5.H5Pget_external_count)(list),
                _ => 0,
            };
            let rank = usize::try_from(rank).map_err(|_| failed())?;
            Ok(DatasetAccess {
                key,
                chunk: chunk[..rank].to_vec(),
                is_elsewhere: !matches!(layout, H5D_CHUNKED | H5D_CONTIGUOUS | H5D_COMPACT)
                    || external != 0,
            })
        }
    }

    /// Returns whether a chunk has more elements than `elements`.
    pub(crate) fn is_part_of_chunk(&self, elements: u64) -> bool {
        let chunk = self
            .chunk
            .iter()
            .fold(1, |n: u64, side| n.saturating_mul(*side));
        !self.chunk.is_empty() && elements < chunk
    }

    /// Returns the access set of a transfer by HDF5 itself, for any selection.
    pub(crate) fn by_hdf5(&self, access: Access) -> AccessSet {
        if self.is_elsewhere {
            return AccessSet::All(access);
        }
        let whole = AccessSet::Elements {
            dataset: self.key,
            region: Region::Everything,
            access,
        };
        whole.by_hdf5()
    }

    /// Returns the access set of a transfer of the elements that `space` selects.
    ///
    /// # Safety
    /// The thread is inside a call of HDF5.
    pub(crate) unsafe fn access_set(
        &self,
        under: &Under,
        space: hid_t,
        access: Access,
    ) -> AccessSet {
        if self.is_elsewhere {
            return AccessSet::All(access);
        }
        // SAFETY: the caller guarantees this.
        let bounds = unsafe { bounds(under.library(), space) };
        let region = Region::between(bounds).of_chunks(&self.chunk);
        AccessSet::Elements {
            dataset: self.key,
            region,
            access,
        }
    }
}
