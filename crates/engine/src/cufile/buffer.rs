//! Device memory that callers have registered with cuFile, which then needs no buffers of its own
//! for transfers there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::RwLock;

use super::driver::driver;
use crate::error::{Error, Result};
use crate::memory::{Memory, MemoryKind};
use crate::sync::Recover;

struct Registration {
    length: usize,
    /// Registrations without a [`deregister`] so far.
    count: usize,
}

/// The key is the address of the first byte.
static BUFFERS: RwLock<BTreeMap<usize, Registration>> = RwLock::new(BTreeMap::new());

/// Registers device memory of `length` bytes with cuFile. Memory may be registered again with the
/// same length, and stays registered until [`deregister`] was called as often.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for other memory or another length;
/// [`Kind::Unavailable`](crate::error::Kind::Unavailable) if cuFile does not start.
pub fn register(address: usize, length: u64) -> Result<()> {
    crate::fork::refuse_fork()?;
    let memory = Memory::at(address)?;
    let context = match (&memory.context, memory.kind) {
        (Some(context), MemoryKind::Device) if length > 0 => context,
        _ => {
            return Err(Error::invalid(
                "only device memory can be registered with cuFile",
            ));
        }
    };
    let driver = driver()?;
    let length = length as usize;
    let mut buffers = BUFFERS.write().recover();
    match buffers.entry(address) {
        Entry::Occupied(mut known) if known.get().length == length => known.get_mut().count += 1,
        Entry::Occupied(known) => {
            return Err(Error::invalid(format!(
                "the memory is already registered with cuFile, with {} bytes instead of {length}",
                known.get().length
            ))
            .remedy("deregister it first"));
        }
        Entry::Vacant(place) => {
            let _entered = context.enter()?;
            // SAFETY: cuFile looks at the address in the current context, to which it belongs.
            let code =
                unsafe { (driver.cufile.cuFileBufRegister)(address as *const c_void, length, 0) };
            if !code.is_success() {
                let cause = format!("cuFileBufRegister failed with {code} ({})", code.err);
                return Err(Error::gpu(code.err, cause)
                    .remedy("register less memory, and no memory twice; cuFile's log (cufile.log) has details"));
            }
            place.insert(Registration { length, count: 1 });
        }
    }
    Ok(())
}

/// Undoes one [`register`]. No request uses the memory.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) if the memory is not registered; else the failure
/// of cuFile.
pub fn deregister(address: usize) -> Result<()> {
    crate::fork::refuse_fork()?;
    let mut buffers = BUFFERS.write().recover();
    let Entry::Occupied(mut known) = buffers.entry(address) else {
        return Err(Error::invalid("the memory is not registered with cuFile"));
    };
    known.get_mut().count -= 1;
    if known.get().count > 0 {
        return Ok(());
    }
    known.remove();
    let driver = driver()?;
    let entered = Memory::at(address)?.context;
    let _entered = entered
        .as_ref()
        .map(|context| context.enter())
        .transpose()?;
    // SAFETY: the memory was registered, and is not passed to cuFile any more.
    let code = unsafe { (driver.cufile.cuFileBufDeregister)(address as *const c_void) };
    if code.is_success() {
        Ok(())
    } else {
        Err(Error::gpu(
            code.err,
            format!("cuFileBufDeregister failed with {code} ({})", code.err),
        ))
    }
}

/// The address to pass to cuFile: that of the registered buffer around the memory, or else the
/// memory's own.
pub(crate) fn base_of(address: usize, length: u64) -> usize {
    let buffers = BUFFERS.read().recover();
    match buffers.range(..=address).next_back() {
        Some((&base, buffer)) if address - base + length as usize <= buffer.length => base,
        _ => address,
    }
}
