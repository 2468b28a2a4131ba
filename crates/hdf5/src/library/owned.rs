//! What belongs to an object of HDF5, as identifiers that the caller owns.

use std::ffi::c_uint;
use std::ptr;

use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5F_OBJ_ALL, H5F_OBJ_FILE, hid_t};

use super::in_call::may_flush;
use super::session::{Close, Id, Session};

impl Session<'_> {
    fn get(
        &self,
        get: unsafe extern "C" fn(hid_t) -> hid_t,
        from: hid_t,
        close: Close,
        action: &str,
    ) -> Result<Id> {
        // SAFETY: the functions below take an identifier, which HDF5 checks, and return an owned one.
        self.own(unsafe { get(from) }, close, action)
    }

    /// Returns an identifier of the file of an object.
    ///
    /// A file that only links have opened has none, and H5Iget_file_id makes one. When that is closed, HDF5 flushes the
    /// file if it is open in another way, too. Where it cannot flush, the identifier of the other way is returned.
    pub(crate) fn file_of(&self, object: hid_t) -> Result<Id> {
        let hdf5 = self.hdf5;
        if !may_flush()
            && let Some(file) = self.open_file_of(object)
        {
            return Ok(file);
        }
        let action = "get the file of the dataset";
        self.get(hdf5.H5Iget_file_id, object, hdf5.H5Fclose, action)
    }

    /// Returns another reference to an identifier that exists of the file of an object.
    fn open_file_of(&self, object: hid_t) -> Option<Id> {
        let hdf5 = self.hdf5;
        let number = |id| self.object(id).ok().map(|(number, _)| number);
        let own = number(object)?;
        let files = self.open_ids(H5F_OBJ_FILE)?;
        let file = files.into_iter().find(|file| number(*file) == Some(own))?;
        // SAFETY: takes an identifier, which HDF5 checks.
        let references = unsafe { (hdf5.H5Iinc_ref)(file) };
        (references > 0)
            .then(|| self.own(file, hdf5.H5Fclose, "open the file"))?
            .ok()
    }

    /// Returns the identifiers of open objects of this kind in all files; `None` if HDF5 does not report them.
    pub(crate) fn open_ids(&self, kind: c_uint) -> Option<Vec<hid_t>> {
        let (hdf5, all) = (self.hdf5, hid_t::from(H5F_OBJ_ALL));
        // SAFETY: takes no memory.
        let count = unsafe { (hdf5.H5Fget_obj_count)(all, kind) };
        let mut ids = vec![0; usize::try_from(count).ok()?];
        // SAFETY: there is room for as many identifiers as is passed.
        let found = unsafe { (hdf5.H5Fget_obj_ids)(all, kind, ids.len(), ids.as_mut_ptr()) };
        ids.truncate(usize::try_from(found).ok()?);
        Some(ids)
    }

    pub(crate) fn access_of_file(&self, file: &Id) -> Result<Id> {
        let hdf5 = self.hdf5;
        let action = "get the file's access properties";
        self.get(hdf5.H5Fget_access_plist, file.get(), hdf5.H5Pclose, action)
    }

    pub(crate) fn access_of_dataset(&self, dataset: hid_t) -> Result<Id> {
        let hdf5 = self.hdf5;
        let action = "get the access properties";
        self.get(hdf5.H5Dget_access_plist, dataset, hdf5.H5Pclose, action)
    }

    pub(crate) fn space_of(&self, dataset: hid_t) -> Result<Id> {
        let hdf5 = self.hdf5;
        self.get(
            hdf5.H5Dget_space,
            dataset,
            hdf5.H5Sclose,
            "get the dataspace",
        )
    }

    /// Returns the type of a dataset's elements, as they are in memory.
    pub(crate) fn type_of(&self, dataset: hid_t) -> Result<Id> {
        let hdf5 = self.hdf5;
        self.get(hdf5.H5Dget_type, dataset, hdf5.H5Tclose, "get the type")
    }

    pub(crate) fn simple_space(&self, shape: &[u64]) -> Result<Id> {
        let create = self.hdf5.H5Screate_simple;
        // SAFETY: as many lengths as are passed; the result is owned.
        let space = unsafe { create(shape.len() as i32, shape.as_ptr(), ptr::null()) };
        self.own(space, self.hdf5.H5Sclose, "create a dataspace")
    }

    pub(crate) fn are_equal(&self, one: hid_t, other: hid_t) -> Result<bool> {
        // SAFETY: HDF5 checks both identifiers.
        let equal = unsafe { (self.hdf5.H5Tequal)(one, other) };
        Ok(self.check(equal, "compare two types")? > 0)
    }

    pub(crate) fn intent_of(&self, file: &Id) -> Result<u32> {
        let mut intent = 0;
        // SAFETY: an owned identifier, and a place for the result.
        let status = unsafe { (self.hdf5.H5Fget_intent)(file.get(), &mut intent) };
        self.check(status, "get the state of the file")?;
        Ok(intent)
    }
}
