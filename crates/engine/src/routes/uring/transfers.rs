//! Reads and writes under way on a ring, each carried on until all its bytes are moved.

use std::collections::VecDeque;
use std::io;

use io_uring::{opcode, squeue, types};

use super::ring::IoRing;
use crate::error::{Error, Result};
use crate::file::position::{Call, Operation};
use crate::routes::Work;

/// One read or write of the file, in the request's direction.
pub(super) struct Transfer {
    /// The stage that it serves; `None` if it is between the file and the caller's memory.
    pub stage: Option<usize>,
    pub buffer: *mut u8,
    pub offset: u64,
    pub length: u64,
    /// A read needs only so many bytes, and may find the end of the file behind them.
    pub needed: u64,
    /// Past the page cache: then buffer, offset and length are aligned.
    pub direct: bool,
    /// The buffer lies in the fixed buffer of the stage's number.
    pub fixed: bool,
}

/// A transfer that has all its bytes.
pub(super) struct Done {
    pub stage: Option<usize>,
    pub bytes: u64,
    /// Whether all of them went past the page cache.
    pub direct: bool,
}

struct Going {
    transfer: Transfer,
    moved: u64,
    /// The kernel is told to let a thread of its own wait.
    forced: bool,
}

/// The transfers of one lane: at most `depth` with the kernel, the others waiting their turn.
/// Dropping it waits for the kernel to let go of all buffers.
///
/// After an error it can only be dropped: what was under way then ends unseen.
pub(super) struct Transfers<'a> {
    work: Work<'a>,
    ring: IoRing,
    depth: u32,
    waiting: VecDeque<Going>,
    /// With the kernel; an entry's tag is its place here.
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
            // A lane has two stages also where one transfer is to be in flight.
            ring: IoRing::lend(depth.max(2))?,
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
    /// The memory stays mapped until this is dropped, and no transfer under way uses `index`.
    pub(crate) unsafe fn attach(&mut self, index: usize, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: passed on.
        u32::try_from(index).is_ok_and(|index| unsafe { self.ring.attach(index, start, bytes) })
    }

    /// Takes on a transfer; [`advance`](Self::advance) starts it when its turn comes.
    ///
    /// # Safety
    /// The buffer is valid for `length` bytes of host memory, and not touched in a conflicting
    /// way, until the transfer is done or this is dropped.
    pub(crate) unsafe fn add(&mut self, transfer: Transfer) {
        self.waiting.push_back(Going {
            transfer,
            moved: 0,
            forced: false,
        });
    }

    /// Whether nothing is under way and nobody needs to be told of anything.
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

    /// Whether transfers wait for the place of those with the kernel.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A transfer done since the last call.
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        self.done.pop()
    }

    /// Takes note of what has happened and starts what can start, without waiting.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.start()?;
        while let Some((tag, result)) = self.ring.pop() {
            let Some(going) = self.going.get_mut(tag as usize).and_then(Option::take) else {
                continue;
            };
            self.free.push(tag as usize);
            self.go_on(going, result)?;
        }
        self.start()
    }

    /// As [`advance`](Self::advance), but waits until something has happened.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.start()?;
        if self.done.is_empty() && self.ring.in_flight() > 0 {
            self.ring
                .wait()
                .map_err(|e| Error::os(&e, "cannot wait for io_uring"))?;
        }
        self.advance()
    }

    /// Starts what can start.
    pub(crate) fn start(&mut self) -> Result<()> {
        while self.ring.in_flight() < self.depth
            && let Some(going) = self.waiting.pop_front()
        {
            self.launch(going)?;
        }
        self.work.counters.in_flight(self.ring.in_flight());
        self.ring.submit().map_err(|e| refused(&e))
    }

    /// Gives the rest of a transfer to the kernel, as the gate allows.
    fn launch(&mut self, going: Going) -> Result<()> {
        let transfer = &going.transfer;
        let call = Call {
            operation: self.work.operation,
            offset: transfer.offset + going.moved,
            length: (transfer.length - going.moved).min(MAX_ENTRY),
        };
        let allowed = match self.work.gate.map_or(Ok(call.length), |g| g.before(call)) {
            Ok(allowed) => allowed.min(call.length) as u32,
            Err(error) => return self.go_on(going, Err(error)),
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
        // SAFETY: `add` was promised a buffer that is valid until the transfer is done, which it
        // is only after the completion, or until this is dropped, which the ring's own drop lets
        // happen only when the kernel has let go. The file is open as long as the work.
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

    /// What one call did to a transfer: it is done, goes on, or has failed.
    fn go_on(&mut self, mut going: Going, result: io::Result<u64>) -> Result<()> {
        let (offset, needed) = (going.transfer.offset, going.transfer.needed);
        match result {
            Ok(0) if self.work.operation == Operation::Read => {
                return Err(self.work.ended(offset, needed));
            }
            Ok(0) => {
                // POSIX leaves this open; trying again could go on for ever.
                let error = io::Error::from_raw_os_error(libc::EIO);
                return Err(self.work.failed(&error, offset, needed));
            }
            Ok(bytes) => going.moved += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The kernel wanted to wait where it must not; a thread of its own may.
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && !going.forced => {
                going.forced = true;
            }
            Err(e) if self.goes_through_cache(&going, &e) => {
                let moved = going.moved;
                // SAFETY: the rest of the transfer's buffer, which the kernel has let go of.
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

    /// Whether the page cache may finish a direct transfer: if direct I/O is refused altogether,
    /// or for what is left behind a ragged end of the file.
    fn goes_through_cache(&self, going: &Going, error: &io::Error) -> bool {
        let is_ragged = error.raw_os_error() == Some(libc::EINVAL)
            && !going
                .moved
                .is_multiple_of(self.work.file.direct_alignment());
        going.transfer.direct && (self.work.may_fall_back(error) || is_ragged)
    }
}

fn refused(error: &io::Error) -> Error {
    Error::os(error, "cannot submit to io_uring")
        .remedy("use fewer threads or a smaller queue_depth, or io=threads")
}
