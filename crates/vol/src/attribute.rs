//! Attributes, `H5A`.

use std::ffi::{CStr, c_char, c_int, c_void};

use penstock_engine::error::{Error, Result};
use penstock_engine::memory::is_on_host;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::background::Loan;
use super::host::Quiet;
use super::staging::{Staging, refuse_pointers};
use super::wrapped::{Ask, Under, attempt, close, make, operate, operate_or_visit};

forward! {
    make create = H5VLattr_create, c"H5Acreate_async";
    make open = H5VLattr_open, c"H5Aopen_async";
    operate get = H5VLattr_get, c"H5Aget";
    operate optional = H5VLattr_optional, c"H5A";
    close close_attribute = H5VLattr_close, c"H5Aclose_async";
}

/// The memory of an attribute's elements, as HDF5 can reach it.
enum Memory {
    OnHost(*mut c_void),
    /// GPU memory, and what stands for it.
    Staged(Staging),
}

impl Memory {
    /// # Safety
    /// The thread is inside a callback on `under`, an attribute, whose elements the memory can hold.
    unsafe fn of(under: &Under, memory_type: hid_t, memory: *mut c_void) -> Result<Memory> {
        if is_on_host(memory as usize)? {
            return Ok(Memory::OnHost(memory));
        }
        let host = under.container.below.host;
        // SAFETY: HDF5 checks the identifiers; the caller vouches for the memory.
        unsafe {
            refuse_pointers(host, memory_type)?;
            let loan = Loan::of(under, H5I_ATTR)?;
            let bytes = host.keeping_errors(|| {
                let space = (host.calls.H5Aget_space)(loan.id());
                let elements = (host.calls.H5Sget_simple_extent_npoints)(space);
                (host.hdf5.H5Sclose)(space);
                let element = (host.hdf5.H5Tget_size)(memory_type) as u64;
                u64::try_from(elements).ok()?.checked_mul(element)
            });
            let bytes = bytes.ok_or_else(|| {
                Error::invalid("HDF5 does not tell how large the attribute is in memory")
            })?;
            Staging::of(&[memory as usize], |_| Ok(Some(0..bytes))).map(Memory::Staged)
        }
    }

    fn address(&mut self) -> *mut c_void {
        match self {
            Memory::OnHost(memory) => *memory,
            Memory::Staged(staging) => staging.addresses()[0],
        }
    }

    /// # Safety
    /// As for [`Memory::of`].
    unsafe fn give_back(self) -> Result<()> {
        match self {
            Memory::OnHost(_) => Ok(()),
            // SAFETY: passed on.
            Memory::Staged(staging) => unsafe { staging.give_back() },
        }
    }
}

unsafe extern "C" fn read(
    attr: *mut c_void,
    mem_type_id: hid_t,
    buf: *mut c_void,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        attempt(attr, Ask::of(c"H5Aread_async", req), |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            let mut memory = Memory::of(under, mem_type_id, buf)?;
            let status = (under.calls.H5VLattr_read)(
                under.object,
                under.id,
                mem_type_id,
                memory.address(),
                dxpl_id,
                req,
            );
            if status >= 0 {
                memory.give_back()?;
            }
            Ok(status)
        })
    }
}

unsafe extern "C" fn write(
    attr: *mut c_void,
    mem_type_id: hid_t,
    buf: *const c_void,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        attempt(attr, Ask::of(c"H5Awrite_async", req), |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            let mut memory = Memory::of(under, mem_type_id, buf.cast_mut())?;
            Ok((under.calls.H5VLattr_write)(
                under.object,
                under.id,
                mem_type_id,
                memory.address(),
                dxpl_id,
                req,
            ))
        })
    }
}

fn call_of(operation: c_int) -> &'static CStr {
    match operation {
        H5VL_ATTR_EXISTS => c"H5Aexists_async",
        H5VL_ATTR_ITER => c"H5Aiterate",
        H5VL_ATTR_RENAME => c"H5Arename_async",
        _ => c"H5Adelete",
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    loc_params: Location,
    args: *mut H5VL_attr_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let call = |under: &Under| {
            (under.calls.H5VLattr_specific)(under.object, loc_params, under.id, args, dxpl_id, req)
        };
        let ask = Ask::of(call_of((*args).op_type), req);
        operate_or_visit(obj, ask, (*args).op_type == H5VL_ATTR_ITER, call)
    }
}

pub(super) const CLASS: H5VL_attr_class_t = H5VL_attr_class_t {
    create: Some(create),
    open: Some(open),
    read: Some(read),
    write: Some(write),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_attribute),
};
