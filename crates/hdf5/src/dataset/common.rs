//! What datasets that are described together have in common: files and element types, each of which is read
//! from HDF5 once.

use std::sync::Arc;

use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::{FileInfo, FileType};
use crate::library::{Id, Session};

/// What was found of several datasets.
#[derive(Default)]
pub(crate) struct Common {
    pub(super) files: Files,
    pub(super) elements: Elements,
}

/// Open files. Their identifiers stay open, so that HDF5 gives none of them to another file, and so that
/// descriptors stay valid.
#[derive(Default)]
pub(super) struct Files(Vec<(Id, Arc<FileInfo>)>);

/// Element types by number.
#[derive(Default)]
pub(super) struct Elements(Vec<Element>);

/// An element type: HDF5's identifier, its form in files, and the size of an address there.
struct Element {
    id: Id,
    stored: FileType,
    address_size: usize,
}

/// Number of files, and of types, with which a new one is compared. Below a connector, each dataset
/// may have another identifier of the same file.
const MOST: usize = 64;

impl Files {
    /// Describes the file of an object.
    pub(super) fn of(&mut self, session: &Session<'_>, object: hid_t) -> Result<Arc<FileInfo>> {
        let file = session.file_of(object)?;
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
    /// Returns the number of the element type of a dataset in a file. Datasets of the same number have equal
    /// types, also as they are stored.
    pub(super) fn of(
        &mut self,
        session: &Session<'_>,
        dataset: hid_t,
        file: &FileInfo,
    ) -> Result<usize> {
        let found = session.type_of(dataset)?;
        for (number, known) in self.0.iter().enumerate().rev().take(MOST) {
            let is_equal = session.are_equal(known.id.get(), found.get())?;
            let is_same_size = known.address_size == file.address_size;
            if is_equal && (is_same_size || known.stored.only_hdf5().is_none()) {
                return Ok(number);
            }
        }
        self.0.push(Element {
            stored: FileType::read(session, found.get(), file.address_size)?,
            id: found,
            address_size: file.address_size,
        });
        Ok(self.0.len() - 1)
    }

    /// Returns the type of a number that [`of`](Self::of) has returned.
    pub(super) fn get(&self, number: usize) -> (&Id, &FileType) {
        let Element { id, stored, .. } = &self.0[number];
        (id, stored)
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
            files: Files(vec![(session.file_of(object)?, info)]),
            elements: Elements::default(),
        })
    }

    /// Returns HDF5's identifiers of the types, by number, and of the files. The receiver must close
    /// them.
    pub(crate) fn keep(self) -> (Vec<hid_t>, Vec<hid_t>) {
        let types = self.elements.0.into_iter().map(|known| known.id.keep());
        let files = self.files.0.into_iter().map(|(id, _)| id.keep());
        (types.collect(), files.collect())
    }
}
