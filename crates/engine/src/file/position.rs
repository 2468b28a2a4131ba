//! Positional reads and writes that repeat until all bytes have moved.
//!
//! A [`Gate`] sees each system call on a file's data before it is made. Only tests install one, by
//! the fault-injection route, which makes calls fail or stop short.

use std::io;
use std::os::fd::RawFd;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// A system call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The direction.
    pub operation: Operation,
    /// The first byte in the file.
    pub offset: u64,
    /// Bytes to move.
    pub length: u64,
}

/// Decides about each system call on a file's data, on the thread that makes the call.
pub trait Gate: Send + Sync {
    /// Returns the most bytes that the call may move.
    ///
    /// # Errors
    /// An error replaces the call, which is then not made.
    fn before(&self, call: Call) -> io::Result<u64>;
}

/// The most bytes that the kernel moves in one system call: a page below 2 GiB.
const MAX_CALL: u64 = 0x7fff_f000;

/// Why a transfer stopped before its last byte.
#[derive(Debug)]
pub enum Stop {
    /// The file ends there.
    End,
    /// A system call failed.
    Failed(io::Error),
}

/// Moves `length` bytes between the descriptor at `offset` and the memory at `buffer`, on this
/// thread. Returns the number of bytes moved and, if it is less, the reason.
///
/// # Safety
/// `buffer` is valid for `length` bytes of host memory, writable for a read, and no other code
/// touches it in a conflicting way until the call returns.
pub unsafe fn transfer(
    gate: Option<&dyn Gate>,
    fd: RawFd,
    operation: Operation,
    buffer: *mut u8,
    length: u64,
    offset: u64,
) -> (u64, Option<Stop>) {
    repeat(gate, operation, offset, length, |done, bytes| {
        let position = (offset + done) as libc::off_t;
        // SAFETY: `done + bytes <= length`, for which the caller vouches.
        let moved = unsafe {
            let at = buffer.add(done as usize).cast();
            match operation {
                Operation::Read => libc::pread(fd, at, bytes, position),
                Operation::Write => libc::pwrite(fd, at, bytes, position),
            }
        };
        u64::try_from(moved).map_err(|_| io::Error::last_os_error())
    })
}

/// Calls `make` until `length` bytes from `offset` on have moved. `make` gets the number of bytes
/// moved so far and the most to move, and returns the number that it has moved. Returns as
/// [`transfer`].
pub(crate) fn repeat(
    gate: Option<&dyn Gate>,
    operation: Operation,
    offset: u64,
    length: u64,
    mut make: impl FnMut(u64, usize) -> io::Result<u64>,
) -> (u64, Option<Stop>) {
    let mut done = 0;
    while done < length {
        let call = Call {
            operation,
            offset: offset + done,
            length: (length - done).min(MAX_CALL),
        };
        let allowed = gate.map_or(Ok(call.length), |gate| gate.before(call));
        let moved = allowed.and_then(|allowed| make(done, allowed.min(call.length) as usize));
        let stop = match moved {
            Ok(0) if operation == Operation::Read => Stop::End,
            // POSIX leaves a write of no byte open. A retry might never end.
            Ok(0) => Stop::Failed(io::Error::from_raw_os_error(libc::EIO)),
            Ok(bytes) => {
                done += bytes;
                continue;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => Stop::Failed(e),
        };
        return (done, Some(stop));
    }
    (done, None)
}
