//! The CPU twins of the kernels: the same sources, compiled as C++.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::device::Context;
use crate::memory::{self, POISON};
use crate::region::{Kind, Region, Use};
use crate::status::{CudaError, Result, SUCCESS};

/// Counts along three axes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Extent {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// A kernel as C++.
#[derive(Clone, Copy)]
pub struct Twin(*const c_void);

// SAFETY: it points to a constant.
unsafe impl Send for Twin {}
// SAFETY: as above.
unsafe impl Sync for Twin {}

/// `Window` of twin.h.
#[repr(C)]
struct Window {
    begin: u64,
    end: u64,
    bytes: *mut u8,
    mask: u8,
    writable: u8,
}

unsafe extern "C" {
    fn cudasim_twin(name: *const c_char, length: usize) -> *const c_void;
    fn cudasim_twin_parameter_bytes(twin: *const c_void) -> u32;
    fn cudasim_twin_run(
        twin: *const c_void,
        parameter: *const c_void,
        grid: *const Extent,
        block: *const Extent,
        client: *mut c_void,
        find: unsafe extern "C" fn(*mut c_void, u64, *mut Window) -> u8,
    ) -> i32;
}

impl Twin {
    pub fn named(name: &str) -> Option<Twin> {
        // SAFETY: the name is readable for its length; the answer is null or lives for good.
        let twin = unsafe { cudasim_twin(name.as_ptr().cast(), name.len()) };
        (!twin.is_null()).then_some(Twin(twin))
    }

    /// Bytes of its one parameter.
    pub fn parameter_bytes(self) -> usize {
        // SAFETY: the twin is one of `named`.
        unsafe { cudasim_twin_parameter_bytes(self.0) as usize }
    }

    /// Runs every thread of a launch. Memory that it touches stays in place until it is done.
    pub fn run(
        self,
        context: &'static Context,
        parameter: &[u8],
        grid: Extent,
        block: Extent,
    ) -> Result {
        assert!(parameter.len() >= self.parameter_bytes());
        let mut reach = Reach {
            context,
            held: Vec::new(),
        };
        // SAFETY: the parameter is as long as the twin reads, and `find` gets the `Reach` that
        // lives until the twin has returned.
        let code = unsafe {
            cudasim_twin_run(
                self.0,
                parameter.as_ptr().cast(),
                &grid,
                &block,
                (&raw mut reach).cast(),
                find,
            )
        };
        match code {
            SUCCESS => Ok(()),
            code => Err(CudaError(code)),
        }
    }
}

/// What a launch has touched so far.
struct Reach {
    context: &'static Context,
    held: Vec<Use<Arc<Region>>>,
}

impl Reach {
    /// The memory around an address, if a kernel in this context may touch it: device memory of its
    /// own device, managed memory, and what is pinned for it.
    fn find(&mut self, address: u64) -> Option<Window> {
        let region = memory::find(address as usize)?;
        let is_own = std::ptr::eq(region.context, self.context);
        let reachable = match region.kind {
            Kind::Device => is_own,
            Kind::Managed => true,
            Kind::HostAllocated | Kind::HostRegistered => is_own || region.portable,
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
    // SAFETY: the client is the `Reach` of the launch, which nobody else touches meanwhile.
    let reach = unsafe { &mut *client.cast::<Reach>() };
    match reach.find(address) {
        Some(found) => {
            // SAFETY: the twin passes a place for the answer.
            unsafe { window.write(found) };
            1
        }
        None => 0,
    }
}
