//! Reads and writes in flight on a ring, each of which continues until all its bytes have moved.
//!
//! A transfer is *waiting* (no room on the ring), *in flight* (one entry for its remaining bytes),
//! or *done*. The result of an entry decides: all bytes have moved, so the transfer is done; some
//! have, so an entry for the rest is queued; EAGAIN, so a thread of the kernel makes the next
//! attempt; the system refuses direct I/O, so the page cache finishes the transfer; or the transfer
//! has failed. At most `depth` entries are in flight, which keeps the medium busy without more
//! threads.

use std::collections::VecDeque;
use std::io;

use io_uring::{opcode, squeue, types};

use super::ring::IoRing;
use crate::error::{Error, Result};
use crate::file::position::{Call, Operation};
use crate::routes::Work;

/// One read or write of the file, in the request's direction.
pub(super) struct FileTransfer {
    /// The stage that the transfer serves; `None` if it moves the caller's memory.
    pub stage: Option<usize>,
    pub buffer: *mut u8,
    pub offset: u64,
    pub length: u64,
    /// The first bytes, which a read needs. The file may end after them.
    pub needed: u64,
    /// Whether the transfer bypasses the page cache. Buffer, offset and length are then aligned.
    pub direct: bool,
    /// Whether the buffer lies in the fixed buffer that has the stage's index.
    pub fixed: bool,
}

/// A transfer whose bytes have all moved.
pub(super) struct Done {
    pub stage: Option<usize>,
    pub bytes: u64,
    /// Whether all of them bypassed the page cache.
    pub direct: bool,
}

struct Going {
    transfer: FileTransfer,
    moved: u64,
    /// Whether a thread of the kernel waits for the medium (IOSQE_ASYNC).
    forced: bool,
}

/// The transfers of one lane: at most `depth` in flight, the rest waiting. Dropping this waits
/// until the kernel no longer uses any buffer.
///
/// After an error, this can only be dropped: the results of transfers in flight are then discarded.
pub(super) struct Transfers<'a> {
    work: Work<'a>,
    ring: IoRing,
    depth: u32,
    waiting: VecDeque<Going>,
    /// In flight; an entry's tag is its index here.
    going: Vec<Option<Going>>,
    free: Vec<usize>,
    done: Vec<Done>,
}

/// Bytes of one entry, whose length field has 32 bits; a multiple of any alignment.
const MAX_ENTRY: u64 = 1 << 30;

impl<'a> Transfers<'a> {
    pub(crate) fn new(work: Work<'a>) -> io::Result<Self> {
        let depth = work.queue_depth.max(1);
        Ok(Transfers {
            // A lane has two stages even if only one transfer may be in flight.
            ring: IoRing::lease(depth.max(2))?,
            work,
            depth,
            waiting: VecDeque::new(),
            going: (0..depth).map(|_| None).collect(),
            free: (0..depth as usize).rev().collect(),
            done: Vec::new(),
        })
    }

    /// See [`IoRing::attach`].
    ///
    /// # Safety
    /// The memory stays mapped until this is dropped, and no transfer in flight uses `index`.
    pub(crate) unsafe fn attach(&mut self, index: usize, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: passed on.
        u32::try_from(index).is_ok_and(|index| unsafe { self.ring.attach(index, start, bytes) })
    }

    /// Adds a transfer, which [`advance`](Self::advance) starts when there is room for it.
    ///
    /// # Safety
    /// The buffer is valid for `length` bytes of host memory, and not touched in a conflicting
    /// way, until the transfer is done or this is dropped.
    pub(crate) unsafe fn add(&mut self, transfer: FileTransfer) {
        self.waiting.push_back(Going {
            transfer,
            moved: 0,
            forced: false,
        });
    }

    /// Whether no transfer waits, is in flight, or is done and not fetched.
    pub(crate) fn is_empty(&self) -> bool {
        self.outstanding() == 0 && self.done.is_empty()
    }

    /// Whether another transfer would have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.depth as usize
    }

    fn outstanding(&self) -> usize {
        self.waiting.len() + self.ring.in_flight() as usize
    }

    /// Whether transfers wait for the place of those in flight.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A transfer that is done and was not fetched before.
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        self.done.pop()
    }

    /// Handles what has completed and starts what can start, without waiting.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.start()?;
        while let Some((tag, result)) = self.ring.pop() {
            let Some(going) = self.going.get_mut(tag as usize).and_then(Option::take) else {
                continue;
            };
            self.free.push(tag as usize);
            self.handle(going, result)?;
        }
        self.start()
    }

    /// As [`advance`](Self::advance), but first waits for something to complete.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.start()?;
        if self.done.is_empty() && self.ring.in_flight() > 0 {
            self.ring
                .wait()
                .map_err(|e| Error::os(&e, "cannot wait for io_uring"))?;
        }
        self.advance()
    }

    /// Starts waiting transfers as far as there is room.
    pub(crate) fn start(&mut self) -> Result<()> {
        while self.ring.in_flight() < self.depth
            && let Some(going) = self.waiting.pop_front()
        {
            self.launch(going)?;
        }
        self.work.counters.in_flight(self.ring.in_flight());
        self.ring.submit().map_err(|e| refused(&e))
    }

    /// Queues an entry for the rest of a transfer, as far as the gate allows.
    fn launch(&mut self, going: Going) -> Result<()> {
        let transfer = &going.transfer;
        let call = Call {
            operation: self.work.operation,
            offset: transfer.offset + going.moved,
            length: (transfer.length - going.moved).min(MAX_ENTRY),
        };
        let allowed = match self.work.gate.map_or(Ok(call.length), |g| g.before(call)) {
            Ok(allowed) => allowed.min(call.length) as u32,
            Err(error) => return self.handle(going, Err(error)),
        };
        let Some(place) = self.free.pop() else {
            self.waiting.push_front(going);
            return Ok(());
        };
        let entry = self
            .entry(&going, call.offset, allowed)
            .user_data(place as u64);
        self.work.counters.io_call();
        self.going[place] = Some(going);
        // SAFETY: the caller of `add` promised that the buffer is valid until the transfer is done or
        // this is dropped. The transfer is done only after the completion, and dropping the ring
        // waits for the kernel. The file is open as long as the work.
        unsafe { self.ring.push(&entry) }.map_err(|e| refused(&e))
    }

    fn entry(&self, going: &Going, offset: u64, length: u32) -> squeue::Entry {
        let transfer = &going.transfer;
        let descriptor = match self.work.file.direct_fd() {
            Some(direct) if transfer.direct => direct,
            _ => self.work.file.buffered_fd(),
        };
        let fd = types::Fd(descriptor);
        let buffer = transfer.buffer.wrapping_add(going.moved as usize);
        let fixed = transfer.stage.filter(|_| transfer.fixed);
        let entry = match (self.work.operation, fixed) {
            (Operation::Read, None) => opcode::Read::new(fd, buffer, length).offset(offset).build(),
            (Operation::Write, None) => opcode::Write::new(fd, buffer, length)
                .offset(offset)
                .build(),
            (Operation::Read, Some(index)) => {
                opcode::ReadFixed::new(fd, buffer, length, index as u16)
                    .offset(offset)
                    .build()
            }
            (Operation::Write, Some(index)) => {
                opcode::WriteFixed::new(fd, buffer, length, index as u16)
                    .offset(offset)
                    .build()
            }
        };
        if going.forced {
            entry.flags(squeue::Flags::ASYNC)
        } else {
            entry
        }
    }

    /// Handles the result of one entry: the transfer is done, continues, or has failed.
    fn handle(&mut self, mut going: Going, result: io::Result<u64>) -> Result<()> {
        let (offset, needed) = (going.transfer.offset, going.transfer.needed);
        match result {
            Ok(0) if self.work.operation == Operation::Read => {
                return Err(self.work.ended(offset, needed));
            }
            Ok(0) => {
                // POSIX leaves this case open. A retry might never end.
                let error = io::Error::from_raw_os_error(libc::EIO);
                return Err(self.work.failed(&error, offset, needed));
            }
            Ok(bytes) => going.moved += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The kernel would have to wait. A thread of the kernel may do so.
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && !going.forced => {
                going.forced = true;
            }
            Err(e) if self.goes_through_cache(&going, &e) => {
                let moved = going.moved;
                // SAFETY: the rest of the transfer's buffer, which the kernel no longer uses.
                unsafe {
                    let rest = going.transfer.buffer.add(moved as usize);
                    self.work
                        .move_buffered(rest, offset + moved, needed - moved)?;
                }
                going.moved = needed;
                going.transfer.direct = false;
            }
            Err(e) => return Err(self.work.failed(&e, offset, needed)),
        }
        if going.moved < needed {
            self.waiting.push_front(going);
            return Ok(());
        }
        self.done.push(Done {
            stage: going.transfer.stage,
            bytes: needed,
            direct: going.transfer.direct,
        });
        Ok(())
    }

    /// Whether the page cache may finish a direct transfer: if the system refuses direct I/O, or
    /// for the unaligned end of the file.
    fn goes_through_cache(&self, going: &Going, error: &io::Error) -> bool {
        let is_unaligned_end = error.raw_os_error() == Some(libc::EINVAL)
            && !going
                .moved
                .is_multiple_of(self.work.file.direct_alignment());
        going.transfer.direct && (self.work.may_fall_back(error) || is_unaligned_end)
    }
}

fn refused(error: &io::Error) -> Error {
    Error::os(error, "cannot submit to io_uring")
        .remedy("use fewer threads or a smaller queue_depth, or io=threads")
}
