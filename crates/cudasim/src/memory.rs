//! The memory that the driver knows: allocation, registration, and lookup by address.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::arena::page;
use crate::device::Context;
use crate::failure;
use crate::region::{Kind, Region};
use crate::status::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_SUPPORTED,
    OUT_OF_MEMORY, Result,
};

/// The value of unwritten bytes of device memory. Device bytes are stored combined with it by
/// exclusive or, so the holes of the sparse file read as poison and an allocation costs nothing.
pub const POISON: u8 = 0xA5;

const REGISTER_PORTABLE: u32 = 0x01;
const REGISTER_DEVICE_MAP: u32 = 0x02;
const REGISTER_IO_MEMORY: u32 = 0x04;
const REGISTER_READ_ONLY: u32 = 0x08;
/// The flags for portable, mapped and write-combined memory.
const HOST_ALLOCATE_FLAGS: u32 = 0x07;

/// The regions by first address. They never overlap: all kinds share the address space of the
/// process.
static REGIONS: RwLock<BTreeMap<usize, Arc<Region>>> = RwLock::new(BTreeMap::new());

/// Adds memory that the GPU may write to, in every context.
fn add(kind: Kind, address: usize, size: usize, context: &'static Context) {
    let region = Region::new(kind, address, size, context, false, true);
    REGIONS.write().unwrap().insert(address, region);
}

pub fn allocate_device(context: &'static Context, size: usize) -> Result<usize> {
    failure::check(failure::Kind::Alloc)?;
    let arena = context.arena();
    charge(context, size)?;
    let address = arena.reserve(size).inspect_err(|_| arena.refund(size))?;
    add(Kind::Device, address, size, context);
    Ok(address)
}

pub fn allocate_managed(context: &'static Context, size: usize, flags: u32) -> Result<usize> {
    const ATTACH: [u32; 2] = [1, 2];
    if !ATTACH.contains(&flags) {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Alloc)?;
    charge(context, size)?;
    let address = map_host(size).inspect_err(|_| context.arena().refund(size))?;
    add(Kind::Managed, address, size, context);
    Ok(address)
}

fn charge(context: &'static Context, size: usize) -> Result {
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    context.arena().charge(size)
}

pub fn allocate_host(context: &'static Context, size: usize, flags: u32) -> Result<usize> {
    if size == 0 || flags & !HOST_ALLOCATE_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::HostAlloc)?;
    let address = map_host(size)?;
    add(Kind::HostAllocated, address, size, context);
    Ok(address)
}

pub fn register_host(context: &'static Context, address: usize, size: usize, flags: u32) -> Result {
    let known = REGISTER_PORTABLE | REGISTER_DEVICE_MAP | REGISTER_IO_MEMORY | REGISTER_READ_ONLY;
    if address == 0 || size == 0 || address.checked_add(size).is_none() || flags & !known != 0 {
        return Err(INVALID_VALUE);
    }
    if flags & REGISTER_IO_MEMORY != 0 {
        return Err(NOT_SUPPORTED);
    }
    failure::check(failure::Kind::HostRegister)?;
    let read_only = flags & REGISTER_READ_ONLY != 0;
    let (first, end) = pages(address, size);
    // Checked before the pages are accessed, since the range may be device memory.
    let overlapping = |regions: &BTreeMap<usize, Arc<Region>>| {
        regions
            .range(..end)
            .next_back()
            .is_some_and(|(_, region)| pages(region.base, region.size).1 > first)
    };
    if overlapping(&REGIONS.read().unwrap()) {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    populate(first, end - first, read_only)?;
    let portable = flags & REGISTER_PORTABLE != 0;
    let mut regions = REGIONS.write().unwrap();
    if overlapping(&regions) {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    let kind = Kind::HostRegistered;
    regions.insert(
        address,
        Region::new(kind, address, size, context, read_only, portable),
    );
    Ok(())
}

pub fn free_device(address: usize) -> Result {
    remove(address, |kind| matches!(kind, Kind::Device | Kind::Managed)).ok_or(INVALID_VALUE)
}

pub fn free_host(address: usize) -> Result {
    remove(address, |kind| kind == Kind::HostAllocated).ok_or(INVALID_VALUE)
}

pub fn unregister_host(address: usize) -> Result {
    // Like the driver, which waits for the GPU to be idle before it unmaps pages from it.
    if let Some(region) = find(address) {
        region.context.wait_for_streams();
    }
    remove(address, |kind| kind == Kind::HostRegistered).ok_or(HOST_MEMORY_NOT_REGISTERED)
}

/// Retires the region that starts at `address` if its kind fits.
fn remove(address: usize, fits: impl Fn(Kind) -> bool) -> Option<()> {
    let region = {
        let mut regions = REGIONS.write().unwrap();
        if !regions
            .get(&address)
            .is_some_and(|region| fits(region.kind))
        {
            return None;
        }
        regions.remove(&address)?
    };
    region.retire().then_some(())
}

/// Removes all regions of a context.
pub fn remove_all(context: &Context) {
    let mut removed = Vec::new();
    REGIONS.write().unwrap().retain(|_, region| {
        let kept = !std::ptr::eq(region.context, context);
        if !kept {
            removed.push(region.clone());
        }
        kept
    });
    for region in removed {
        region.retire();
    }
}

pub fn find(address: usize) -> Option<Arc<Region>> {
    let regions = REGIONS.read().unwrap();
    let (_, region) = regions.range(..=address).next_back()?;
    region.contains(address).then(|| region.clone())
}

/// The region of a range; `None` for pageable memory. Fails if the range leaves its region or
/// extends from pageable memory into one.
pub fn find_range(address: usize, size: usize) -> Result<Option<Arc<Region>>> {
    let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
    let regions = REGIONS.read().unwrap();
    match regions.range(..=address).next_back() {
        Some((_, region)) if region.contains(address) => {
            if size > region.rest(address) {
                return Err(INVALID_VALUE);
            }
            Ok(Some(region.clone()))
        }
        _ if regions.range(address..end).next().is_some() => Err(INVALID_VALUE),
        _ => Ok(None),
    }
}

pub fn count(fits: impl Fn(Kind) -> bool) -> usize {
    REGIONS
        .read()
        .unwrap()
        .values()
        .filter(|region| fits(region.kind))
        .count()
}

fn pages(address: usize, size: usize) -> (usize, usize) {
    (
        address / page() * page(),
        (address + size).next_multiple_of(page()),
    )
}

/// Maps memory with an inaccessible page on either side.
fn map_host(size: usize) -> Result<usize> {
    let length = size.checked_next_multiple_of(page()).ok_or(OUT_OF_MEMORY)?;
    let total = length.checked_add(2 * page()).ok_or(OUT_OF_MEMORY)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    let address = start as usize + page();
    // SAFETY: the range lies inside the mapping just made.
    let opened = unsafe {
        libc::mprotect(
            address as *mut _,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    };
    if opened != 0 {
        unmap_host(address, size);
        return Err(OUT_OF_MEMORY);
    }
    Ok(address)
}

/// Unmaps a mapping of `map_host`.
pub fn unmap_host(address: usize, size: usize) {
    let length = size.next_multiple_of(page()) + 2 * page();
    // SAFETY: the range is one whole mapping of `map_host`, and its region was removed.
    unsafe { libc::munmap((address - page()) as *mut _, length) };
}

/// Faults the pages in as pinning does, for writing unless `read_only`. Fails if a page is not
/// mapped, does not allow the access, or lies beyond the end of a mapped file.
fn populate(start: usize, length: usize, read_only: bool) -> Result {
    let advice = if read_only {
        libc::MADV_POPULATE_READ
    } else {
        libc::MADV_POPULATE_WRITE
    };
    // SAFETY: faulting pages in changes no byte of the client's memory.
    if unsafe { libc::madvise(start as *mut _, length, advice) } == 0 {
        return Ok(());
    }
    let unsupported = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
        && !populate_supported();
    let mut resident = vec![0u8; if unsupported { length / page() } else { 0 }];
    // SAFETY: `resident` has one byte for each page of the range.
    if unsupported && unsafe { libc::mincore(start as *mut _, length, resident.as_mut_ptr()) } == 0
    {
        return Ok(());
    }
    Err(INVALID_VALUE)
}

/// Whether Linux has `MADV_POPULATE_READ` (since 5.14). On an older kernel, only whether the pages
/// are mapped can be checked.
fn populate_supported() -> bool {
    // SAFETY: the range is empty, so the kernel only checks the advice.
    unsafe { libc::madvise(page() as *mut _, 0, libc::MADV_POPULATE_READ) == 0 }
}
