//! Kernels: loading, the memory that a launch may access, and when it runs.

#[macro_use]
mod common;
use common::*;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

const INVALID_VALUE: i32 = 1;
const INVALID_IMAGE: i32 = 200;
const INVALID_PTX: i32 = 218;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const ILLEGAL_ADDRESS: i32 = 700;
const MISALIGNED_ADDRESS: i32 = 716;
const LAUNCH_FAILED: i32 = 719;

/// The PTX that the project ships.
const PTX: &str = include_str!("../../codec/kernels/kernels.ptx");

/// The parameter of the checksum kernels: addresses of one buffer, of its sums and of its verdict.
#[repr(C)]
struct Parameter {
    buffers: u64,
    sums: u64,
    verdicts: u64,
    stretches: u64,
    count: u32,
    kind: u32,
}

fn load(ptx: &str, expected: i32) -> *mut c_void {
    let text = CString::new(ptx).unwrap();
    let mut module = null_mut();
    expect!(
        expected,
        cuModuleLoadData(&mut module, text.as_ptr().cast())
    );
    module
}

/// The kernel that turns the sums of buffers into verdicts.
fn verdicts(module: *mut c_void) -> *mut c_void {
    let mut function = null_mut();
    done!(cuModuleGetFunction(
        &mut function,
        module,
        c"penstock_checksum_verdicts".as_ptr()
    ));
    function
}

/// Launches one thread that computes the Adler-32 of an empty buffer.
fn launch(function: *mut c_void, parameter: &mut Parameter, stream: *mut c_void) -> i32 {
    let mut parameters = [(&raw mut *parameter).cast::<c_void>()];
    // SAFETY: the kernel has one parameter, of this type.
    unsafe {
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            parameters.as_mut_ptr(),
            null_mut(),
        )
    }
}

/// Tables of one empty buffer, whose sums are zero, and uninitialised memory for its verdict.
fn parameter() -> Parameter {
    let buffers = device_memory(32);
    let sums = device_memory(16);
    done!(cuMemsetD8_v2(buffers, 0, 32));
    done!(cuMemsetD8_v2(sums, 0, 16));
    done!(cuCtxSynchronize());
    Parameter {
        buffers,
        sums,
        verdicts: device_memory(8),
        stretches: 0,
        count: 1,
        kind: 0,
    }
}

/// The Adler-32 of no bytes, and that it is sound.
const VERDICT: [u8; 8] = [1, 0, 0, 0, 1, 0, 0, 0];

#[test]
fn a_kernel_reads_and_writes_device_memory_in_stream_order() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let (stream, mut parameter) = (stream(NON_BLOCKING), parameter());
    let gate = Gate::close(stream);
    assert_eq!(launch(function, &mut parameter, stream), 0);
    let verdict = parameter.verdicts;
    // The launch has copied the parameter.
    std::hint::black_box(&mut parameter).verdicts = 0;
    assert_ne!(peek(verdict, 8), VERDICT);
    gate.open();
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(verdict, 8), VERDICT);
}

#[test]
fn a_kernel_that_accesses_other_memory_than_its_own_fails_the_context() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let stream = stream(NON_BLOCKING);
    let mut pageable = [0u64; 2];
    let freed = device_memory(16);
    done!(cuMemFree_v2(freed));
    let short = device_memory(8);
    for wrong in [0, pageable.as_mut_ptr() as u64, freed, short] {
        let mut parameter = parameter();
        parameter.sums = wrong;
        assert_eq!(launch(function, &mut parameter, stream), 0);
        expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
        expect!(ILLEGAL_ADDRESS, cuCtxSynchronize());
        fail(None);
    }
}

#[test]
fn a_misaligned_access_fails_the_context() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let (stream, mut parameter) = (stream(NON_BLOCKING), parameter());
    parameter.verdicts = device_memory(16) + 2;
    assert_eq!(launch(function, &mut parameter, stream), 0);
    expect!(MISALIGNED_ADDRESS, cuStreamSynchronize(stream));
    fail(None);
}

#[test]
fn a_kernel_can_access_pinned_memory() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let (stream, mut parameter, verdict) = (stream(NON_BLOCKING), parameter(), pinned(8));
    parameter.verdicts = verdict.as_ptr() as u64;
    assert_eq!(launch(function, &mut parameter, stream), 0);
    done!(cuStreamSynchronize(stream));
    assert_eq!(verdict, VERDICT);
}

#[test]
fn a_kernel_can_access_memory_of_another_context_of_its_device() {
    let _alone = alone();
    context();
    let mut parameter = parameter();
    let created = created_context();
    let function = verdicts(load(PTX, 0));
    let stream = stream(NON_BLOCKING);
    assert_eq!(launch(function, &mut parameter, stream), 0);
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(parameter.verdicts, 8), VERDICT);
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn a_context_launches_only_functions_of_its_own_modules() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let (mut parameter, modules) = (parameter(), cudasim_live_modules());
    let created = created_context();
    load(PTX, 0);
    assert_eq!(cudasim_live_modules(), modules + 1);
    let stream = stream(NON_BLOCKING);
    assert_eq!(launch(function, &mut parameter, stream), INVALID_HANDLE);
    done!(cuCtxDestroy_v2(created));
    assert_eq!(cudasim_live_modules(), modules);
}

#[test]
fn only_ptx_of_kernels_that_the_stand_in_has_is_loaded() {
    let _alone = alone();
    context();
    load("", INVALID_IMAGE);
    load("\u{7f}ELF", INVALID_IMAGE);
    let head = ".version 8.0\n.target sm_70\n.address_size 64\n";
    let unknown = ".visible .entry other(\n.param .u64 other_param_0\n)\n{\nret;\n}\n";
    load(&format!("{head}{unknown}"), INVALID_PTX);
    let older = PTX.replace("verdicts_param_0[40]", "verdicts_param_0[32]");
    assert_ne!(older, PTX);
    load(&older, INVALID_PTX);
}

#[test]
fn a_function_ends_with_its_module() {
    let _alone = alone();
    context();
    let before = cudasim_live_modules();
    let module = load(PTX, 0);
    let function = verdicts(module);
    let mut none = null_mut();
    expect!(
        NOT_FOUND,
        cuModuleGetFunction(&mut none, module, c"other".as_ptr())
    );
    assert_eq!(cudasim_live_modules(), before + 1);
    done!(cuModuleUnload(module));
    assert_eq!(cudasim_live_modules(), before);
    expect!(INVALID_HANDLE, cuModuleUnload(module));
    let mut parameter = parameter();
    let stream = stream(NON_BLOCKING);
    assert_eq!(launch(function, &mut parameter, stream), INVALID_HANDLE);
}

#[test]
fn a_launch_of_no_threads_or_too_many_is_refused() {
    let _alone = alone();
    context();
    let function = verdicts(load(PTX, 0));
    let (stream, mut parameter) = (stream(NON_BLOCKING), parameter());
    let mut parameters = [(&raw mut parameter).cast::<c_void>()];
    for (grid, block) in [(0, 1), (1, 0), (1, 1025), (u32::MAX, 1)] {
        expect!(
            INVALID_VALUE,
            cuLaunchKernel(
                function,
                grid,
                1,
                1,
                block,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        );
    }
}

#[test]
fn loading_launching_and_running_fail_when_injected() {
    let _alone = alone();
    context();
    fail(Some("module:1:2,kernel:2,kernelexec:1"));
    load(PTX, 2);
    let function = verdicts(load(PTX, 0));
    let (stream, mut parameter) = (stream(NON_BLOCKING), parameter());
    assert_eq!(launch(function, &mut parameter, stream), 0);
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    fail(Some("kernel:1"));
    assert_eq!(launch(function, &mut parameter, stream), ILLEGAL_ADDRESS);
    fail(None);
    fail(Some("kernel:1"));
    assert_eq!(launch(function, &mut parameter, stream), LAUNCH_FAILED);
    fail(None);
}
