//! Positional reads and writes that go on until all bytes are moved, through a gate.
//!
//! The gate sees every system call on a file's data before and after it happens. The plain one
//! lets all pass; the fault-injection route puts in one that does not.

use std::io;
use std::os::fd::RawFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
}

/// One system call about to be made, or just made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
}

/// Watches and alters data system calls; called on the thread that makes them.
pub trait Gate: Send + Sync {
    /// An error stands in for the call, which is then not made; a length below the call's makes
    /// the kernel move at most so many bytes.
    fn before(&self, call: Call) -> io::Result<u64>;
}

/// The bytes that one system call may move: the kernel's own limit, a page below 2 GiB.
const MAX_CALL: u64 = 0x7fff_f000;

/// Why a transfer by position stopped early.
#[derive(Debug)]
pub enum Stop {
    /// A read came to the end of the file.
    End,
    Failed(io::Error),
}

/// Moves `length` bytes between the descriptor at `offset` and the memory at `buffer`.
/// Returns the bytes moved and, if that is less than `length`, why.
///
/// # Safety
/// `buffer` is valid for `length` bytes of host memory, writable for a read, and nobody else
/// touches it in a conflicting way meanwhile.
pub unsafe fn transfer(
    gate: Option<&dyn Gate>,
    fd: RawFd,
    operation: Operation,
    buffer: *mut u8,
    length: u64,
    offset: u64,
) -> (u64, Option<Stop>) {
    let mut done = 0;
    while done < length {
        let call = Call {
            operation,
            offset: offset + done,
            length: (length - done).min(MAX_CALL),
        };
        let allowed = match gate.map_or(Ok(call.length), |g| g.before(call)) {
            Ok(allowed) => allowed.min(call.length) as usize,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return (done, Some(Stop::Failed(e))),
        };
        let position = call.offset as libc::off_t;
        // SAFETY: `done + allowed <= length`, for which the caller vouches.
        let moved = unsafe {
            let at = buffer.add(done as usize).cast();
            match operation {
                Operation::Read => libc::pread(fd, at, allowed, position),
                Operation::Write => libc::pwrite(fd, at, allowed, position),
            }
        };
        match moved {
            0 => {
                let stop = match operation {
                    Operation::Read => Stop::End,
                    // POSIX leaves this open; looping on it could go on for ever.
                    Operation::Write => Stop::Failed(io::Error::from_raw_os_error(libc::EIO)),
                };
                return (done, Some(stop));
            }
            n if n > 0 => done += n as u64,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return (done, Some(Stop::Failed(error)));
                }
            }
        }
    }
    (done, None)
}
