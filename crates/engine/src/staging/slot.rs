//! The ring and its slots.

use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda;

use super::ledger::{Item, Ledger};
use crate::error::{Error, Kind, Result};
use crate::gpu::{OwnContext, Pages};

/// The use of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fitness {
    pinned: bool,
    /// [`OwnContext::failed`] when the slot was pinned.
    failed: usize,
    node: Option<u32>,
}

/// Pinned memory in slots, for all requests of the process. Slots stay pinned when they are
/// returned, so a block costs neither an allocation nor a system call besides its I/O.
pub struct Ring {
    ledger: Ledger<Fitness, Pages>,
}

/// A slot for the sole use of one worker. Dropping it returns it to the ring.
pub struct Slot {
    ring: &'static Ring,
    item: Option<Item<Fitness, Pages>>,
}

impl Ring {
    /// An empty ring, whose slots will have at most `capacity` bytes in total.
    pub fn new(capacity: u64) -> Ring {
        Ring {
            ledger: Ledger::new(capacity),
        }
    }

    /// The most bytes that all slots may have in total.
    pub fn capacity(&self) -> u64 {
        self.ledger.capacity()
    }

    /// A slot of at least `bytes`, pinned if a context is given. Waits while the ring is used up, so the
    /// calling thread must hold no other slot.
    ///
    /// # Errors
    /// [`Kind::Memory`] if the slot cannot be allocated or pinned.
    pub fn slot(&'static self, bytes: u64, context: Option<&Arc<OwnContext>>) -> Result<Slot> {
        let slot = self.acquire(bytes, context, true)?;
        Ok(slot.expect("the ledger has waited for an item"))
    }

    /// As [`slot`](Self::slot), but returns `None` instead of waiting; for further slots of a worker.
    ///
    /// # Errors
    /// As for [`slot`](Self::slot).
    pub fn further_slot(
        &'static self,
        bytes: u64,
        context: Option<&Arc<OwnContext>>,
    ) -> Result<Option<Slot>> {
        self.acquire(bytes, context, false)
    }

    fn acquire(
        &'static self,
        bytes: u64,
        context: Option<&Arc<OwnContext>>,
        waits: bool,
    ) -> Result<Option<Slot>> {
        let (bytes, fitness) = (slot_size(bytes)?, fitness(context));
        let make = || slot_pages(bytes, fitness.node, context);
        let item = self.ledger.acquire(fitness, bytes, waits, make)?;
        Ok(item.map(|item| Slot {
            ring: self,
            item: Some(item),
        }))
    }
}

fn fitness(context: Option<&Arc<OwnContext>>) -> Fitness {
    Fitness {
        pinned: context.is_some(),
        failed: OwnContext::failed(),
        node: context.and_then(|c| c.node),
    }
}

/// The bytes of a slot for `bytes`. There are few sizes, so that requests with different blocks
/// share slots: pinning new memory takes far longer than moving a small block.
fn slot_size(bytes: u64) -> Result<u64> {
    let size = bytes.max(1 << 20).checked_next_power_of_two();
    size.ok_or_else(|| Error::new(Kind::Memory, format!("no slot holds {bytes} bytes")))
}

impl Slot {
    /// The first byte of the slot, which is page-aligned.
    pub fn start(&self) -> *mut u8 {
        match &self.item {
            Some(item) => item.value.start(),
            None => ptr::null_mut(),
        }
    }

    /// The bytes of the slot, at least the requested number.
    pub fn bytes(&self) -> usize {
        self.item.as_ref().map_or(0, |item| item.value.bytes())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.ring.ledger.release(item);
        }
    }
}

/// Memory for a slot, pinned if it serves the GPU.
fn slot_pages(bytes: u64, node: Option<u32>, context: Option<&Arc<OwnContext>>) -> Result<Pages> {
    let mut pages = Pages::anonymous(bytes as usize)
        .map_err(|e| Error::os(&e, "cannot allocate a slot of the ring"))?;
    // These are hints, which the kernel may refuse: fewer TLB misses, no copy-on-write of pinned
    // pages in a forked child, and pages on the NUMA node of the GPU.
    let _ = pages.advise(libc::MADV_HUGEPAGE);
    let _ = pages.advise(libc::MADV_DONTFORK);
    if let Some(node) = node {
        prefer(&pages, node);
    }
    if let Some(context) = context {
        // Streams of the program and other devices copy from slots as well.
        let code = pages.pin(context, cuda::CU_MEMHOSTREGISTER_PORTABLE)?;
        context
            .driver
            .check(code, "cuMemHostRegister of a slot of the ring")?;
    }
    Ok(pages)
}

fn prefer(pages: &Pages, node: u32) {
    const MPOL_PREFERRED: libc::c_int = 1;
    let mut mask = [0u64; 16];
    let Some(word) = mask.get_mut(node as usize / 64) else {
        return;
    };
    *word |= 1 << (node % 64);
    // SAFETY: the range is that of the pages; the mask has the number of bits given.
    unsafe {
        libc::syscall(
            libc::SYS_mbind,
            pages.start(),
            pages.bytes(),
            MPOL_PREFERRED,
            mask.as_ptr(),
            mask.len() * 64,
            0,
        )
    };
}
