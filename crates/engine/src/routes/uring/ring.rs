//! Kernel rings.
//!
//! One lane at a time uses a ring. Afterwards the ring is kept for later lanes, because creating
//! one costs more than a small read. An entry passes through three places: the submission queue
//! ([`push`](IoRing::push)), the kernel ([`submit`](IoRing::submit)), and the completion queue
//! ([`pop`](IoRing::pop)).
//!
//! The invariant is about memory: `in_flight` counts the entries that were pushed and not popped,
//! and no ring is kept or closed before the kernel has completed every entry that it took. Entries
//! that the kernel has not taken are discarded with the queue, and so never carried out. See
//! io_uring(7) and "Efficient IO with io_uring" (Axboe, 2019).

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::time::Duration;

use crate::sync::Recover;

use io_uring::{EnterFlags, IoUring, squeue};

/// A kernel ring that one lane uses exclusively.
///
/// Dropping it waits until the kernel has completed all entries. Even after an error, the kernel then
/// touches no memory on behalf of the ring any more.
pub(super) struct IoRing {
    uring: ManuallyDrop<IoUring>,
    /// Whether the kernel has made a table for fixed buffers.
    has_table: bool,
    /// The indices of that table that are set.
    attached: Vec<u32>,
    /// Entries that were pushed and whose completion was not popped yet.
    in_flight: u32,
}

struct Idle {
    uring: IoUring,
    has_table: bool,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

impl IoRing {
    /// A ring for at least `depth` entries in flight and as many fixed buffers.
    pub(crate) fn lease(depth: u32) -> io::Result<IoRing> {
        let entries = depth.next_power_of_two();
        let kept = {
            let mut idle = IDLE.lock().recover();
            idle.iter()
                .rposition(|i| i.uring.params().sq_entries() == entries)
                .map(|at| idle.swap_remove(at))
        };
        let idle = match kept {
            Some(idle) => idle,
            None => Idle::new(entries)?,
        };
        Ok(IoRing {
            uring: ManuallyDrop::new(idle.uring),
            has_table: idle.has_table,
            attached: Vec::new(),
            in_flight: 0,
        })
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Entries that the kernel has not taken yet.
    fn unsubmitted(&mut self) -> u32 {
        self.uring.submission().len() as u32
    }

    /// Registers memory as the fixed buffer `index`. Returns whether the kernel agreed: it may be too
    /// old, or RLIMIT_MEMLOCK too low.
    ///
    /// # Safety
    /// The memory stays mapped until the ring is dropped, and no entry in flight uses `index`.
    pub(crate) unsafe fn attach(&mut self, index: u32, start: *mut u8, bytes: usize) -> bool {
        let buffer = libc::iovec {
            iov_base: start.cast(),
            iov_len: bytes,
        };
        // SAFETY: passed on.
        let agreed = self.has_table && unsafe { self.set_buffer(index, buffer) }.is_ok();
        if agreed {
            self.attached.push(index);
        }
        agreed
    }

    /// # Safety
    /// As for [`attach`](Self::attach).
    unsafe fn set_buffer(&self, index: u32, buffer: libc::iovec) -> io::Result<()> {
        let submitter = self.uring.submitter();
        // SAFETY: passed on.
        unsafe { submitter.register_buffers_update(index, &[buffer], None) }
    }

    /// Puts an entry into the submission queue. [`submit`](Self::submit) hands it to the kernel.
    ///
    /// # Safety
    /// The entry's memory is valid and not touched in a conflicting way, and its descriptor open,
    /// until its completion has been popped or the ring is dropped.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: passed on.
        unsafe { self.uring.submission().push(entry) }
            .map_err(|_| io::Error::other("more entries in flight than the ring has"))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Hands all entries to the kernel. Entries for which the kernel has no room stay in the queue
    /// for a later call, if entries in flight will make room when they complete.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        loop {
            let left = self.unsubmitted();
            if left == 0 {
                return Ok(());
            }
            let full = match self.uring.submit() {
                Ok(0) => io::Error::from_raw_os_error(libc::EAGAIN),
                Ok(_) => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => e,
            };
            let temporary = matches!(full.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY));
            return if temporary && self.in_flight > left {
                Ok(())
            } else {
                Err(full)
            };
        }
    }

    /// Waits for a completion to pop. At least one entry must be in flight.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        while self.uring.completion().is_empty() {
            self.submit()?;
            match self.sleep() {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sleeps until a completion or a signal, and submits nothing.
    fn sleep(&self) -> io::Result<()> {
        let flags = EnterFlags::GETEVENTS.bits();
        let submitter = self.uring.submitter();
        // SAFETY: no entry is submitted and no signal mask given.
        unsafe { submitter.enter::<libc::sigset_t>(0, 1, flags, None) }.map(drop)
    }

    /// The next completion, if there is one already: the tag of its entry, and the result.
    pub(crate) fn pop(&mut self) -> Option<(u64, io::Result<u64>)> {
        let mut completion = self.uring.completion().next();
        // The kernel may hold completions back until this thread enters it.
        if completion.is_none() && self.uring.submission().taskrun() && self.uring.submit().is_ok()
        {
            completion = self.uring.completion().next();
        }
        let completion = completion?;
        self.in_flight -= 1;
        let result = completion.result();
        let result = u64::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Some((completion.user_data(), result))
    }

    /// Waits for all entries that the kernel has taken. The kernel never gets the other entries:
    /// while some are left, the ring must not be entered again.
    fn quiesce(&mut self) {
        loop {
            while self.uring.completion().next().is_some() {
                self.in_flight -= 1;
            }
            if self.in_flight <= self.unsubmitted() {
                return;
            }
            match self.sleep() {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Completions arrive in any case, and memory must not go back before them.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Removes all fixed buffers from the kernel's table.
    fn detach(&mut self) -> io::Result<()> {
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        for index in std::mem::take(&mut self.attached) {
            // SAFETY: an empty buffer; nothing is in flight.
            unsafe { self.set_buffer(index, nothing)? };
        }
        Ok(())
    }
}

impl Drop for IoRing {
    fn drop(&mut self) {
        self.quiesce();
        let is_clean = self.detach().is_ok() && self.in_flight == 0;
        // SAFETY: taken once, here, and not used afterwards.
        let uring = unsafe { ManuallyDrop::take(&mut self.uring) };
        if is_clean {
            IDLE.lock().recover().push(Idle {
                uring,
                has_table: self.has_table,
            });
        }
        // Otherwise the ring is closed here. The kernel has completed all entries that it has
        // taken, and the other entries are discarded with the queue. Pages of fixed buffers may
        // stay pinned a moment longer, but nothing writes to them.
    }
}

impl Idle {
    /// Rings move between threads, so none is bound to its first submitter (SINGLE_ISSUER).
    fn new(entries: u32) -> io::Result<Idle> {
        // From Linux 5.19 on, completions need not interrupt the worker.
        let cooperative = IoUring::builder()
            .dontfork()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries);
        let uring = match cooperative {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                IoUring::builder().dontfork().build(entries)?
            }
            made => made?,
        };
        // The feature came with plain reads and writes, in Linux 5.6.
        if !uring.params().is_feature_rw_cur_pos() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let has_table = uring.submitter().register_buffers_sparse(entries).is_ok();
        Ok(Idle { uring, has_table })
    }
}
