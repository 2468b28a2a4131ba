//! What belongs to an object of HDF5, as identifiers that the caller owns.

use std::ptr;

use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

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

    pub(crate) fn file_of(&self, object: hid_t) -> Result<Id> {
        let hdf5 = self.hdf5;
        let action = "get the file of the dataset";
        self.get(hdf5.H5Iget_file_id, object, hdf5.H5Fclose, action)
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
