//! Attributes, `H5A`.

use std::ffi::{c_char, c_void};

use penstock_engine::error::{Error, Result};
use penstock_engine::memory::is_on_host;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::api_call::{ApiCall, NO_REQUEST};
use super::callback::{attempt, close, make, operate, visit};
use super::calling_library::Quiet;
use super::host_buffers::{HostBuffers, Touched, refuse_pointers};
use super::temporary_id::TemporaryId;
use super::under::Under;

forward! {
    make create = H5VLattr_create, c"H5Acreate_async";
    make open = H5VLattr_open, c"H5Aopen_async";
    operate get = H5VLattr_get, c"H5Aget";
    match specific = H5VLattr_specific {
        H5VL_ATTR_EXISTS => operate c"H5Aexists_async",
        H5VL_ATTR_ITER => visit c"H5Aiterate",
        H5VL_ATTR_RENAME => operate c"H5Arename_async",
        _ => operate c"H5Adelete",
    };
    operate optional = H5VLattr_optional, c"H5A";
    close close_attribute = H5VLattr_close, c"H5Aclose_async";
}

/// Copies the elements of an attribute to host memory if `memory` is on a GPU. Returns `None` for
/// host memory.
///
/// # Safety
/// The thread is inside a callback on `under`, an attribute, and `memory` has room for its elements.
unsafe fn host_buffers(
    under: &Under,
    memory_type: hid_t,
    memory: *const c_void,
) -> Result<Option<HostBuffers>> {
    if is_on_host(memory as usize)? {
        return Ok(None);
    }
    // SAFETY: HDF5 checks the identifiers; the caller guarantees the memory.
    unsafe {
        refuse_pointers(under.library(), memory_type)?;
        let bytes = bytes_of(under, memory_type)?;
        let touched = |_| {
            Ok(Some(Touched {
                range: 0..bytes,
                elements: None,
            }))
        };
        HostBuffers::of(&[memory as usize], touched).map(Some)
    }
}

/// The size of an attribute in memory.
///
/// # Safety
/// The thread is inside a callback on `under`, an attribute.
unsafe fn bytes_of(under: &Under, memory_type: hid_t) -> Result<u64> {
    let library = under.library();
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
    let bytes = unsafe {
        let id = TemporaryId::of(under, H5I_ATTR)?;
        library.keeping_errors(|| {
            let space = (library.calls.H5Aget_space)(id.get());
            let elements = (library.calls.H5Sget_simple_extent_npoints)(space);
            (library.hdf5.H5Sclose)(space);
            let element = (library.hdf5.H5Tget_size)(memory_type) as u64;
            u64::try_from(elements).ok()?.checked_mul(element)
        })
    };
    bytes.ok_or_else(|| Error::invalid("HDF5 does not return the size of the attribute in memory"))
}

unsafe extern "C" fn read(
    attr: *mut c_void,
    mem_type_id: hid_t,
    buf: *mut c_void,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        attempt(attr, ApiCall::of(c"H5Aread_async", req), |under| {
            let _quiet = Quiet::begin(under.library());
            let mut host = host_buffers(under, mem_type_id, buf)?;
            let (address, request) = match &mut host {
                Some(host) => (host.addresses()[0], NO_REQUEST),
                None => (buf, req),
            };
            let (read, object, id) = (under.calls.H5VLattr_read, under.object, under.id);
            let container = &under.container;
            let status =
                container.in_call(|| read(object, id, mem_type_id, address, dxpl_id, request));
            if let Some(host) = host.filter(|_| status >= 0) {
                host.copy_back()?;
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
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        attempt(attr, ApiCall::of(c"H5Awrite_async", req), |under| {
            let _quiet = Quiet::begin(under.library());
            let mut zeros: Vec<u8> = Vec::new();
            let (mut host, failed) = match host_buffers(under, mem_type_id, buf) {
                Ok(host) => (host, None),
                // Each process caches the metadata of a shared file. If one process skips a change
                // that the others make, later collective calls deadlock.
                Err(error) if under.container.is_parallel => {
                    zeros.resize(bytes_of(under, mem_type_id)? as usize, 0);
                    (None, Some(error))
                }
                Err(error) => return Err(error),
            };
            // The connector below must not continue with memory that ends with the call.
            let (address, request) = match (&mut host, &failed) {
                (Some(host), _) => (host.addresses()[0], NO_REQUEST),
                (None, Some(_)) => (zeros.as_mut_ptr().cast(), NO_REQUEST),
                (None, None) => (buf.cast_mut(), req),
            };
            let (write, object, id) = (under.calls.H5VLattr_write, under.object, under.id);
            let container = &under.container;
            let status =
                container.in_call(|| write(object, id, mem_type_id, address, dxpl_id, request));
            let zeros = "write the attribute again in all processes: it may contain zeros now";
            failed.map_or(Ok(status), |error| Err(error.remedy(zeros)))
        })
    }
}

pub(crate) const CLASS: H5VL_attr_class_t = H5VL_attr_class_t {
    create: Some(create),
    open: Some(open),
    read: Some(read),
    write: Some(write),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_attribute),
};
