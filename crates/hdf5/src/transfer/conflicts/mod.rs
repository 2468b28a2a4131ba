//! Which operations are under way, what they read and write, and what has to come after them.

mod access;
mod failures;
mod pending;

use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_sys::hdf5::hid_t;

pub use access::{Access, AccessSet, FileKey, Identity, ObjectKey, Region};
pub use failures::Failures;
pub use pending::{
    Copy, Effort, Left, Pending, Shared, before, before_or, enter, finish_before, in_file,
    is_empty, is_idle, leave, oldest,
};

use crate::metadata::FileInfo;
use crate::session::Session;

/// The key of a file that Penstock has opened itself.
pub fn key_of_file(file: &Arc<File>) -> Option<FileKey> {
    let metadata = file.metadata().ok()?;
    Some(FileKey {
        number: None,
        identity: Some((metadata.dev(), metadata.ino())),
    })
}

/// HDF5's number of the open file that an object lies in.
pub fn number_of_file(session: &Session<'_>, object: hid_t) -> Result<u64> {
    session.object(object).map(|(number, _)| number)
}

/// The key of a dataset, or another object, in a file that is described.
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

/// The identity of an open file.
fn identity_of(descriptor: i32) -> Option<Identity> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is a place for the answer, which is filled where the call succeeds.
    unsafe {
        (libc::fstat(descriptor, status.as_mut_ptr()) == 0).then(|| {
            let status = status.assume_init();
            (status.st_dev, status.st_ino)
        })
    }
}

/// The identity of the file of an object, which HDF5 has open under a number. It is asked for once.
pub fn identity_of_file(
    session: &Session<'_>,
    object: hid_t,
    number: Option<u64>,
) -> Option<Identity> {
    /// Files whose identity is kept.
    const MOST: usize = 64;
    static KNOWN: Mutex<Vec<(Copy, u64, Option<Identity>)>> = Mutex::new(Vec::new());
    let ask = || {
        FileInfo::of(session, object)
            .ok()?
            .descriptor
            .and_then(identity_of)
    };
    let Some(number) = number else { return ask() };
    let copy = Copy::of(session.hdf5);
    let known = || KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let of_file = |known: &&(Copy, u64, Option<Identity>)| known.0 == copy && known.1 == number;
    if let Some((_, _, identity)) = known().iter().find(of_file) {
        return *identity;
    }
    let identity = ask();
    let mut known = known();
    if known.len() == MOST {
        known.remove(0);
    }
    known.push((copy, number, identity));
    identity
}

/// The identity of the file with this name.
pub fn identity(path: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
