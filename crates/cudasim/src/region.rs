//! One range of memory that the driver knows: device, managed, or pinned host memory.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::arena::Arena;
use crate::device::Context;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Managed,
    /// Allocated by `cuMemHostAlloc` and freed by `cuMemFreeHost`; owned by the stand-in.
    HostAllocated,
    /// Registered by `cuMemHostRegister`; owned by the client.
    HostRegistered,
}

pub struct Region {
    pub kind: Kind,
    pub base: usize,
    pub size: usize,
    pub context: &'static Context,
    /// Unique among all regions of the process.
    pub identity: u64,
    /// Whether the GPU may not write to it.
    pub read_only: bool,
    /// Whether kernels of other contexts and copies of other devices may use it as pinned memory.
    pub portable: bool,
    /// Whether the memory is of a pool, and so of no context.
    pub in_pool: AtomicBool,
    /// The arena that is charged for `Device` and `Managed` regions.
    arena: &'static Arena,
    usage: Mutex<Usage>,
    unused: Condvar,
}

/// The users of a region. A region is retired once and has no new users afterwards.
struct Usage {
    retired: bool,
    users: usize,
}

/// A guard that keeps a region's bytes in place while they are accessed.
pub struct Use<R: Deref<Target = Region>>(R);

impl Region {
    pub fn new(
        kind: Kind,
        base: usize,
        size: usize,
        context: &'static Context,
        read_only: bool,
        portable: bool,
    ) -> Arc<Region> {
        static IDENTITY: AtomicU64 = AtomicU64::new(1);
        Arc::new(Region {
            kind,
            base,
            size,
            context,
            identity: IDENTITY.fetch_add(1, Ordering::Relaxed),
            read_only,
            portable,
            in_pool: AtomicBool::new(false),
            arena: context.arena(),
            usage: Mutex::new(Usage {
                retired: false,
                users: 0,
            }),
            unused: Condvar::new(),
        })
    }

    pub fn contains(&self, address: usize) -> bool {
        address
            .checked_sub(self.base)
            .is_some_and(|offset| offset < self.size)
    }

    /// Bytes from `address` to the end of the region.
    pub fn rest(&self, address: usize) -> usize {
        self.base + self.size - address
    }

    pub fn is_host(&self) -> bool {
        matches!(self.kind, Kind::HostAllocated | Kind::HostRegistered)
    }

    /// The pointer through which the stand-in accesses the bytes of `address`.
    pub fn access(&self, address: usize) -> *mut u8 {
        match self.kind {
            Kind::Device => self.arena.access(address),
            _ => address as *mut u8,
        }
    }

    /// `None` once the region is freed or unregistered.
    pub fn enter(&self) -> Option<Use<&Region>> {
        Use::of(self)
    }

    /// Refuses new users and waits until the last one has left, so that the client may unmap the
    /// memory. Returns false if the region was already retired.
    pub fn retire(&self) -> bool {
        let mut usage = self.usage.lock().unwrap();
        if std::mem::replace(&mut usage.retired, true) {
            return false;
        }
        while usage.users > 0 {
            usage = self.unused.wait(usage).unwrap();
        }
        if matches!(self.kind, Kind::Device | Kind::Managed) {
            self.arena.refund(self.size);
        }
        true
    }
}

impl<R: Deref<Target = Region>> Use<R> {
    /// As [`Region::enter`].
    pub fn of(region: R) -> Option<Use<R>> {
        let mut usage = region.usage.lock().unwrap();
        if usage.retired {
            return None;
        }
        usage.users += 1;
        drop(usage);
        Some(Use(region))
    }

    pub fn region(&self) -> &R {
        &self.0
    }
}

impl<R: Deref<Target = Region>> Drop for Use<R> {
    fn drop(&mut self) {
        self.0.usage.lock().unwrap().users -= 1;
        self.0.unused.notify_all();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.kind {
            Kind::Device => self.arena.release(self.base),
            Kind::Managed | Kind::HostAllocated => crate::memory::unmap_host(self.base, self.size),
            Kind::HostRegistered => {}
        }
    }
}
