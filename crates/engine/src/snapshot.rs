//! Copies of memory as it is at one moment, for work that continues when the owner changes the
//! memory.

mod device;
mod host;

use std::ops::Range;

use crate::error::{Error, Kind, Result};
use crate::gpu::stream::Stream;
use crate::memory::{Memory, MemoryKind};
use crate::request::StreamOrder;
use device::OnGpu;
use host::OnHost;

/// A copy of memory. Dropping it, on any thread, frees the memory or keeps it for the next copy.
/// All work with the copy must be done by then.
pub struct Snapshot {
    storage: Storage,
}

enum Storage {
    Host(OnHost),
    Device(OnGpu),
}

/// A copy, which may still be in progress on a stream.
pub struct Taken {
    /// The copy.
    pub snapshot: Snapshot,
    /// The stream that work with the copy must follow; `None` if the copy is complete.
    pub after: Option<StreamOrder>,
}

impl Snapshot {
    /// Copies the bytes `touched` of the memory that starts at `address`. Other bytes of the copy
    /// are undefined.
    ///
    /// Host memory is copied when this returns. GPU memory is copied on the GPU, or into host
    /// memory if the GPU has no room. Without `stream`, the copy comes after the work queued so far
    /// on the legacy default stream, and is complete when this returns. With `stream`, the copy is
    /// work of that stream: work queued there later may change the memory, and nothing else may
    /// change it earlier.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a null pointer; [`Kind::Memory`] without room for the copy.
    ///
    /// # Safety
    /// The memory is valid there, and `stream` is live, until work with the copy has begun.
    pub unsafe fn take(
        address: usize,
        touched: Range<u64>,
        stream: Option<Stream>,
    ) -> Result<Taken> {
        let from = address.checked_add(touched.start as usize);
        let from = from.ok_or_else(|| {
            Error::invalid("the memory extends past the end of the address space")
        })?;
        if touched.start < touched.end && address == 0 {
            return Err(Error::invalid("the buffer is a null pointer"));
        }
        let memory = Memory::at(from)?;
        let Some(context) = memory.context.as_ref().filter(|_| !touched.is_empty()) else {
            // SAFETY: passed on; host memory.
            let copied = unsafe { OnHost::of_host(address, touched)? };
            return Ok(Taken::now(Storage::Host(copied)));
        };
        crate::fork::refuse_fork()?;
        // SAFETY: passed on.
        match unsafe { OnGpu::take(context, from, &touched, stream) } {
            Ok((copied, after)) => Ok(Taken {
                snapshot: Snapshot {
                    storage: Storage::Device(copied),
                },
                after,
            }),
            Err(error) if is_for_want_of_room(&error) => {
                // SAFETY: passed on.
                let copied = unsafe { OnHost::of_gpu(&memory, address, touched, stream)? };
                Ok(Taken::now(Storage::Host(copied)))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies a part of each element of host memory: `part` of the `size` bytes of an element. In the copy, the
    /// parts lie side by side. `touched` has whole elements.
    ///
    /// # Errors
    /// [`Kind::Memory`] without room for the copy.
    ///
    /// # Safety
    /// The elements `touched` of the memory that starts at `address` are valid host memory.
    pub unsafe fn take_parts(
        address: usize,
        touched: Range<u64>,
        size: u64,
        part: Range<u64>,
    ) -> Result<Taken> {
        // SAFETY: passed on.
        let copied = unsafe { OnHost::of_parts(address, touched, size, part)? };
        Ok(Taken::now(Storage::Host(copied)))
    }

    /// The address in the copy that corresponds to `address` of the original: copied bytes lie at
    /// the same distance from it.
    pub fn address(&self) -> usize {
        match &self.storage {
            Storage::Host(copied) => copied.address(),
            Storage::Device(copied) => copied.address(),
        }
    }

    /// The kind of memory that the copy lies in.
    pub fn kind(&self) -> MemoryKind {
        match self.storage {
            Storage::Host(_) => MemoryKind::Host,
            Storage::Device(_) => MemoryKind::Device,
        }
    }
}

impl Taken {
    fn now(storage: Storage) -> Taken {
        Taken {
            snapshot: Snapshot { storage },
            after: None,
        }
    }
}

fn is_for_want_of_room(error: &Error) -> bool {
    matches!(error.kind(), Kind::Memory | Kind::Unavailable)
}
