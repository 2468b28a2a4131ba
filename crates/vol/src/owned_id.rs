//! Identifiers of property lists and dataspaces that this connector has made.

use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;

/// An identifier that is closed when dropped, by a thread inside a call of its HDF5.
pub(crate) struct OwnedId {
    library: CallingLibrary,
    pub(crate) id: hid_t,
}

impl OwnedId {
    /// Takes ownership of a new identifier; `None` if HDF5 has failed to make it.
    pub(crate) fn of(library: CallingLibrary, id: hid_t) -> Option<OwnedId> {
        (id >= 0).then_some(OwnedId { library, id })
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, and nothing uses it later.
        self.library
            .keeping_errors(|| unsafe { (self.library.calls.H5Idec_ref)(self.id) });
    }
}
