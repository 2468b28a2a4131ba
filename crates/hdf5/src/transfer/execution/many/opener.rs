//! Opens many objects by paths of which successive ones often have a common beginning.

use std::ffi::{CStr, CString};

use penstock_array::in_dataset;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use crate::dataset::name_of;
use crate::library::{Id, Session};

/// Opens objects. If two paths in turn lead through the same groups, the last group stays open, and
/// only the rest of the path is followed from there.
#[derive(Default)]
pub(in crate::transfer) struct Opener {
    /// The file or group of the last path, and its name.
    place: Option<(hid_t, String)>,
    /// The last path without its last name.
    groups: Vec<u8>,
    /// The group at `groups`, if two successive paths led through it.
    group: Option<Id>,
}

impl Opener {
    /// Opens an object by its path from a file or group. Also returns its path in the file.
    pub(in crate::transfer) fn open(
        &mut self,
        session: &Session<'_>,
        place: hid_t,
        path: &CStr,
    ) -> Result<(Id, String)> {
        let is_same_place = matches!(self.place, Some((known, _)) if known == place);
        if !is_same_place {
            self.group = None;
            self.groups.clear();
            self.place = Some((place, name_of(session, place)?));
        }
        let opened = match self.along_group(session, place, path) {
            Some(opened) => opened,
            None => open(session, place, path)?,
        };
        Ok((opened, self.full(path)))
    }

    fn along_group(&mut self, session: &Session<'_>, place: hid_t, path: &CStr) -> Option<Id> {
        let bytes = path.to_bytes_with_nul();
        let at = bytes.iter().rposition(|byte| *byte == b'/')?;
        let groups = &bytes[..at];
        let last = CStr::from_bytes_with_nul(&bytes[at + 1..]).ok()?;
        if groups.is_empty() || matches!(last.to_bytes(), b"" | b".") {
            return None;
        }
        if self.groups != groups {
            self.group = None;
            groups.clone_into(&mut self.groups);
            return None;
        }
        if self.group.is_none() {
            let groups = CString::new(groups).ok()?;
            self.group = Some(open(session, place, &groups).ok()?);
        }
        open(session, self.group.as_ref()?.get(), last).ok()
    }

    fn full(&self, path: &CStr) -> String {
        let path = path.to_string_lossy();
        match &self.place {
            Some((_, name)) if !path.starts_with('/') => {
                format!("{}/{path}", name.trim_end_matches('/'))
            }
            _ => path.into_owned(),
        }
    }
}

pub(in crate::transfer) fn open(session: &Session<'_>, place: hid_t, path: &CStr) -> Result<Id> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; the path is a C string.
    let opened = unsafe { (hdf5.H5Oopen)(place, path.as_ptr(), H5P_DEFAULT) };
    session
        .own(opened, hdf5.H5Oclose, "open it")
        .map_err(|error| named(error, &path.to_string_lossy()))
}

/// Adds the name of the dataset to an error without one.
pub(in crate::transfer) fn named(error: Error, name: &str) -> Error {
    if error.cause().starts_with("dataset ") {
        error
    } else {
        in_dataset(error, name)
    }
}
