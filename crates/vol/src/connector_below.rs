//! The connector below this one.

use std::ffi::{CStr, c_int};
use std::sync::Mutex;

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::calling_library::CallingLibrary;
use super::configuration::UnderVol;
use penstock_hdf5::library::callback::c_text;

/// Returns a name that is never freed: HDF5 (1.14.4, 2.2.0) keeps the pointer with the plugin it
/// has found.
fn kept(name: &str) -> &'static CStr {
    static NAMES: Mutex<Vec<&CStr>> = Mutex::new(Vec::new());
    let name = c_text(name);
    let mut names = NAMES.lock().recover();
    let known = names.iter().find(|known| **known == name.as_ref()).copied();
    known.unwrap_or_else(|| {
        let new: &'static CStr = Box::leak(name.into());
        names.push(new);
        new
    })
}

/// HDF5's own connector that only passes calls on (`H5VLpassthru.h`). HDF5 1.14 registers it when a
/// program first uses its identifier, and searches for it only in the text of `HDF5_VOL_CONNECTOR`.
const PASS_THROUGH_NAME: UnderVol<'_> = UnderVol::Name("pass_through");
const PASS_THROUGH_VALUE: UnderVol<'_> = UnderVol::Value(1);

/// The connector below. It holds one reference to the identifier.
pub(crate) struct ConnectorBelow {
    pub(crate) library: CallingLibrary,
    pub(crate) id: hid_t,
}

impl ConnectorBelow {
    /// Finds the connector with this value or name. HDF5 also searches its plugins.
    pub(crate) fn find(library: CallingLibrary, under: UnderVol<'_>) -> Result<ConnectorBelow> {
        if [PASS_THROUGH_NAME, PASS_THROUGH_VALUE].contains(&under)
            && let Some(register) = library.calls.H5VL_pass_through_register
        {
            // SAFETY: the thread is inside a call of this HDF5.
            unsafe { register() };
        }
        // SAFETY: the thread is inside a call of this HDF5, and the name is a C string.
        let (id, written) = unsafe {
            match under {
                UnderVol::Value(value) => (
                    (library.calls.H5VLregister_connector_by_value)(value, H5P_DEFAULT),
                    value.to_string(),
                ),
                UnderVol::Name(name) => (
                    (library.calls.H5VLregister_connector_by_name)(
                        kept(name).as_ptr(),
                        H5P_DEFAULT,
                    ),
                    name.to_owned(),
                ),
            }
        };
        if id < 0 {
            Err(Error::invalid(format!(
                "HDF5 finds no connector for the option under_vol={written}"
            ))
            .remedy("name its folder in HDF5_PLUGIN_PATH, or write under_vol=0 for the native one"))
        } else {
            Ok(ConnectorBelow { library, id })
        }
    }

    /// Returns the value by which HDF5 identifies the connector; `None` if HDF5 does not return it.
    pub(crate) fn value(&self) -> Option<c_int> {
        let mut value = -1;
        // SAFETY: the identifier is open, and `value` receives the answer.
        let ask = || unsafe { (self.library.calls.H5VLget_value)(self.id, &mut value) };
        (self.library.keeping_errors(ask) >= 0).then_some(value)
    }

    /// Compares two connectors: returns less than 0, 0 or greater than 0.
    pub(crate) fn compare(&self, other: &ConnectorBelow) -> c_int {
        // Since 2.0, one connector may have several identifiers.
        if self.id == other.id {
            return 0;
        }
        let mut order = 0;
        // SAFETY: both identifiers are open, and `order` receives the answer.
        unsafe { (self.library.calls.H5VLcmp_connector_cls)(&mut order, self.id, other.id) };
        order
    }
}

impl Drop for ConnectorBelow {
    fn drop(&mut self) {
        // SAFETY: this object owns the reference. If the closing HDF5 has already released it, the call
        // fails without harm.
        self.library
            .keeping_errors(|| unsafe { (self.library.calls.H5Idec_ref)(self.id) });
    }
}
