//! What datasets that are described together have in common: files and element types, each of which
//! HDF5 is asked about once.

use std::sync::Arc;

use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::file_info::file_of;
use super::{ElementType, FileInfo};
use crate::library::{Id, Session};

/// What was found of several datasets.
#[derive(Default)]
pub(crate) struct Common {
    pub(super) files: Files,
    pub(super) elements: Elements,
}

/// Open files. Identifiers stay open, so that none of them comes to stand for another file, and so
/// that descriptors stay valid.
#[derive(Default)]
pub(super) struct Files(Vec<(Id, Arc<FileInfo>)>);

/// Element types by number.
#[derive(Default)]
pub(super) struct Elements(Vec<(Id, ElementType)>);

/// Number of files, and of types, with which a new one is compared. Below a connector, each dataset
/// may have another identifier of the same file.
const MOST: usize = 64;

impl Files {
    /// Describes the file of an object.
    pub(super) fn of(&mut self, session: &Session<'_>, object: hid_t) -> Result<Arc<FileInfo>> {
        let file = file_of(session, object)?;
        let mut known = self.0.iter().rev().take(MOST);
        if let Some((_, info)) = known.find(|known| known.0.get() == file.get()) {
            return Ok(Arc::clone(info));
        }
        let info = Arc::new(FileInfo::of_file(session, &file)?);
        self.0.push((file, Arc::clone(&info)));
        Ok(info)
    }
}

impl Elements {
    /// Returns the number of a dataset's element type. Datasets of the same number have equal types.
    pub(super) fn of(&mut self, session: &Session<'_>, dataset: hid_t) -> Result<usize> {
        let hdf5 = session.hdf5;
        // SAFETY: takes the dataset's identifier, which HDF5 checks, and returns an owned one.
        let found = unsafe { (hdf5.H5Dget_type)(dataset) };
        let found = session.own(found, hdf5.H5Tclose, "get the type")?;
        for (number, (known, _)) in self.0.iter().enumerate().rev().take(MOST) {
            // SAFETY: takes owned identifiers.
            let equal = unsafe { (hdf5.H5Tequal)(known.get(), found.get()) };
            if session.check(equal, "compare two types")? > 0 {
                return Ok(number);
            }
        }
        let element = ElementType::read(session, found.get())?;
        self.0.push((found, element));
        Ok(self.0.len() - 1)
    }

    /// Returns the type of a number that [`of`](Self::of) has returned.
    pub(super) fn get(&self, number: usize) -> (&Id, &ElementType) {
        let (id, element) = &self.0[number];
        (id, element)
    }
}

impl Common {
    /// Starts with the file of an object, which was described before.
    pub(crate) fn of_file(
        session: &Session<'_>,
        object: hid_t,
        info: Arc<FileInfo>,
    ) -> Result<Common> {
        Ok(Common {
            files: Files(vec![(file_of(session, object)?, info)]),
            elements: Elements::default(),
        })
    }

    /// Returns HDF5's identifiers of the types, by number, and of the files. The receiver must close
    /// them.
    pub(crate) fn keep(self) -> (Vec<hid_t>, Vec<hid_t>) {
        let types = self.elements.0.into_iter().map(|(id, _)| id.keep());
        let files = self.files.0.into_iter().map(|(id, _)| id.keep());
        (types.collect(), files.collect())
    }
}
