//! The connector "penstock_async" of HDF5's virtual object layer.
//!
//! The connector is above another connector, by default the native one, and forwards calls to it.
//! HDF5 calls the functions in the files named after its interfaces (`dataset`, `group` ...). Each
//! of them calls the same function of the connector below through `callback`; `forward!` defines
//! those that do nothing else. HDF5 holds the objects of the connector below in wrappers
//! (`wrapped`), which this connector removes before it passes an object down. Everything runs on
//! the thread that has called HDF5, inside that call.

#![deny(missing_docs, unreachable_pub)]

#[macro_use]
mod forward;

mod access_list;
mod access_sets;
mod agreement;
mod api_call;
mod attribute;
mod background;
mod blob;
mod callback;
mod calling_function;
mod calling_library;
mod configuration;
mod connector_below;
mod container;
mod conversion;
mod dataset;
mod dataspace;
mod datatype;
mod file;
mod group;
mod host_buffers;
mod info;
mod introspect;
mod last_ids;
mod link;
mod log;
mod mpi;
mod object;
mod opening;
mod operation;
mod owned_id;
mod policy;
mod protocol;
mod registration;
mod report_order;
mod request;
mod settings;
mod shared_file;
mod temporary_id;
mod token;
mod transfer_list;
mod under;
mod unwrapped;
mod visit;
mod wrap;
mod wrapped;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, Hdf5, herr_t, hid_t};

use callback::operate;
use calling_library::CallingLibrary;
use configuration::Configuration;
use connector_below::ConnectorBelow;
use info::{ConnectorInfo, ListInfo};
use penstock_hdf5::library::callback::SUCCEED;
use penstock_hdf5::library::copies::{SLOTS, slot_of};
use penstock_hdf5::transfer::conflicts::forget_identities;
use registration::{CAP_FLAGS, NAME, VALUE, VERSION};
use settings::ConnectorSettings;
use visit::while_closing;

forward! {
    operate optional = H5VLoptional, NAME;
}

/// Finishes all pending operations when the library closes, for `H5atclose`.
unsafe extern "C" fn finish<const SLOT: usize>(_: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        if let Some(library) = CallingLibrary::of(SLOT) {
            while_closing(|| background::finish_all(library));
            // SAFETY: HDF5 calls this function.
            unsafe {
                while_closing(|| request::wait_for_event_sets(library));
                file::close_all(library);
            }
            drop(unwrapped::take_container(library));
        }
    });
}

/// Registers [`finish`] with the library.
unsafe extern "C" fn initialize<const SLOT: usize>(_: hid_t) -> herr_t {
    if let Some(library) = CallingLibrary::of(SLOT) {
        // H5close forgets connectors. A library that is initialised again restarts the numbers of its files.
        forget_identities(library.hdf5);
        shared_file::forget_open_files(library);
        std::mem::forget(unwrapped::take_container(library));
        // After a failure, HDF5 may be trying each connector that it finds.
        library.keeping_errors(|| {
            // SAFETY: the function exists as long as the process.
            unsafe { (library.calls.H5atclose)(finish::<SLOT>, ptr::null_mut()) };
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

/// Returns the connector for the copy of HDF5 that contains `code`, the address of one of its
/// instructions. Calls no function of HDF5.
///
/// # Errors
/// The address belongs to no copy of HDF5, or to one that exports no functions for connectors.
pub fn class_for(code: *const c_void) -> Result<&'static H5VL_class_t> {
    Ok(&CLASSES[library_of(code)?.slot])
}

fn library_of(code: *const c_void) -> Result<CallingLibrary> {
    CallingLibrary::of(slot_of(code)?).ok_or_else(|| {
        Error::new(
            Kind::Unavailable,
            "this HDF5 exports no functions for connectors",
        )
        .remedy("use HDF5 1.14 or 2.x as a shared library")
    })
}

/// Checks the text after the connector's name in `HDF5_VOL_CONNECTOR`, as far as possible without
/// HDF5.
///
/// # Errors
/// A key is unknown, or its value is malformed.
pub fn check(text: &str) -> Result<()> {
    ConnectorSettings::parse(&Configuration::parse(text)?.settings).map(drop)
}

/// Returns whether the library has registered a connector of this name, this one or another.
///
/// # Safety
/// The thread holds the lock of `hdf5`.
pub unsafe fn is_registered(hdf5: &Hdf5) -> bool {
    library_of(hdf5.H5open as *const c_void).is_ok_and(|library| {
        // SAFETY: the name is a C string.
        unsafe { (library.calls.H5VLis_connector_registered_by_name)(NAME.as_ptr()) > 0 }
    })
}

/// Sets the connector in a file access property list, above the connector that the list uses. If
/// the list already uses this connector, the call replaces its settings.
///
/// # Errors
/// `options` is malformed, or HDF5 refuses the identifier.
///
/// # Safety
/// `fapl` is an identifier of `hdf5`, and the thread holds the lock of that library.
pub unsafe fn set_on_access_list(hdf5: &Hdf5, fapl: hid_t, options: &str) -> Result<()> {
    let settings = Arc::new(ConnectorSettings::parse(options)?);
    let library = library_of(hdf5.H5open as *const c_void)?;
    let failed = |action: &str| Error::new(Kind::Invalid, format!("HDF5 cannot {action}"));
    // SAFETY: the pointers are valid for the answers, the class is a constant, and HDF5 checks the
    // identifiers.
    unsafe {
        // Queried each time, because H5close forgets registered connectors.
        let own = if (library.calls.H5VLis_connector_registered_by_name)(NAME.as_ptr()) > 0 {
            (library.calls.H5VLget_connector_id_by_name)(NAME.as_ptr())
        } else {
            (library.calls.H5VLregister_connector)(&CLASSES[library.slot], H5P_DEFAULT)
        };
        if own < 0 {
            return Err(failed("register the connector"));
        }
        let own = ConnectorBelow { library, id: own };
        let mut present = 0;
        if (library.calls.H5Pget_vol_id)(fapl, &mut present) < 0 {
            return Err(failed("find the connector of the list")
                .remedy("give the identifier of a file access property list"));
        }
        let present = ConnectorBelow {
            library,
            id: present,
        };
        let info = if present.compare(&own) == 0 {
            let info = ConnectorInfo::of_access_list(library, fapl)?;
            let changed = info.with_settings(settings);
            changed.ok_or_else(|| failed("copy the configuration of the connector below"))?
        } else {
            let mut under_info = ptr::null_mut();
            if (library.calls.H5Pget_vol_info)(fapl, &mut under_info) < 0 {
                return Err(failed(
                    "find the configuration of the connector of the list",
                ));
            }
            ConnectorInfo::above(present, under_info, settings)
        };
        let info: *const ListInfo = &ListInfo::Usable(info);
        if (library.calls.H5Pset_vol)(fapl, own.id, info.cast()) < 0 {
            Err(failed("set the connector"))
        } else {
            Ok(())
        }
    }
}

/// Sets the stream after which GPU memory is ready, for all transfers with a property list.
///
/// # Errors
/// `list` is not a property list of dataset transfers.
///
/// # Safety
/// `list` is an identifier of `hdf5`, and the thread holds the lock of that library. `stream` is a live
/// CUDA stream as long as the list is in use.
pub unsafe fn set_stream(hdf5: &Hdf5, list: hid_t, stream: *mut c_void) -> Result<()> {
    let library = library_of(hdf5.H5open as *const c_void)?;
    // SAFETY: the caller guarantees this.
    unsafe { transfer_list::set_stream(library, list, stream) }
}
