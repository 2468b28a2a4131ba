//! One slot of the ring, and the ring that lends them.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use penstock_sys::cuda;

use super::ledger::{Item, Ledger};
use crate::error::{Error, Kind, Result};
use crate::gpu::Context;

/// What a slot is fit for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fitness {
    pinned: bool,
    node: Option<u32>,
}

/// Anonymous memory, page-aligned; registered with CUDA if it serves the GPU.
struct Room {
    start: NonNull<u8>,
    bytes: usize,
    /// In whose context it was registered; portable, so any context may copy from it.
    registered: Option<Arc<Context>>,
}

// SAFETY: plain memory, owned by whoever holds the room.
unsafe impl Send for Room {}

/// Lends slots. Slots given back are kept pinned, so a block costs neither an allocation nor a
/// system call besides its I/O.
pub(crate) struct Ring {
    ledger: Ledger<Fitness, Room>,
}

/// A slot on loan; goes back to the ring when dropped.
pub(crate) struct Slot {
    ring: &'static Ring,
    item: Option<Item<Fitness, Room>>,
}

impl Ring {
    pub fn new(capacity: u64) -> Ring {
        Ring {
            ledger: Ledger::new(capacity),
        }
    }

    /// Greatest total of slot bytes.
    pub fn capacity(&self) -> u64 {
        self.ledger.capacity()
    }

    /// A slot of at least `bytes`, pinned for the GPU if a context is given (which must be
    /// current). Waits while the ring is used up: the calling thread must hold no other slot.
    pub fn slot(&'static self, bytes: u64, context: Option<&Arc<Context>>) -> Result<Slot> {
        let bytes = slot_size(bytes);
        let fitness = fitness(context);
        let item = self
            .ledger
            .acquire(fitness, bytes, || Room::new(bytes, fitness.node, context))?;
        Ok(Slot {
            ring: self,
            item: Some(item),
        })
    }

    /// As [`slot`](Self::slot), but `None` instead of waiting; for further slots of one worker.
    pub fn further_slot(
        &'static self,
        bytes: u64,
        context: Option<&Arc<Context>>,
    ) -> Result<Option<Slot>> {
        let bytes = slot_size(bytes);
        let fitness = fitness(context);
        self.ledger
            .try_acquire(fitness, bytes, || Room::new(bytes, fitness.node, context))
            .transpose()
            .map(|item| {
                item.map(|item| Slot {
                    ring: self,
                    item: Some(item),
                })
            })
    }
}

fn fitness(context: Option<&Arc<Context>>) -> Fitness {
    Fitness {
        pinned: context.is_some(),
        node: context.and_then(|c| c.node),
    }
}

/// Few sizes, so that requests with different blocks share slots: pinning new memory takes far
/// longer than moving a small block.
fn slot_size(bytes: u64) -> u64 {
    bytes.max(1 << 20).next_power_of_two()
}

impl Slot {
    /// Page-aligned start of the slot.
    pub fn start(&self) -> *mut u8 {
        match &self.item {
            Some(item) => item.value.start.as_ptr(),
            None => ptr::null_mut(),
        }
    }

    pub fn bytes(&self) -> usize {
        self.item.as_ref().map_or(0, |item| item.value.bytes)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.ring.ledger.release(item);
        }
    }
}

impl Room {
    fn new(bytes: u64, node: Option<u32>, context: Option<&Arc<Context>>) -> Result<Room> {
        let bytes = bytes as usize;
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os("cannot allocate a slot of the ring"));
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Error::new(Kind::Internal, "mmap returned address 0"));
        };
        let mut room = Room {
            start,
            bytes,
            registered: None,
        };
        // Hints: fewer TLB misses, no copy-on-write of pinned pages in a forked child, and pages
        // on the node of the GPU. All of them may be refused without harm.
        // SAFETY: the range is the mapping made above.
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTFORK);
        }
        if let Some(node) = node {
            room.prefer(node);
        }
        if let Some(context) = context {
            room.register(context)?;
        }
        Ok(room)
    }

    fn prefer(&self, node: u32) {
        const MPOL_PREFERRED: libc::c_int = 1;
        let mut mask = [0u64; 16];
        let Some(word) = mask.get_mut(node as usize / 64) else {
            return;
        };
        *word |= 1 << (node % 64);
        // SAFETY: the range is this room's; the mask has the number of bits given.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                MPOL_PREFERRED,
                mask.as_ptr(),
                mask.len() * 64,
                0,
            )
        };
    }

    fn register(&mut self, context: &Arc<Context>) -> Result<()> {
        let driver = context.driver;
        // SAFETY: the range is this room's own memory, which stays mapped until `drop`
        // unregisters it.
        let code = unsafe {
            (driver.cuda.cuMemHostRegister)(
                self.start.as_ptr().cast(),
                self.bytes,
                cuda::CU_MEMHOSTREGISTER_PORTABLE,
            )
        };
        driver.check(code, "cuMemHostRegister of a slot")?;
        self.registered = Some(Arc::clone(context));
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(context) = self.registered.take() {
            // Any thread may drop the room, also one that works in no context.
            if let Ok(_entered) = context.enter() {
                // SAFETY: registered in `register`; no copy is under way, as the slot was given
                // back to the ring.
                unsafe { (context.driver.cuda.cuMemHostUnregister)(self.start.as_ptr().cast()) };
            }
        }
        // SAFETY: the mapping made in `new`; nobody holds a pointer into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
