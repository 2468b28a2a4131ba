//! The HDF5 that calls, and the connector below, as it is known there.

use std::ffi::{c_int, c_void};
use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::pass_through::Functions;
use penstock_sys::hdf5::{ErrorAuto, H5E_DEFAULT, H5P_DEFAULT, Hdf5, hid_t};

use super::text::Under;
use penstock_hdf5::library::callback::c_text;
use penstock_hdf5::library::copies::hdf5_of;

/// The copy of HDF5 that an object belongs to, with its functions for connectors. Only its own
/// threads call these, from inside a call of it.
#[derive(Clone, Copy)]
pub struct Host {
    pub hdf5: &'static Hdf5,
    pub calls: &'static Functions,
    pub slot: usize,
}

impl Host {
    /// Of a slot that [`slot_of`](penstock_hdf5::library::copies::slot_of) has told; `None` if this HDF5 exports
    /// no functions for connectors.
    pub fn of(slot: usize) -> Option<Host> {
        let hdf5 = hdf5_of(slot)?;
        let calls = hdf5.pass_through().ok()?;
        Some(Host { hdf5, calls, slot })
    }

    /// Calls HDF5 without a trace on the error stack, which most of its functions clear. The stack
    /// may hold what the connector below has said, which the application is yet to read.
    pub fn keeping_errors<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: the thread is inside a call of this HDF5.
        let errors = unsafe { (self.calls.H5Eget_current_stack)() };
        let value = body();
        if errors >= 0 {
            // SAFETY: the stack was returned just now, and is closed by this.
            unsafe { (self.calls.H5Eset_current_stack)(errors) };
        }
        value
    }
}

/// While it lives, the calling thread prints no errors.
///
/// HDF5 prints when the application's call fails. The functions for connectors are calls, too, so it
/// would print once more for each of them.
pub struct Quiet {
    host: Host,
    /// What prints, and its argument; none if nothing does, or a function of HDF5 1.6's kind.
    print: Option<(ErrorAuto, *mut c_void)>,
}

impl Quiet {
    pub fn begin(host: Host) -> Quiet {
        let (mut is_v2, mut print, mut data) = (0, None, ptr::null_mut());
        // SAFETY: there are places for the answers, and the thread is inside a call of this HDF5.
        unsafe {
            (host.calls.H5Eauto_is_v2)(H5E_DEFAULT, &mut is_v2);
            if is_v2 != 0 {
                (host.hdf5.H5Eget_auto2)(H5E_DEFAULT, &mut print, &mut data);
            }
            if print.is_some() {
                (host.hdf5.H5Eset_auto2)(H5E_DEFAULT, None, ptr::null_mut());
            }
        }
        let print = print.map(|print| (print, data));
        Quiet { host, print }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some((print, data)) = self.print {
            // SAFETY: puts back what `begin` found.
            unsafe { (self.host.hdf5.H5Eset_auto2)(H5E_DEFAULT, Some(print), data) };
        }
    }
}

/// The connector below, held by one reference of an identifier.
pub struct Below {
    pub host: Host,
    pub id: hid_t,
}

impl Below {
    /// The connector with this value or name, which HDF5 looks for among its plugins if need be.
    pub fn find(host: Host, under: Under<'_>) -> Result<Below> {
        // SAFETY: the thread is inside a call of this HDF5; the name is a C string.
        let (id, told) = unsafe {
            match under {
                Under::Value(value) => (
                    (host.calls.H5VLregister_connector_by_value)(value, H5P_DEFAULT),
                    value.to_string(),
                ),
                Under::Name(name) => (
                    (host.calls.H5VLregister_connector_by_name)(c_text(name).as_ptr(), H5P_DEFAULT),
                    name.to_owned(),
                ),
            }
        };
        match id < 0 {
            true => Err(Error::invalid(format!(
                "HDF5 finds no connector for the option under_vol={told}"
            ))
            .remedy(
                "name its folder in HDF5_PLUGIN_PATH, or write under_vol=0 for the native one",
            )),
            false => Ok(Below { host, id }),
        }
    }

    /// Less than, equal to or greater than 0: which of two connectors comes first.
    pub fn compare(&self, other: &Below) -> c_int {
        // From 2.0 on, one connector may have several identifiers.
        if self.id == other.id {
            return 0;
        }
        let mut order = 0;
        // SAFETY: both identifiers are held, and `order` is a place for the answer.
        unsafe { (self.host.calls.H5VLcmp_connector_cls)(&mut order, self.id, other.id) };
        order
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        // SAFETY: the reference is this object's. When HDF5 is closing, it may have taken it
        // already, and says so without harm.
        self.host
            .keeping_errors(|| unsafe { (self.host.calls.H5Idec_ref)(self.id) });
    }
}
