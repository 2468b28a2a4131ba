//! The connector "penstock_async" of HDF5's virtual object layer.
//!
//! It stands above another, the native one by default, and passes on what it is asked: HDF5 calls the
//! functions of the files named after its interfaces ([`dataset`], [`group`] ...), each of which calls
//! the same function of the connector below. What HDF5 holds of ours is [`wrapped`] around what that
//! connector has made, and goes there without its wrapper. Everything runs on the thread that has
//! called HDF5, inside that call.

#[macro_use]
mod forward;

mod attribute;
mod background;
mod blob;
mod dataset;
mod datatype;
mod file;
mod group;
mod host;
mod info;
mod introspect;
mod link;
mod object;
mod property;
mod reported;
mod request;
mod settings;
mod staging;
mod text;
mod token;
mod wrap;
mod wrapped;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, Hdf5, herr_t, hid_t};

use host::{Below, Host};
use info::Info;
use penstock_hdf5::library::callback::SUCCEED;
use penstock_hdf5::library::copies::{SLOTS, slot_of};
use penstock_hdf5::transfer::conflicts::forget_identities;
use settings::Settings;
use text::Parts;
use wrapped::operate;

/// Some programs know by "async" in the name that operations go on after a call.
const NAME: &CStr = c"penstock_async";

/// Identifies the connector to HDF5, beside its name: the values from 512 on are for everybody.
const VALUE: i32 = 27_022;

const VERSION: u32 = 1;

/// What the connector can do that the one below need not.
const CAP_FLAGS: u64 = H5VL_CAP_FLAG_ASYNC;

forward! {
    operate optional = H5VLoptional, NAME;
}

/// For H5atclose: the library closes.
unsafe extern "C" fn ends<const SLOT: usize>(_: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        if let Some(host) = Host::of(SLOT) {
            background::at_end(|| background::finish_all(host));
            // SAFETY: HDF5 calls this.
            unsafe {
                background::at_end(|| request::empty_event_sets(host));
                file::close_all(host);
            }
        }
    });
}

/// Sees to it that the library does not close before what is pending is finished.
unsafe extern "C" fn initialize<const SLOT: usize>(_: hid_t) -> herr_t {
    if let Some(host) = Host::of(SLOT) {
        // H5close forgets what was registered, too.
        forget_identities(host.hdf5);
        // HDF5 may be trying all that it finds, after a failure.
        host.keeping_errors(|| {
            // SAFETY: the function lives as long as the process.
            unsafe { (host.calls.H5atclose)(ends::<SLOT>, ptr::null_mut()) };
        });
    }
    SUCCEED
}

const fn class<const SLOT: usize>() -> H5VL_class_t {
    H5VL_class_t {
        version: H5VL_VERSION,
        value: VALUE,
        name: NAME.as_ptr(),
        conn_version: VERSION,
        cap_flags: CAP_FLAGS,
        initialize: Some(initialize::<SLOT>),
        terminate: None,
        info_cls: info::class::<SLOT>(),
        wrap_cls: wrap::CLASS,
        attr_cls: attribute::CLASS,
        dataset_cls: dataset::CLASS,
        datatype_cls: datatype::CLASS,
        file_cls: file::class::<SLOT>(),
        group_cls: group::CLASS,
        link_cls: link::CLASS,
        object_cls: object::CLASS,
        introspect_cls: introspect::class::<SLOT>(),
        request_cls: request::CLASS,
        blob_cls: blob::CLASS,
        token_cls: token::CLASS,
        optional: Some(optional),
    }
}

static CLASSES: [H5VL_class_t; SLOTS] = [class::<0>(), class::<1>(), class::<2>(), class::<3>()];

/// The connector for the HDF5 that holds `code`, the address of one of its instructions. Nothing of
/// HDF5 is called.
pub fn class_for(code: *const c_void) -> Result<&'static H5VL_class_t> {
    Ok(&CLASSES[host_of(code)?.slot])
}

fn host_of(code: *const c_void) -> Result<Host> {
    Host::of(slot_of(code)?).ok_or_else(|| {
        Error::new(
            Kind::Unavailable,
            "this HDF5 exports no functions for connectors",
        )
        .remedy("use HDF5 1.14 or 2.x as a shared library")
    })
}

/// Whether the text after the connector's name is one that it takes, as far as that can be told without
/// HDF5.
pub fn check(text: &str) -> Result<()> {
    Settings::parse(&Parts::of(text)?.settings).map(drop)
}

/// Makes a file access property list use the connector, above the one that it uses. If that is this
/// one already, the settings are replaced.
///
/// # Safety
/// `fapl` is an identifier of `hdf5`, whose lock is held.
pub unsafe fn set_on_access_list(hdf5: &Hdf5, fapl: hid_t, options: &str) -> Result<()> {
    let settings = Arc::new(Settings::parse(options)?);
    let host = host_of(hdf5.H5open as *const c_void)?;
    let failed = |action: &str| Error::new(Kind::Invalid, format!("HDF5 cannot {action}"));
    // SAFETY: there are places for the answers, the class lives for ever, and HDF5 checks the
    // identifiers.
    unsafe {
        // Asked each time: H5close forgets what was registered.
        let own = match (host.calls.H5VLis_connector_registered_by_name)(NAME.as_ptr()) > 0 {
            true => (host.calls.H5VLget_connector_id_by_name)(NAME.as_ptr()),
            false => (host.calls.H5VLregister_connector)(&CLASSES[host.slot], H5P_DEFAULT),
        };
        if own < 0 {
            return Err(failed("register the connector"));
        }
        let own = Below { host, id: own };
        let mut present = 0;
        if (host.calls.H5Pget_vol_id)(fapl, &mut present) < 0 {
            return Err(failed("tell the connector of the list")
                .remedy("give the identifier of a file access property list"));
        }
        let present = Below { host, id: present };
        let info = if present.compare(&own) == 0 {
            let info = Info::of_access_list(host, fapl)?;
            let changed = info.with_settings(settings);
            changed.ok_or_else(|| failed("copy what the connector below is told"))?
        } else {
            let mut under_info = ptr::null_mut();
            if (host.calls.H5Pget_vol_info)(fapl, &mut under_info) < 0 {
                return Err(failed("tell what the connector of the list is told"));
            }
            Info::over(present, under_info, settings)
        };
        let info: *const Info = &info;
        match (host.calls.H5Pset_vol)(fapl, own.id, info.cast()) < 0 {
            true => Err(failed("set the connector")),
            false => Ok(()),
        }
    }
}

/// Sets the stream that GPU memory is ready after, for the transfers with a property list.
///
/// # Safety
/// `list` is an identifier of `hdf5`, whose lock is held. `stream` is a live CUDA stream as long as
/// the list is used.
pub unsafe fn set_stream(hdf5: &Hdf5, list: hid_t, stream: *mut c_void) -> Result<()> {
    let host = host_of(hdf5.H5open as *const c_void)?;
    // SAFETY: passed on.
    unsafe { property::set_stream(host, list, stream) }
}
