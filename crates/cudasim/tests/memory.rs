//! Device memory, registration, and pointer attributes.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::ptr::null_mut;

use penstock_sys::cuda::{
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_STREAM_NON_BLOCKING, CudaMemcpyAttributes,
};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_FOUND: i32 = 500;
const ALREADY_REGISTERED: i32 = 712;
const NOT_REGISTERED: i32 = 713;
const READ_ONLY: u32 = 8;
const PAGE: usize = 4096;

/// The signal that kills a child process that runs `body`; 0 if none does.
fn signal_of(body: impl FnOnce()) -> i32 {
    // SAFETY: the child only runs `body`, which touches memory, and leaves without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            body();
            // SAFETY: ends the child immediately.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            if libc::WIFSIGNALED(status) {
                libc::WTERMSIG(status)
            } else {
                0
            }
        }
    }
}

#[test]
fn a_cpu_that_reads_device_memory_faults() {
    context();
    let address = device_memory(PAGE);
    // SAFETY: the access faults, which only ends the child.
    let read = || _ = unsafe { (address as *const u8).read_volatile() };
    assert_eq!(signal_of(read), libc::SIGSEGV);
}

#[test]
fn a_cpu_that_writes_device_memory_faults() {
    context();
    let address = device_memory(PAGE);
    // SAFETY: the access faults, which only ends the child.
    let write = || unsafe { (address as *mut u8).write_volatile(1) };
    assert_eq!(signal_of(write), libc::SIGSEGV);
}

#[test]
fn freed_pinned_memory_faults() {
    context();
    let mut address = null_mut();
    done!(cuMemHostAlloc(&mut address, PAGE, 0));
    done!(cuMemFreeHost(address));
    // SAFETY: the access faults, which only ends the child.
    let read = || _ = unsafe { address.cast::<u8>().read_volatile() };
    assert_eq!(signal_of(read), libc::SIGSEGV);
}

#[test]
fn new_device_memory_is_poison() {
    context();
    let address = device_memory(3 * PAGE + 7);
    assert!(
        peek(address, 3 * PAGE + 7)
            .iter()
            .all(|&byte| byte == cudasim::memory::POISON)
    );
}

#[test]
fn copies_of_any_alignment_round_trip() {
    context();
    let address = device_memory(PAGE);
    for (offset, size) in [(0, 1), (1, 7), (3, 64), (5, 1001), (PAGE - 9, 9)] {
        let sent = pattern(size, offset as u8);
        let mut back = vec![0u8; size];
        let at = address + offset as u64;
        done!(cuMemcpyHtoD_v2(at, sent.as_ptr().cast(), size));
        done!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), at, size));
        assert_eq!(back, sent);
    }
}

#[test]
fn a_batch_makes_each_of_its_copies_and_names_the_one_that_is_refused() {
    context();
    let device = [device_memory(PAGE), device_memory(PAGE)];
    let (sent, mut back) = ([pattern(PAGE, 1), pattern(PAGE, 2)], [[0u8; PAGE]; 2]);
    let host = |index: usize| sent[index].as_ptr() as u64;
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let mut failed = usize::MAX;
    let mut batch = |sizes: [usize; 2]| {
        let attributes = CudaMemcpyAttributes {
            srcAccessOrder: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            ..CudaMemcpyAttributes::default()
        };
        let from = [host(0), host(1)];
        let (to, from, sizes) = (device.as_ptr(), from.as_ptr(), sizes.as_ptr());
        // SAFETY: the lists have two elements each; all pointers are valid for the call.
        unsafe { cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &0, 1, &mut failed, stream) }
    };
    assert_eq!(batch([PAGE, PAGE + 1]), INVALID_VALUE);
    assert_eq!(batch([PAGE, PAGE - 1]), 0);
    assert_eq!(failed, 1);
    done!(cuStreamSynchronize(stream));
    for (at, back) in device.into_iter().zip(&mut back) {
        done!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), at, PAGE));
    }
    assert_eq!(back[0], sent[0][..]);
    assert_eq!(back[1][..PAGE - 1], sent[1][..PAGE - 1]);
}

#[test]
fn device_pointers_are_aligned_to_256_bytes() {
    context();
    for size in [1, 255, 4096, 3 << 20] {
        assert_eq!(device_memory(size) % 256, 0);
    }
}

#[test]
fn a_copy_beyond_its_allocation_is_refused() {
    context();
    let address = device_memory(100);
    let bytes = [0u8; 200];
    expect!(
        INVALID_VALUE,
        cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), 101)
    );
    expect!(
        INVALID_VALUE,
        cuMemcpyHtoD_v2(address + 50, bytes.as_ptr().cast(), 51)
    );
    done!(cuMemcpyHtoD_v2(address + 50, bytes.as_ptr().cast(), 50));
}

#[test]
fn a_copy_to_a_device_requires_a_device_pointer() {
    context();
    let (from, mut to) = ([1u8; 64], [0u8; 64]);
    expect!(
        INVALID_VALUE,
        cuMemcpyHtoD_v2(to.as_mut_ptr() as u64, from.as_ptr().cast(), 64)
    );
    let address = device_memory(64);
    expect!(
        INVALID_VALUE,
        cuMemcpyHtoD_v2(address, address as *const c_void, 64)
    );
}

#[test]
fn freed_device_memory_is_unknown() {
    context();
    let address = device_memory(64);
    done!(cuMemFree_v2(address));
    let mut bytes = [0u8; 64];
    expect!(
        INVALID_VALUE,
        cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, 64)
    );
    expect!(INVALID_VALUE, cuMemFree_v2(address));
}

#[test]
fn only_the_first_address_of_an_allocation_frees_it() {
    context();
    let address = device_memory(64);
    expect!(INVALID_VALUE, cuMemFree_v2(address + 8));
    done!(cuMemFree_v2(address));
}

#[test]
fn an_allocation_larger_than_the_device_is_out_of_memory() {
    context();
    let mut address = 0;
    expect!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, (8 << 30) + 1));
    expect!(INVALID_VALUE, cuMemAlloc_v2(&mut address, 0));
}

#[test]
fn a_large_allocation_costs_no_memory_until_it_is_touched() {
    context();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
    };
    let before = resident();
    let address = device_memory(2 << 30);
    assert!(resident() - before < 64 << 20);
    done!(cuMemFree_v2(address));
}

#[test]
fn memory_is_registered_and_unregistered_once() {
    context();
    let mut bytes = vec![0u8; 4 * PAGE];
    let address = bytes.as_mut_ptr().cast::<c_void>();
    done!(cuMemHostRegister_v2(address, bytes.len(), 0));
    expect!(
        ALREADY_REGISTERED,
        cuMemHostRegister_v2(address, bytes.len(), 0)
    );
    let inside = address.wrapping_byte_add(PAGE);
    expect!(ALREADY_REGISTERED, cuMemHostRegister_v2(inside, PAGE, 0));
    expect!(NOT_REGISTERED, cuMemHostUnregister(inside));
    done!(cuMemHostUnregister(address));
    expect!(NOT_REGISTERED, cuMemHostUnregister(address));
}

fn mapping(protection: i32) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping replaces no other.
    let address = unsafe { libc::mmap(null_mut(), 2 * PAGE, protection, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address
}

#[test]
fn memory_that_is_not_mapped_cannot_be_registered() {
    context();
    let address = mapping(libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: nothing uses the second page of the mapping.
    unsafe { libc::munmap(address.wrapping_byte_add(PAGE), PAGE) };
    expect!(INVALID_VALUE, cuMemHostRegister_v2(address, 2 * PAGE, 0));
    done!(cuMemHostRegister_v2(address, PAGE, 0));
    done!(cuMemHostUnregister(address));
}

#[test]
fn read_only_memory_is_registered_as_such_and_never_written() {
    context();
    let address = mapping(libc::PROT_READ);
    expect!(INVALID_VALUE, cuMemHostRegister_v2(address, 2 * PAGE, 0));
    done!(cuMemHostRegister_v2(address, 2 * PAGE, READ_ONLY));
    let device = device_memory(PAGE);
    done!(cuMemcpyHtoD_v2(device, address, PAGE));
    expect!(INVALID_VALUE, cuMemcpyDtoH_v2(address, device, PAGE));
    assert!(peek(device, PAGE).iter().all(|&byte| byte == 0));
    done!(cuMemHostUnregister(address));
}

#[test]
fn a_range_that_is_pinned_in_part_is_refused() {
    context();
    let mut bytes = vec![0u8; 8 * PAGE];
    let address = bytes.as_mut_ptr().cast::<c_void>();
    done!(cuMemHostRegister_v2(address, 4 * PAGE, 0));
    let device = device_memory(8 * PAGE);
    expect!(INVALID_VALUE, cuMemcpyHtoD_v2(device, address, 8 * PAGE));
    done!(cuMemHostUnregister(address));
    done!(cuMemcpyHtoD_v2(device, address, 8 * PAGE));
}

#[derive(Debug, Default, PartialEq)]
struct Attributes {
    memory_type: u32,
    ordinal: i32,
    managed: u32,
    start: u64,
    size: usize,
}

fn attributes(address: u64) -> Attributes {
    let mut found = Attributes::default();
    let mut names = [2, 9, 8, 11, 12];
    let mut places: [*mut c_void; 5] = [
        (&raw mut found.memory_type).cast(),
        (&raw mut found.ordinal).cast(),
        (&raw mut found.managed).cast(),
        (&raw mut found.start).cast(),
        (&raw mut found.size).cast(),
    ];
    done!(cuPointerGetAttributes(
        5,
        names.as_mut_ptr(),
        places.as_mut_ptr(),
        address
    ));
    found
}

#[test]
fn attributes_distinguish_every_kind_of_memory() {
    context();
    let known = |memory_type, managed, start, size| Attributes {
        memory_type,
        ordinal: 0,
        managed,
        start,
        size,
    };
    let device = device_memory(1000);
    assert_eq!(attributes(device + 999), known(2, 0, device, 1000));
    let host = pinned(1000).as_ptr() as u64;
    assert_eq!(attributes(host + 1), known(1, 0, host, 1000));
    let mut managed = 0;
    done!(cuMemAllocManaged(&mut managed, 1000, 1));
    assert_eq!(attributes(managed), known(2, 1, managed, 1000));
    // SAFETY: the CPU may access managed memory.
    unsafe { (managed as *mut u8).write_volatile(1) };
}

#[test]
fn pageable_memory_has_neutral_attributes_only_when_several_are_queried() {
    context();
    let byte = 0u8;
    let address = &raw const byte as u64;
    let neutral = Attributes {
        ordinal: -2,
        ..Attributes::default()
    };
    assert_eq!(attributes(address), neutral);
    let mut memory_type = 0u32;
    expect!(
        INVALID_VALUE,
        cuPointerGetAttribute((&raw mut memory_type).cast(), 2, address)
    );
    let (mut base, mut size) = (0, 0);
    expect!(
        NOT_FOUND,
        cuMemGetAddressRange_v2(&mut base, &mut size, address)
    );
}

#[test]
fn the_32_bit_interface_is_refused() {
    assert_eq!(cudasim::api::legacy::cuMemAlloc(), 801);
}
