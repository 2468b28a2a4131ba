//! The virtual file driver "penstock": HDF5 files whose raw data may be in GPU memory.
//!
//! HDF5 calls the callbacks with ranges of the file. One system call moves HDF5's own data. The
//! engine moves raw data in GPU memory; for comparison, one of the `modes` that programs use without the
//! engine can do so. `docs/how-to/hdf5-driver.md` lists for which cases of
//! `H5Dread` and `H5Dwrite` the driver receives the GPU pointer, and in which HDF5 accesses the
//! data with the CPU first.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

mod account;
mod callbacks;
mod file;
mod information;
mod modes;
mod page_buffer;
mod selection;
mod settings;
mod sieve;
mod survey;
mod transfer;

use std::ffi::{CStr, c_int, c_void};

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::options::Options;
use penstock_sys::hdf5::driver::{H5FD_CLASS_VERSION, H5FD_MEM_DRAW, H5FD_MEM_SUPER, H5FD_class_t};
use penstock_sys::hdf5::{H5F_CLOSE_WEAK, Hdf5, hid_t};

use callbacks::{Read, Write};
use file::{DriverFile, MAX_ADDRESS, with_identifier};
use penstock_hdf5::library::callback::{self, c_text};
use penstock_hdf5::library::copies::{SLOTS, slot_of};
use penstock_hdf5::library::plain_files::{self, PlainDriver};
pub use settings::Settings;

const NAME: &CStr = c"penstock";

/// HDF5's number of the driver, in addition to its name. Values from 512 on are for general use.
const VALUE: i32 = 27_022;

const fn class<const SLOT: usize>() -> H5FD_class_t {
    const METADATA: i32 = H5FD_MEM_SUPER;
    const RAW: i32 = H5FD_MEM_DRAW;
    H5FD_class_t {
        version: H5FD_CLASS_VERSION,
        value: VALUE,
        name: NAME.as_ptr(),
        maxaddr: MAX_ADDRESS,
        fc_degree: H5F_CLOSE_WEAK,
        terminate: None,
        sb_size: None,
        sb_encode: None,
        sb_decode: None,
        fapl_size: information::SIZE,
        fapl_get: Some(callbacks::fapl_get),
        fapl_copy: Some(callbacks::fapl_copy),
        fapl_free: Some(callbacks::fapl_free),
        dxpl_size: 0,
        dxpl_copy: None,
        dxpl_free: None,
        open: Some(callbacks::open::<SLOT>),
        close: Some(callbacks::close),
        cmp: Some(callbacks::cmp),
        query: Some(callbacks::query),
        get_type_map: None,
        alloc: None,
        free: None,
        get_eoa: Some(callbacks::get_eoa),
        set_eoa: Some(callbacks::set_eoa),
        get_eof: Some(callbacks::get_eof),
        get_handle: Some(callbacks::get_handle),
        read: Some(callbacks::range::<Read>),
        write: Some(callbacks::range::<Write>),
        read_vector: Some(callbacks::vector::<Read>),
        write_vector: Some(callbacks::vector::<Write>),
        read_selection: Some(callbacks::selection::<Read>),
        write_selection: Some(callbacks::selection::<Write>),
        flush: Some(callbacks::flush),
        truncate: Some(callbacks::truncate),
        lock: Some(callbacks::lock),
        unlock: Some(callbacks::unlock),
        del: Some(callbacks::del::<SLOT>),
        ctl: Some(callbacks::ctl),
        // Free space of metadata and raw data is separate, as in the default driver. In order:
        // default, super, B-tree, raw, global heap, local heap, object header.
        fl_map: [METADATA, METADATA, METADATA, RAW, RAW, METADATA, METADATA],
    }
}

static CLASSES: [H5FD_class_t; SLOTS] = [class::<0>(), class::<1>(), class::<2>(), class::<3>()];

/// Returns the driver for the HDF5 that contains `code`, the address of one of its instructions.
/// Calls no function of HDF5.
pub fn class_for(code: *const c_void) -> Result<&'static H5FD_class_t> {
    plain_files::register(PlainDriver {
        has_opened,
        options_of,
        write_out,
    });
    Ok(&CLASSES[slot_of(code)?])
}

/// Sets the driver on a file access property list, with options as in `HDF5_DRIVER_CONFIG`.
///
/// # Safety
/// `fapl` is an identifier of `hdf5`, whose lock is held.
pub unsafe fn set_on_access_list(hdf5: &Hdf5, fapl: hid_t, options: &str) -> Result<()> {
    // Reports invalid options here instead of when a file is opened.
    Settings::parse(options)?;
    let class = class_for(hdf5.H5open as *const c_void)?;
    let failed = |action: &str| Error::new(Kind::Invalid, format!("HDF5 cannot {action}"));
    let options = c_text(options);
    // SAFETY: the class is static, the texts are C strings, and HDF5 checks the identifier.
    unsafe {
        // Queried each time, because H5close drops all registrations.
        if (hdf5.H5FDis_driver_registered_by_name)(NAME.as_ptr()) <= 0
            && (hdf5.H5FDregister)(class) < 0
        {
            return Err(failed("register the driver"));
        }
        if (hdf5.H5Pset_driver_by_name)(fapl, NAME.as_ptr(), options.as_ptr()) < 0 {
            Err(failed("set the driver")
                .remedy("give the identifier of a file access property list"))
        } else {
            Ok(())
        }
    }
}

/// Does the same as [`set_on_access_list`], and also pushes an error onto HDF5's error stack.
/// Callers with HDF5's own signature read errors only there.
///
/// # Safety
/// As for [`set_on_access_list`].
pub unsafe fn set_on_access_list_and_push(hdf5: &Hdf5, fapl: hid_t, options: &str) -> Result<()> {
    const SET: callback::ErrorSite =
        callback::error_site(c"penstock_fapl_set", "H5E_PLIST_g", "H5E_CANTSET_g");
    // SAFETY: upheld by the caller.
    unsafe { set_on_access_list(hdf5, fapl, options) }
        .inspect_err(|error| callback::push(hdf5, SET, error))
}

/// Returns whether this driver opened the file with this driver identifier and handle, with no
/// other driver above it. `H5Pget_driver` and `H5Fget_vfd_handle` return these. File offsets are
/// then those of one plain file.
fn has_opened(driver: hid_t, handle: *const c_void) -> bool {
    DriverFile::with_handle(handle, |file| Ok(file.driver == driver)).unwrap_or(false)
}

/// Returns the options of the file that this driver has open with a descriptor. Returns the
/// defaults if there is none.
fn options_of(descriptor: c_int) -> Options {
    let options = DriverFile::with_descriptor(descriptor, |file| file.settings().options);
    options.unwrap_or_default()
}

/// Writes what the sieve holds of the file with a descriptor and drops its copies. Does nothing if
/// the driver has not opened the file.
fn write_out(descriptor: c_int) -> Result<()> {
    let written = DriverFile::with_descriptor(descriptor, |file| file.sieve.evict());
    written.unwrap_or(Ok(()))
}

/// Replaces the options of an open file from the next transfer on.
///
/// # Safety
/// `file` is an identifier of `hdf5`, whose lock is held.
pub unsafe fn set_options(hdf5: &Hdf5, file: hid_t, options: &str) -> Result<()> {
    let settings = Settings::parse(options)?;
    // SAFETY: upheld by the caller.
    unsafe {
        with_identifier(hdf5, file, |file| {
            file.set(settings);
            Ok(())
        })
    }
}

/// Returns the calls, bytes and time of an open file so far, as JSON.
///
/// # Safety
/// `file` is an identifier of `hdf5`, whose lock is held.
pub unsafe fn report(hdf5: &Hdf5, file: hid_t) -> Result<String> {
    // SAFETY: upheld by the caller.
    unsafe { with_identifier(hdf5, file, |file| Ok(file.report().to_string())) }
}
