//! Finds out why cuFile failed. In its compatibility mode (seen with cuFile 1.15), a call whose
//! `pread` or `pwrite` fails returns -1 with `errno` EPERM, whatever error the system call had.

use std::io;
use std::sync::Arc;

use crate::error::Result;
use crate::file::File;
use crate::file::position::{self, Call, Operation, Stop};
use crate::gpu::{Context, Direction, QueueLease};

/// Bytes that one system call moves.
const STEP: u64 = 1 << 20;

/// The system's reason for the failure of a call on GPU memory at `memory`. `reported` is the errno
/// that cuFile set.
///
/// The result is the error of the first system call that fails for the same bytes, or `reported` if
/// none fails. Reading changes nothing. Writing puts the bytes there that cuFile was to put there.
pub(super) fn of(
    file: &File,
    context: &Arc<Context>,
    memory: u64,
    call: Call,
    reported: io::Error,
) -> io::Error {
    match reported.raw_os_error() {
        Some(libc::EPERM) => system_error(file, context, memory, call)
            .ok()
            .flatten()
            .unwrap_or(reported),
        _ => reported,
    }
}

fn system_error(
    file: &File,
    context: &Arc<Context>,
    memory: u64,
    call: Call,
) -> Result<Option<io::Error>> {
    let mut bytes = vec![0u8; call.length.min(STEP) as usize];
    let mut lease = match call.operation {
        Operation::Read => None,
        Operation::Write => Some(QueueLease::new(context.own()?)?),
    };
    let mut done = 0;
    while done < call.length {
        let step = (call.length - done).min(STEP);
        if let Some(lease) = &mut lease {
            let queue = lease.queue()?;
            // SAFETY: `bytes` has `step` bytes and lives until `finish` has returned; the submitter
            // vouches for the GPU memory until the request is finished.
            unsafe { queue.copy(Direction::FromGpu, bytes.as_mut_ptr(), memory + done, step)? };
            queue.finish()?;
        }
        // SAFETY: `bytes` has `step` bytes, and no other code has them. No gate decides about these
        // calls: it has decided about the call that failed.
        let (_, stop) = unsafe {
            position::transfer(
                None,
                file.buffered_fd(),
                call.operation,
                bytes.as_mut_ptr(),
                step,
                call.offset + done,
            )
        };
        match stop {
            None => done += step,
            Some(Stop::Failed(error)) => return Ok(Some(error)),
            Some(Stop::End) => return Ok(None),
        }
    }
    Ok(None)
}
