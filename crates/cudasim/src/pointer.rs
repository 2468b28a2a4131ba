//! The attributes of pointers.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crate::memory;
use crate::region::{Kind, Region};
use crate::status::{INVALID_VALUE, Result};

const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const SYNC_MEMOPS: i32 = 6;
const BUFFER_ID: i32 = 7;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPED: i32 = 13;
const GPU_DIRECT_RDMA_CAPABLE: i32 = 15;

const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// The device ordinal of an unknown pointer.
const NO_DEVICE: i32 = -2;

/// Writes one attribute of `address`, which is pageable memory if `region` is `None`.
///
/// # Safety
/// `data` is valid for the type of the attribute. Booleans are four bytes.
pub unsafe fn write(
    attribute: i32,
    address: usize,
    region: Option<&Region>,
    data: *mut c_void,
) -> Result {
    if data.is_null() {
        return Err(INVALID_VALUE);
    }
    let host_reachable = |region: &&Region| region.kind != Kind::Device;
    // SAFETY: by contract of this function `data` has the attribute's type.
    unsafe {
        match attribute {
            CONTEXT => {
                let of_context = region.filter(|found| !found.in_pool.load(Ordering::Relaxed));
                let context =
                    of_context.map_or(std::ptr::null_mut(), |found| found.context.handle());
                data.cast::<*mut c_void>().write(context);
            }
            MEMORY_TYPE => data.cast::<u32>().write(match region {
                None => 0,
                Some(region) if region.is_host() => TYPE_HOST,
                Some(_) => TYPE_DEVICE,
            }),
            DEVICE_POINTER => data.cast::<usize>().write(region.map_or(0, |_| address)),
            HOST_POINTER => match region.filter(host_reachable) {
                Some(_) => data.cast::<usize>().write(address),
                None if region.is_some() => return Err(INVALID_VALUE),
                None => data.cast::<usize>().write(0),
            },
            SYNC_MEMOPS => data.cast::<u32>().write(0),
            BUFFER_ID => data
                .cast::<u64>()
                .write(region.map_or(0, |found| found.identity)),
            IS_MANAGED => {
                let managed = region.is_some_and(|found| found.kind == Kind::Managed);
                data.cast::<u32>().write(managed.into());
            }
            DEVICE_ORDINAL => {
                let ordinal = region.map_or(NO_DEVICE, |found| found.context.ordinal());
                data.cast::<i32>().write(ordinal);
            }
            RANGE_START => data
                .cast::<usize>()
                .write(region.map_or(0, |found| found.base)),
            RANGE_SIZE => data
                .cast::<usize>()
                .write(region.map_or(0, |found| found.size)),
            GPU_DIRECT_RDMA_CAPABLE => {
                let capable = region.is_some_and(|found| found.kind == Kind::Device);
                data.cast::<u32>().write(capable.into());
            }
            MAPPED => data.cast::<u32>().write(region.is_some().into()),
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

/// Writes one attribute. Fails for unknown memory.
///
/// # Safety
/// As `write`.
pub unsafe fn attribute(attribute: i32, address: usize, data: *mut c_void) -> Result {
    let region = memory::find(address).ok_or(INVALID_VALUE)?;
    // SAFETY: by contract of this function.
    unsafe { write(attribute, address, Some(&region), data) }
}

/// Writes several attributes. Attributes of unknown memory, and attributes that the memory lacks,
/// are neutral.
///
/// # Safety
/// `attributes` and `data` hold `count` entries. Each entry of `data` is as for `write`.
pub unsafe fn attributes(
    count: usize,
    attributes: *const i32,
    data: *mut *mut c_void,
    address: usize,
) -> Result {
    let region = memory::find(address);
    for index in 0..count {
        // SAFETY: by contract of this function both arrays hold `count` entries.
        unsafe {
            let (attribute, data) = (*attributes.add(index), *data.add(index));
            if write(attribute, address, region.as_deref(), data).is_err() {
                write(attribute, address, None, data)?;
            }
        }
    }
    Ok(())
}
