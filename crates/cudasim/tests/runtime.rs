//! The stand-in for the CUDA runtime. Each test has a thread of its own, without a current context.

#[macro_use]
mod common;

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use common::*;
use cudasim::runtime::device_info::*;
use cudasim::runtime::kernel::*;
use cudasim::runtime::memory::*;
use cudasim::runtime::order::*;
use cudasim::runtime::unsupported::*;

const INVALID_VALUE: c_int = 1;
const NO_KERNEL_IMAGE: c_int = 209;
const NOT_SUPPORTED: c_int = 801;

#[test]
fn the_first_call_of_a_thread_makes_a_context_of_device_0_current() {
    let (mut context, mut device) = (null_mut(), -1);
    done!(cudaGetDevice(&mut device));
    done!(cuCtxGetCurrent(&mut context));
    assert_eq!((device, context.is_null()), (0, true));
    done!(cudaFree(0));
    done!(cuCtxGetCurrent(&mut context));
    assert!(!context.is_null());
}

#[test]
fn bytes_are_copied_to_the_device_and_back() {
    let (mut address, before, mut after) = (0, [7u8; 1000], [0u8; 1000]);
    done!(cudaMalloc(&mut address, 1000));
    done!(cudaMemcpy(address, before.as_ptr() as u64, 1000, 1));
    done!(cudaMemset(address, 9, 10));
    done!(cudaMemcpyAsync(
        after.as_mut_ptr() as u64,
        address,
        1000,
        2,
        null_mut()
    ));
    assert_eq!((&after[..10], &after[10..]), (&[9; 10][..], &before[10..]));
    done!(cudaFree(address));
}

#[test]
fn an_error_is_kept_until_it_is_read() {
    assert_eq!(cudaGetLastError(), 0);
    expect!(INVALID_VALUE, cudaMemcpy(1, 1, 1, 99));
    done!(cudaFree(0));
    assert_eq!(cudaPeekAtLastError(), INVALID_VALUE);
    assert_eq!(cudaGetLastError(), INVALID_VALUE);
    assert_eq!(cudaGetLastError(), 0);
}

#[test]
fn a_kernel_of_the_program_is_registered_and_its_launch_fails() {
    assert!(!__cudaRegisterFatBinary(null_mut()).is_null());
    expect!(0, __cudaRegisterFunction());
    expect!(NO_KERNEL_IMAGE, __cudaPushCallConfiguration());
    expect!(NO_KERNEL_IMAGE, cudaLaunchKernel());
    // SAFETY: the string is static.
    let text = unsafe { CStr::from_ptr(cudaGetErrorString(cudaGetLastError())) };
    assert_eq!(
        text,
        c"no kernel image is available for execution on the device"
    );
}

#[test]
fn a_function_without_an_implementation_fails() {
    expect!(NOT_SUPPORTED, cudaIpcGetMemHandle());
    assert_eq!(cudaGetLastError(), NOT_SUPPORTED);
}

#[test]
fn the_kind_of_memory_is_known_from_its_address() {
    let (mut device, mut pinned, pageable) = (0, null_mut(), 0u8);
    done!(cudaMalloc(&mut device, 100));
    done!(cudaHostAlloc(&mut pinned, 100, 0));
    let attributes = |address| {
        let mut found = MaybeUninit::uninit();
        done!(cudaPointerGetAttributes(found.as_mut_ptr(), address));
        // SAFETY: the call has succeeded.
        let found: PointerAttributes = unsafe { found.assume_init() };
        (
            found.kind,
            found.device,
            found.device_pointer,
            found.host_pointer,
        )
    };
    let (on_device, on_host) = (device as usize + 50, pinned as usize + 50);
    let unknown = &raw const pageable as usize;
    assert_eq!(attributes(on_device), (2, 0, on_device, 0));
    assert_eq!(attributes(on_host), (1, 0, on_host, on_host));
    assert_eq!(attributes(unknown), (0, -2, 0, unknown));
    done!(cudaFree(device));
    done!(cudaFreeHost(pinned));
}

#[test]
fn the_time_between_two_events_is_that_of_the_work_between_them() {
    let (mut stream, mut from, mut to) = (null_mut(), null_mut(), null_mut());
    done!(cudaStreamCreate(&mut stream));
    done!(cudaEventCreate(&mut from));
    done!(cudaEventCreate(&mut to));
    done!(cudaEventRecord(from, stream));
    unsafe extern "C" fn wait(_: *mut std::ffi::c_void) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    done!(cudaLaunchHostFunc(stream, Some(wait), null_mut()));
    done!(cudaEventRecord(to, stream));
    done!(cudaEventSynchronize(to));
    let (mut forward, mut backward) = (0.0, 0.0);
    done!(cudaEventElapsedTime(&mut forward, from, to));
    done!(cudaEventElapsedTime(&mut backward, to, from));
    assert!(forward >= 20.0);
    assert_eq!(backward, -forward);
    done!(cudaEventDestroy(from));
    done!(cudaEventDestroy(to));
    done!(cudaStreamDestroy(stream));
}

#[test]
fn a_stream_is_not_captured_and_has_no_graph() {
    let (mut status, mut identity, mut count) = (-1, 9, 9);
    let [mut graph, mut dependencies, mut edges] = [null_mut(); 3];
    done!(cudaStreamGetCaptureInfo(
        null_mut(),
        &mut status,
        &mut identity,
        &mut graph,
        (&raw mut dependencies).cast(),
        (&raw mut edges).cast(),
        &mut count,
    ));
    assert_eq!((status, identity, graph, count), (0, 0, null_mut(), 0));
}
