//! The kernels on the CPU: the same sources, compiled as C++.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::config;
use crate::device::Context;
use crate::memory::{self, POISON};
use crate::region::{Kind, Region, Use};
use crate::status::{CudaError, Result, SUCCESS};

/// CUDA's `dim3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// A kernel, compiled as C++.
#[derive(Clone, Copy)]
pub struct Kernel {
    at: *const c_void,
    lanes: &'static Lanes,
}

// SAFETY: the pointer is to a constant.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The functions of kernel.cpp, for warps of one size.
struct Lanes {
    find: unsafe extern "C" fn(*const c_char, usize) -> *const c_void,
    parameter_bytes: unsafe extern "C" fn(*const c_void) -> u32,
    run: Run,
}

type Find = unsafe extern "C" fn(*mut c_void, u64, *mut Window) -> u8;
type Run = unsafe extern "C" fn(
    *const c_void,
    *const c_void,
    *const Dim3,
    *const Dim3,
    *mut c_void,
    Find,
) -> i32;

/// Warps of one lane.
static ONE: Lanes = Lanes {
    find: cudasim_kernel,
    parameter_bytes: cudasim_kernel_parameter_bytes,
    run: cudasim_kernel_run,
};

/// Warps of 32 lanes.
#[cfg(target_arch = "x86_64")]
static WARP: Lanes = Lanes {
    find: cudasim_kernel_of_warps,
    parameter_bytes: cudasim_kernel_parameter_bytes_of_warps,
    run: cudasim_kernel_run_of_warps,
};
#[cfg(not(target_arch = "x86_64"))]
use ONE as WARP;

/// `Window` of host.h.
#[repr(C)]
struct Window {
    begin: u64,
    end: u64,
    bytes: *mut u8,
    mask: u8,
    writable: u8,
}

macro_rules! functions {
    ($find:ident, $parameter_bytes:ident, $run:ident) => {
        unsafe extern "C" {
            fn $find(name: *const c_char, length: usize) -> *const c_void;
            fn $parameter_bytes(kernel: *const c_void) -> u32;
            fn $run(
                kernel: *const c_void,
                parameter: *const c_void,
                grid: *const Dim3,
                block: *const Dim3,
                client: *mut c_void,
                find: Find,
            ) -> i32;
        }
    };
}

functions!(
    cudasim_kernel,
    cudasim_kernel_parameter_bytes,
    cudasim_kernel_run
);
#[cfg(target_arch = "x86_64")]
functions!(
    cudasim_kernel_of_warps,
    cudasim_kernel_parameter_bytes_of_warps,
    cudasim_kernel_run_of_warps
);

impl Kernel {
    pub fn named(name: &str) -> Option<Kernel> {
        let lanes = if config::has_warps() { &WARP } else { &ONE };
        // SAFETY: the name is readable for its length; the result is null or a constant.
        let at = unsafe { (lanes.find)(name.as_ptr().cast(), name.len()) };
        (!at.is_null()).then_some(Kernel { at, lanes })
    }

    /// The size of its one parameter in bytes.
    pub fn parameter_bytes(self) -> usize {
        // SAFETY: the pointer comes from `named`.
        unsafe { (self.lanes.parameter_bytes)(self.at) as usize }
    }

    /// Runs every thread of a launch. Memory that it accesses stays in place until it completes.
    pub fn run(
        self,
        context: &'static Context,
        parameter: &[u8],
        grid: Dim3,
        block: Dim3,
    ) -> Result {
        assert!(parameter.len() >= self.parameter_bytes());
        let mut accessed = Accessed {
            context,
            held: Vec::new(),
        };
        // SAFETY: the parameter is as long as the kernel reads, and `find` gets the `Accessed`,
        // which lives until the kernel has returned.
        let code = unsafe {
            (self.lanes.run)(
                self.at,
                parameter.as_ptr().cast(),
                &grid,
                &block,
                (&raw mut accessed).cast(),
                find,
            )
        };
        match code {
            SUCCESS => Ok(()),
            code => Err(CudaError(code)),
        }
    }
}

/// The memory that a launch has accessed so far.
struct Accessed {
    context: &'static Context,
    held: Vec<Use<Arc<Region>>>,
}

impl Accessed {
    /// The memory around an address, if a kernel in this context may access it: device memory of its
    /// own device, managed memory, and host memory that is pinned for the context.
    fn find(&mut self, address: u64) -> Option<Window> {
        let region = memory::find(address as usize)?;
        let reachable = match region.kind {
            Kind::Device => region.context.device == self.context.device,
            Kind::Managed => true,
            Kind::HostAllocated | Kind::HostRegistered => {
                region.portable || std::ptr::eq(region.context, self.context)
            }
        };
        if !reachable {
            return None;
        }
        let window = Window {
            begin: region.base as u64,
            end: (region.base + region.size) as u64,
            bytes: region.access(region.base),
            mask: if region.kind == Kind::Device {
                POISON
            } else {
                0
            },
            writable: u8::from(!region.read_only),
        };
        if !self
            .held
            .iter()
            .any(|held| Arc::ptr_eq(held.region(), &region))
        {
            self.held.push(Use::of(region)?);
        }
        Some(window)
    }
}

unsafe extern "C" fn find(client: *mut c_void, address: u64, window: *mut Window) -> u8 {
    // SAFETY: the client is the `Accessed` of the launch, which nothing else uses meanwhile.
    let accessed = unsafe { &mut *client.cast::<Accessed>() };
    match accessed.find(address) {
        Some(found) => {
            // SAFETY: the kernel passes a valid pointer.
            unsafe { window.write(found) };
            1
        }
        None => 0,
    }
}
