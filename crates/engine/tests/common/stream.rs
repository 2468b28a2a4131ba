//! A stream of the caller's, as an application has one.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use penstock_engine::{Stream, StreamOrder, allocate};
use penstock_sys::cuda::{self, CUstream, Cuda};

pub struct CallerStream {
    handle: CUstream,
    cuda: &'static Cuda,
}

// SAFETY: a CUstream may be used from any thread.
unsafe impl Send for CallerStream {}
// SAFETY: as above.
unsafe impl Sync for CallerStream {}

/// Work queued on a stream behind a gate waits until the gate is opened.
pub struct Gate(*mut u32);

// SAFETY: the word is only used atomically.
unsafe impl Send for Gate {}

/// A function of the driver that the engine does not call.
pub fn driver_function(name: &CStr) -> *mut c_void {
    let library = std::env::var_os("PENSTOCK_CUDA_LIBRARY").unwrap_or("libcuda.so.1".into());
    let library = CString::new(library.into_vec()).unwrap();
    // SAFETY: the library is loaded already, and stays open.
    let found = unsafe {
        libc::dlsym(
            libc::dlopen(library.as_ptr(), libc::RTLD_NOW),
            name.as_ptr(),
        )
    };
    assert!(!found.is_null());
    found
}

/// Makes the primary context of device 0 current on this thread, as the CUDA runtime does.
pub fn enter_context() -> &'static Cuda {
    let cuda = cuda::cuda().unwrap();
    let mut context = ptr::null_mut();
    // SAFETY: `context` is a place for the answer; the context is kept for the whole process.
    unsafe {
        assert_eq!((cuda.cuInit)(0), 0);
        assert_eq!((cuda.cuDevicePrimaryCtxRetain)(&mut context, 0), 0);
        assert_eq!((cuda.cuCtxSetCurrent)(context), 0);
    }
    cuda
}

impl CallerStream {
    pub fn new() -> CallerStream {
        CallerStream::with(cuda::CU_STREAM_NON_BLOCKING)
    }

    /// One that the legacy default stream waits for.
    pub fn blocking() -> CallerStream {
        CallerStream::with(cuda::CU_STREAM_DEFAULT)
    }

    /// As [`new`](Self::new), in the current context.
    pub fn here() -> CallerStream {
        CallerStream::of_current(cuda::cuda().unwrap(), cuda::CU_STREAM_NON_BLOCKING)
    }

    /// As [`blocking`](Self::blocking), in the current context.
    pub fn blocking_here() -> CallerStream {
        CallerStream::of_current(cuda::cuda().unwrap(), cuda::CU_STREAM_DEFAULT)
    }

    /// Queues a copy of pageable memory, which may be used again at once. A real driver waits for the
    /// stream meanwhile.
    pub fn copy_to_gpu(&self, to: u64, from: &[u8]) {
        let copy = self.cuda.cuMemcpyHtoDAsync;
        // SAFETY: both are that long.
        let code = unsafe { copy(to, from.as_ptr().cast(), from.len(), self.handle) };
        assert_eq!(code, 0);
    }

    fn with(flags: u32) -> CallerStream {
        CallerStream::of_current(enter_context(), flags)
    }

    fn of_current(cuda: &'static Cuda, flags: u32) -> CallerStream {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a place for the answer.
        let code = unsafe { (cuda.cuStreamCreate)(&mut handle, flags) };
        assert_eq!(code, 0);
        CallerStream { handle, cuda }
    }

    pub fn raw(&self) -> Stream {
        // SAFETY: the stream lives as long as this, and tests wait for their requests before.
        unsafe { Stream::from_raw(self.handle) }
    }

    /// The request starts when what is queued so far is done.
    pub fn then(&self) -> StreamOrder {
        self.order(true, false)
    }

    /// What is queued from now on starts when the request is finished.
    pub fn held(&self) -> StreamOrder {
        self.order(false, true)
    }

    pub fn order(&self, after: bool, before: bool) -> StreamOrder {
        StreamOrder {
            stream: self.raw(),
            after,
            before,
        }
    }

    pub fn close_gate(&self) -> Gate {
        let word = allocate::host_alloc(4).unwrap().cast::<u32>();
        let wait = self.cuda.cuStreamWaitValue32.unwrap();
        // SAFETY: four bytes of pinned memory, which are never freed.
        let code = unsafe {
            word.write(0);
            wait(self.handle, word as u64, 1, cuda::CU_STREAM_WAIT_VALUE_GEQ)
        };
        assert_eq!(code, 0);
        Gate(word)
    }

    /// Queues a copy.
    ///
    /// # Safety
    /// Both are valid for `bytes` until the copy is done.
    pub unsafe fn copy(&self, to: usize, from: usize, bytes: usize) {
        // SAFETY: passed on.
        let code = unsafe { (self.cuda.cuMemcpyAsync)(to as u64, from as u64, bytes, self.handle) };
        assert_eq!(code, 0);
    }

    /// Queues a fill of device memory.
    ///
    /// # Safety
    /// The memory is valid for `bytes` until the fill is done.
    pub unsafe fn fill(&self, to: usize, value: u8, bytes: usize) {
        // SAFETY: passed on.
        let code = unsafe { (self.cuda.cuMemsetD8Async)(to as u64, value, bytes, self.handle) };
        assert_eq!(code, 0);
    }

    /// Whether all that was queued is done.
    pub fn is_idle(&self) -> bool {
        // SAFETY: the stream is live.
        match unsafe { (self.cuda.cuStreamQuery)(self.handle) } {
            cuda::CUDA_ERROR_NOT_READY => false,
            code => {
                assert_eq!(code, 0);
                true
            }
        }
    }

    pub fn synchronize(&self) {
        // SAFETY: the stream is live.
        assert_eq!(unsafe { (self.cuda.cuStreamSynchronize)(self.handle) }, 0);
    }
}

impl Drop for CallerStream {
    fn drop(&mut self) {
        // SAFETY: made in `new`; what is queued still runs.
        unsafe { (self.cuda.cuStreamDestroy)(self.handle) };
    }
}

impl Gate {
    pub fn open(&self) {
        // SAFETY: the word is never freed and only used atomically.
        unsafe { AtomicU32::from_ptr(self.0) }.store(1, Ordering::Release);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A test that fails must not leave the stream blocked.
        self.open();
    }
}

/// Managed memory of the primary context of device 0; freed by `allocate::device_free`.
pub fn managed(bytes: usize) -> usize {
    let cuda = enter_context();
    let mut address = 0;
    // SAFETY: `address` is a place for the answer.
    let code = unsafe { (cuda.cuMemAllocManaged)(&mut address, bytes, cuda::CU_MEM_ATTACH_GLOBAL) };
    assert_eq!(code, 0);
    address as usize
}
