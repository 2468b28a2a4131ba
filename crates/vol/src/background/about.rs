//! What the order of operations on an object depends on, asked of HDF5 once.

use std::ffi::{c_int, c_void};
use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5D_CHUNKED, H5D_CONTIGUOUS, H5P_DEFAULT, H5S_MAX_RANK, hid_t};

use super::lend::Loan;
use crate::wrapped::Under;
use penstock_hdf5::dataset::dataspace;
use penstock_hdf5::library::Session;
use penstock_hdf5::transfer::conflicts::{
    Access, AccessSet, FileKey, ObjectKey, Region, identity_of_file, known_identity,
};

/// A dataset, as far as others that are to be ordered with it must know it.
#[derive(Clone, Debug)]
pub struct About {
    pub key: ObjectKey,
    /// Empty if it is not chunked.
    chunk: Vec<u64>,
    /// Its elements may lie in other datasets, or in files of which HDF5 knows the name only.
    is_elsewhere: bool,
}

const EVERYTHING: AccessSet = AccessSet::All(Access::Write);

/// The number of the file that the object with this kind lies in, and its token.
///
/// # Safety
/// The thread is inside a callback on `under`.
unsafe fn place_of(under: &Under, kind: H5I_type_t) -> Result<(u64, [u8; 16])> {
    let location = LocationBySelf::new(kind);
    let mut info = H5O_info2_t::default();
    let mut args = ObjectGetInfo::new(&mut info);
    // SAFETY: passed on; the arguments are those of the operation and outlive the call.
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
    match status < 0 {
        true => Err(Error::invalid("HDF5 does not tell which object this is")),
        false => Ok((info.fileno, info.token)),
    }
}

/// The key of an object, which tells it from all others, of which `loan` is an identifier. What is read
/// through other handles knows the file by its identity only. The file is not the one by which the object
/// was reached where a link leads to another.
///
/// # Safety
/// As for [`place_of`].
unsafe fn key_by(under: &Under, kind: H5I_type_t, loan: Option<&Loan>) -> Result<ObjectKey> {
    // SAFETY: passed on.
    let (number, token) = unsafe { place_of(under, kind)? };
    let hdf5 = under.container.below.host.hdf5;
    let identity = known_identity(hdf5, number).unwrap_or_else(|| {
        let own = match loan {
            // SAFETY: passed on.
            None => unsafe { Loan::of(under, kind) }.ok(),
            Some(_) => None,
        };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let loan = loan.or(own.as_ref())?;
        identity_of_file(&session, loan.id(), number)
    });
    Ok(ObjectKey {
        file: FileKey {
            number: Some(number),
            identity,
        },
        token,
    })
}

/// As [`key_by`], of any object.
///
/// # Safety
/// As for [`place_of`].
unsafe fn key_of(under: &Under, kind: H5I_type_t) -> Result<ObjectKey> {
    // SAFETY: passed on.
    unsafe { key_by(under, kind, None) }
}

/// The file of an object; everything if HDF5 does not tell.
///
/// # Safety
/// As for [`key_of`].
pub unsafe fn file_of(under: &Under, kind: H5I_type_t) -> AccessSet {
    // SAFETY: passed on.
    unsafe { key_of(under, kind) }.map_or(EVERYTHING, |key| AccessSet::File(key.file))
}

/// An object and what is pending on it; everything if HDF5 does not tell.
///
/// # Safety
/// As for [`key_of`].
pub unsafe fn object_of(under: &Under, kind: H5I_type_t) -> AccessSet {
    // SAFETY: passed on.
    unsafe { key_of(under, kind) }.map_or(EVERYTHING, AccessSet::Object)
}

impl About {
    /// # Safety
    /// The thread is inside a callback on `under`, a dataset, of which `loan` is an identifier.
    pub unsafe fn of(under: &Under, loan: &Loan) -> Result<About> {
        let hdf5 = under.container.below.host.hdf5;
        let failed = || Error::invalid("HDF5 does not tell the layout of the dataset");
        let mut chunk = [0u64; H5S_MAX_RANK];
        // SAFETY: the identifiers are open, and there is room for as many numbers as is said.
        unsafe {
            let key = key_by(under, H5I_DATASET, Some(loan))?;
            let list = (hdf5.H5Dget_create_plist)(loan.id());
            if list < 0 {
                return Err(failed());
            }
            let layout = (hdf5.H5Pget_layout)(list);
            let rank = match layout {
                H5D_CHUNKED => (hdf5.H5Pget_chunk)(list, chunk.len() as c_int, chunk.as_mut_ptr()),
                _ => 0,
            };
            let external = match layout {
                H5D_CONTIGUOUS => (hdf5.H5Pget_external_count)(list),
                _ => 0,
            };
            (hdf5.H5Pclose)(list);
            let rank = usize::try_from(rank).map_err(|_| failed())?;
            Ok(About {
                key,
                chunk: chunk[..rank].to_vec(),
                is_elsewhere: !matches!(layout, H5D_CHUNKED | H5D_CONTIGUOUS | COMPACT)
                    || external != 0,
            })
        }
    }

    /// What a transfer of the elements that `space` selects reads or writes.
    ///
    /// # Safety
    /// The thread is inside a call of HDF5.
    pub unsafe fn touches(&self, under: &Under, space: hid_t, access: Access) -> AccessSet {
        if self.is_elsewhere {
            return AccessSet::All(access);
        }
        // SAFETY: passed on.
        let bounds = unsafe { bounds(under, space) };
        let region = Region::between(bounds).of_chunks(&self.chunk);
        AccessSet::Elements {
            dataset: self.key,
            region,
            access,
        }
    }
}

const COMPACT: c_int = penstock_sys::hdf5::H5D_COMPACT;

/// The numbers below 2^31 that stand for a dataspace instead of an identifier: H5S_ALL, and others.
pub fn is_special(space: hid_t) -> bool {
    (0..16).contains(&space)
}

/// The first and the last element of a selection along each dimension; `None` if it has none, or is
/// not one of a dataspace.
///
/// # Safety
/// The thread is inside a call of HDF5, which checks the identifier.
pub unsafe fn bounds(under: &Under, space: hid_t) -> Option<(Vec<u64>, Vec<u64>)> {
    if is_special(space) {
        return None;
    }
    let host = under.container.below.host;
    host.keeping_errors(|| dataspace::bounds(host.hdf5, space))
}

/// Whether nothing of HDF5's own lies between the connector below and the file.
///
/// # Safety
/// The thread is inside a callback on `under`.
pub unsafe fn ends_in_native(under: &Under) -> bool {
    const NATIVE: c_int = 0;
    let mut class: *const H5VL_class_t = ptr::null();
    // SAFETY: passed on, with a place for the answer; the class lives as long as its connector.
    unsafe {
        let object: *mut c_void = under.object;
        let level = H5VL_GET_CONN_LVL_TERM;
        let get = under.calls.H5VLintrospect_get_conn_cls;
        get(object, under.id, level, &mut class) >= 0
            && !class.is_null()
            && (*class).value == NATIVE
    }
}
