//! Bounce buffers in host memory for GPU data that the engine does not move.

use std::ptr;
use std::sync::Mutex;

use penstock_engine::Recover;
use penstock_engine::allocate;
use penstock_engine::error::{Error, Result};

/// The kind of a bounce buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary memory, which the CUDA driver copies once more.
    Pageable,
    /// Page-locked memory, which the GPU accesses directly.
    Pinned,
}

/// Unused buffers. They stay until the process ends, as a program would keep its own buffers from
/// file to file: allocating and pinning a buffer takes as long as moving the bytes.
static KEPT: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

/// A page-aligned buffer for the exclusive use of its owner.
pub(crate) struct Buffer(Option<Memory>);

impl Buffer {
    /// Returns a buffer of at least `bytes` bytes with arbitrary contents.
    pub(crate) fn new(kind: Kind, bytes: u64) -> Result<Buffer> {
        let bytes = bytes.max(1) as usize;
        let mut kept = KEPT.lock().recover();
        let of_kind = |memory: &(usize, &Memory)| memory.1.kind == kind;
        let fitting = kept
            .iter()
            .enumerate()
            .filter(of_kind)
            .filter(|(_, memory)| memory.bytes >= bytes)
            .min_by_key(|(_, memory)| memory.bytes);
        if let Some((at, _)) = fitting {
            return Ok(Buffer(Some(kept.swap_remove(at))));
        }
        // Frees a buffer that is too small to make room for this one.
        let small = kept
            .iter()
            .enumerate()
            .filter(of_kind)
            .max_by_key(|(_, memory)| memory.bytes)
            .map(|(at, _)| at);
        let small = small.map(|at| kept.swap_remove(at));
        drop(kept);
        drop(small);
        Ok(Buffer(Some(Memory::new(kind, bytes)?)))
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.0
            .as_ref()
            .map_or(ptr::null_mut(), |memory| memory.start)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().recover();
        kept.extend(self.0.take());
    }
}

struct Memory {
    kind: Kind,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory may be used from any thread, by one at a time.
unsafe impl Send for Memory {}

impl Memory {
    fn new(kind: Kind, bytes: usize) -> Result<Memory> {
        let start = match kind {
            Kind::Pinned => allocate::host_alloc(bytes as u64)?.cast(),
            Kind::Pageable => map(bytes)?,
        };
        Ok(Memory { kind, start, bytes })
    }
}

fn map(bytes: usize) -> Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: creates a new mapping, which affects no other memory.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Error::last_os(&format!(
            "cannot allocate a buffer of {bytes} bytes"
        )));
    }
    Ok(start.cast())
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.kind {
            // SAFETY: allocated by this kind, and unused now. If the driver refuses, the memory is
            // leaked and nothing else happens.
            Kind::Pinned => unsafe {
                let _ = allocate::host_free(self.start.cast());
            },
            // SAFETY: mapped with this length, and unused now.
            Kind::Pageable => unsafe {
                libc::munmap(self.start.cast(), self.bytes);
            },
        }
    }
}
