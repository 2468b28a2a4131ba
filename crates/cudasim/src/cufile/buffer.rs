//! Registered buffers.

use std::collections::BTreeMap;
use std::sync::RwLock;

use penstock_sys::cufile::*;

use super::{Failure, Result, session, statistics, transfer};
use crate::failure;

struct Buffer {
    size: usize,
    device: Option<usize>,
}

/// The registered buffers by first address.
static BUFFERS: RwLock<BTreeMap<usize, Buffer>> = RwLock::new(BTreeMap::new());

pub fn register(base: usize, size: usize) -> Result {
    let device = crate::memory::find(base).map(|region| region.context.device);
    let registered = try_register(base, size, device);
    statistics::count_registration(device, size, registered.is_ok());
    registered
}

fn try_register(base: usize, size: usize, device: Option<usize>) -> Result {
    session::ensure_open()?;
    if base == 0 || size == 0 {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    if let Some(code) = failure::code(failure::Kind::CufileBuffer) {
        return Err(Failure::injected(code));
    }
    transfer::locate(base, size)?;
    let mut buffers = BUFFERS.write().unwrap();
    let before = buffers.range(..base + size).next_back();
    if before.is_some_and(|(&other, buffer)| other + buffer.size > base) {
        return Err(Failure::Operation(CU_FILE_MEMORY_ALREADY_REGISTERED));
    }
    buffers.insert(base, Buffer { size, device });
    Ok(())
}

pub fn deregister(base: usize) -> Result {
    session::mode()?;
    match BUFFERS.write().unwrap().remove(&base) {
        Some(buffer) => {
            statistics::count_deregistration(buffer.device, buffer.size);
            Ok(())
        }
        None => {
            statistics::count(|basic| &mut basic.buf_deregister_ops, false);
            Err(Failure::Operation(CU_FILE_INVALID_VALUE))
        }
    }
}

/// Fails if a transfer whose base is a registered buffer leaves that buffer.
pub fn check(base: usize, offset: usize, size: usize) -> Result {
    let registered = BUFFERS.read().unwrap().get(&base).map(|buffer| buffer.size);
    match registered {
        Some(length) if offset + size > length => {
            Err(Failure::Operation(CU_FILE_INVALID_MAPPING_RANGE))
        }
        _ => Ok(()),
    }
}

pub fn remove_all() {
    BUFFERS.write().unwrap().clear();
}

/// The number of registered buffers.
pub fn count() -> usize {
    BUFFERS.read().unwrap().len()
}
