//! The identities of files and objects that pending operations access.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_sys::hdf5::{Hdf5, hid_t};

use super::access::{FileKey, ObjectKey};
use super::pending::Copy;
use crate::dataset::FileInfo;
use crate::library::Session;
use crate::open_files::{self, Identity, identity_of};

/// Returns the key of a file that Penstock has opened itself.
pub fn key_of_file(file: &Arc<File>) -> Option<FileKey> {
    let identity = open_files::identity(&file.metadata().ok()?);
    Some(FileKey::of_identity(Some(identity)))
}

/// Returns HDF5's number of the open file that contains an object.
pub fn number_of_file(session: &Session<'_>, object: hid_t) -> Result<u64> {
    session.object(object).map(|(number, _)| number)
}

/// Returns the key of a dataset, or of another object, in the file that `file` describes.
pub fn key_of_object(session: &Session<'_>, object: hid_t, file: &FileInfo) -> Result<ObjectKey> {
    let (number, token) = session.object(object)?;
    Ok(ObjectKey {
        file: FileKey {
            number: Some(number),
            identity: file.descriptor.and_then(identity_of),
        },
        token,
    })
}

/// The identities of the last open files that were queried, by HDF5's number.
static KNOWN: Mutex<Vec<(Copy, u64, Option<Identity>)>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<(Copy, u64, Option<Identity>)>> {
    KNOWN.lock().recover()
}

/// Returns the identity of the file that HDF5 has open under a number, if [`identity_of_file`] has
/// found it.
pub fn known_identity(hdf5: &Hdf5, number: u64) -> Option<Option<Identity>> {
    let copy = Copy::of(hdf5);
    let known = known();
    let mut files = known.iter();
    let file = files.find(|file| (file.0, file.1) == (copy, number));
    file.map(|file| file.2)
}

/// Returns the identity of an object's file, which HDF5 has open under this number.
pub fn identity_of_file(session: &Session<'_>, object: hid_t, number: u64) -> Option<Identity> {
    const MOST: usize = 64;
    let file = FileInfo::of(session, object).ok()?;
    let identity = file.descriptor.and_then(identity_of);
    let mut known = known();
    if known.len() == MOST {
        known.remove(0);
    }
    known.push((Copy::of(session.hdf5), number, identity));
    identity
}

/// Drops the identities of a copy of HDF5 that is about to number its files anew.
pub fn forget_identities(hdf5: &Hdf5) {
    let copy = Copy::of(hdf5);
    known().retain(|file| file.0 != copy);
}

/// Returns the identity of the file with this name.
pub fn identity(path: &Path) -> Option<Identity> {
    Some(open_files::identity(&std::fs::metadata(path).ok()?))
}
