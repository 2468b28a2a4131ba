//! Memory as it is at one moment, for work that goes on when its owner uses it for something else.

mod device;
mod host;

use std::ops::Range;

use crate::error::{Error, Kind, Result};
use crate::gpu::stream::Stream;
use crate::memory::{Memory, MemoryKind};
use crate::request::StreamOrder;
use device::OnGpu;
use host::OnHost;

/// A copy of memory. Dropping it lets the memory go, or keeps it for the next copy. What uses it has
/// ended before; dropped by any thread.
pub struct Snapshot {
    place: Place,
}

enum Place {
    Host(OnHost),
    Device(OnGpu),
}

/// A copy and what it comes after.
pub struct Taken {
    pub snapshot: Snapshot,
    /// Work with the copy comes after this stream; without one the copy is there already.
    pub after: Option<StreamOrder>,
}

impl Snapshot {
    /// Copies the bytes `touched` of the memory that starts at `address`; those outside are of no use
    /// in the copy.
    ///
    /// Host memory is copied when this returns. GPU memory is copied on the GPU: after what the legacy
    /// default stream has been given so far and done when this returns, or as work of `stream`, if
    /// one is given: then what is queued on that stream later may change the memory, and nothing
    /// else may before. What the GPU has no room for is copied into host memory.
    ///
    /// # Safety
    /// The memory is valid there, and `stream` is live, until work with the copy has begun.
    pub unsafe fn take(
        address: usize,
        touched: Range<u64>,
        stream: Option<Stream>,
    ) -> Result<Taken> {
        let from = address.checked_add(touched.start as usize);
        let from = from.ok_or_else(|| Error::invalid("the memory reaches beyond all addresses"))?;
        if touched.start < touched.end && address == 0 {
            return Err(Error::invalid("the buffer is a null pointer"));
        }
        let memory = Memory::at(from)?;
        let Some(context) = memory.context.as_ref().filter(|_| !touched.is_empty()) else {
            // SAFETY: passed on; host memory.
            let copied = unsafe { OnHost::of_host(address, touched)? };
            return Ok(Taken::now(Place::Host(copied)));
        };
        crate::fork::refuse_fork()?;
        // SAFETY: passed on.
        match unsafe { OnGpu::take(context, from, &touched, stream) } {
            Ok((copied, after)) => Ok(Taken {
                snapshot: Snapshot {
                    place: Place::Device(copied),
                },
                after,
            }),
            Err(error) if is_for_want_of_room(&error) => {
                // SAFETY: passed on.
                let copied = unsafe { OnHost::of_gpu(&memory, address, touched, stream)? };
                Ok(Taken::now(Place::Host(copied)))
            }
            Err(error) => Err(error),
        }
    }

    /// Where the first byte of the memory would lie, were it copied; the copied ones lie behind it as
    /// in the original.
    pub fn address(&self) -> usize {
        match &self.place {
            Place::Host(copied) => copied.address(),
            Place::Device(copied) => copied.address(),
        }
    }

    /// Whether the copy lies in GPU memory.
    pub fn kind(&self) -> MemoryKind {
        match self.place {
            Place::Host(_) => MemoryKind::Host,
            Place::Device(_) => MemoryKind::Device,
        }
    }
}

impl Taken {
    fn now(place: Place) -> Taken {
        Taken {
            snapshot: Snapshot { place },
            after: None,
        }
    }
}

fn is_for_want_of_room(error: &Error) -> bool {
    matches!(error.kind(), Kind::Memory | Kind::Unavailable)
}
