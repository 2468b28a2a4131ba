//! `gds`: cuFile, which moves bytes straight between storage and GPU memory if the machine can, and
//! through host memory otherwise. The report says which only if cuFile's own statistics prove it.

mod cause;
mod proof;

use std::io;

use penstock_sys::cufile::{CUfileHandle, op_error_name};

use super::{Direct, Lane, Route, STAGED, Work};
use crate::cufile::{self, Driver, buffer};
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::position::{self, Call, Operation, Stop};
use crate::file::side::FileSide;
use crate::gpu::Entered;
use crate::memory::MemoryKind;
use crate::options::RouteName;
use crate::plan::{Block, Extent};
use crate::report::Path;
use proof::Witness;

pub(crate) struct Gds;

impl Route for Gds {
    fn name(&self) -> RouteName {
        RouteName::Gds
    }

    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        let context = work.gpu_context()?;
        if work.memory.kind == MemoryKind::Managed {
            work.counters
                .note("cuFile does not take managed memory; moved by the staged route");
            // The plan leaves unaligned heads and tails to cuFile, and only the page cache takes
            // them.
            let direct = match work.operation {
                Operation::Read => work.direct,
                Operation::Write => Direct::Never,
            };
            let side = FileSide {
                direct,
                ..work.side
            };
            return STAGED.lane(Work { side, ..work });
        }
        let entered = context.enter()?;
        let driver = cufile::driver().map_err(|e| e.in_file(work.file.path()))?;
        Ok(Box::new(GdsLane {
            work,
            driver,
            witness: Witness::new(driver, work.operation),
            _entered: entered,
        }))
    }
}

/// Whether requests that leave the route open should take this one, because bytes of this file go
/// straight to the GPU. Opens cuFile only if the machine has the nvidia-fs module or the process
/// uses cuFile.
pub(crate) fn is_peer_to_peer(file: &File) -> bool {
    if !cufile::is_worth_asking() {
        return false;
    }
    cufile::driver().is_ok_and(|driver| {
        proof::may_go_straight(driver, file) && file.cufile_handle(driver, true).is_ok()
    })
}

/// Whether cuFile starts and accepts this file.
pub(crate) fn takes(file: &File) -> bool {
    cufile::driver().is_ok_and(|driver| file.cufile_handle(driver, true).is_ok())
}

/// A lane that makes one synchronous cuFile call after another.
struct GdsLane<'a> {
    work: Work<'a>,
    driver: &'static Driver,
    witness: Witness,
    // cuFile works in the current context.
    _entered: Entered,
}

impl Lane for GdsLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        let pieces = self.work.plan.block_pieces(block);
        let Some(direct) = self.direct_handle(block)? else {
            return self.move_buffered(pieces);
        };
        // cuFile reads at any alignment. To write part of a page directly, it would read the page,
        // change it and write it back, and so undo what another worker writes to the page meanwhile.
        // So only whole pages are written directly.
        let (straight, ends) = match self.work.operation {
            Operation::Read => (pieces.to_vec(), Vec::new()),
            Operation::Write => split_at_pages(pieces, self.work.file.direct_alignment()),
        };
        match self.move_all(direct, &straight) {
            Ok(path) => proof::remember(self.driver, self.work.file, path),
            Err(e) if self.is_refusal(&e) => self.move_buffered(&straight)?,
            Err(e) => return Err(e),
        }
        self.move_buffered(&ends)
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}

impl GdsLane<'_> {
    /// The handle that bypasses the page cache, if the block should. A block that cuFile can move
    /// straight to the GPU always should. A block that cuFile moves through host memory should if
    /// other routes would bypass the cache for it.
    fn direct_handle(&self, block: &Block) -> Result<Option<CUfileHandle>> {
        let file = self.work.file;
        let wanted = proof::may_go_straight(self.driver, file) || self.work.goes_direct(block);
        if !wanted || file.direct_fd().is_none() {
            return Ok(None);
        }
        match file.cufile_handle(self.driver, true) {
            Ok(handle) => Ok(Some(handle)),
            Err(e) if self.work.direct == Direct::Always => Err(e),
            Err(_) => Ok(None),
        }
    }

    fn is_refusal(&self, error: &Error) -> bool {
        let os_error = io::Error::from_raw_os_error(error.os_errno());
        self.work.may_fall_back(&os_error)
    }

    fn move_buffered(&mut self, pieces: &[Extent]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let handle = self.work.file.cufile_handle(self.driver, false)?;
        self.move_all(handle, pieces).map(drop)
    }

    /// Moves pieces through one handle and counts them. Returns the path that they took.
    fn move_all(&mut self, handle: CUfileHandle, pieces: &[Extent]) -> Result<Path> {
        let mut calls = 0;
        for piece in pieces {
            calls += self.move_piece(handle, piece)?;
        }
        let path = self.witness.path_of_last(calls);
        let bytes = pieces.iter().map(|p| p.length).sum();
        self.work.counters.moved(path, bytes);
        Ok(path)
    }

    /// Moves one piece. Returns the number of cuFile calls that moved something.
    fn move_piece(&self, handle: CUfileHandle, piece: &Extent) -> Result<u64> {
        let operation = self.work.operation;
        let (mut calls, mut refusal) = (0, None);
        let make = |done, bytes| {
            self.work.counters.io_call();
            match self.call(handle, piece, done, bytes) {
                // -1 means that errno has the cause, which is read before anything can change it.
                -1 => Err(io::Error::last_os_error()),
                code if code < 0 => {
                    refusal = Some(refused(code, operation));
                    Err(io::Error::other("cuFile"))
                }
                moved => {
                    calls += u64::from(moved > 0);
                    Ok(moved as u64)
                }
            }
        };
        let gate = self.work.gate;
        let (done, stop) = position::repeat(gate, operation, piece.offset, piece.length, make);
        let call = Call {
            operation,
            offset: piece.offset + done,
            length: piece.length - done,
        };
        match (stop, refusal) {
            (None, _) => Ok(calls),
            (_, Some(refusal)) => Err(refusal.at(self.work.file.path(), call.offset, call.length)),
            (Some(Stop::End), _) => Err(self.work.ended(call.offset, call.length)),
            (Some(Stop::Failed(reported)), _) => {
                let (context, memory) = (self.work.gpu_context()?, piece.memory as u64 + done);
                let cause = cause::of(self.work.file, context, memory, call, reported);
                Err(self.work.failed(&cause, call.offset, call.length))
            }
        }
    }

    /// Makes one call for `bytes` bytes of a piece from byte `done` on. Returns cuFile's result.
    fn call(&self, handle: CUfileHandle, piece: &Extent, done: u64, bytes: usize) -> isize {
        let calls = self.driver.cufile;
        let base = buffer::base_of(piece.memory, piece.length);
        let into_buffer = (piece.memory - base) as libc::off_t + done as libc::off_t;
        let base = base as *mut std::ffi::c_void;
        let offset = (piece.offset + done) as libc::off_t;
        // SAFETY: `done + bytes` is at most the piece's length, for whose memory the submitter
        // vouches until the request is finished; the handle lives as long as the file, and the
        // memory's context is current.
        unsafe {
            match self.work.operation {
                Operation::Read => (calls.cuFileRead)(handle, base, bytes, offset, into_buffer),
                Operation::Write => (calls.cuFileWrite)(handle, base, bytes, offset, into_buffer),
            }
        }
    }
}

/// The error of a call that returned a negated code.
fn refused(code: isize, operation: Operation) -> Error {
    let code = i32::try_from(code.saturating_neg()).unwrap_or(i32::MAX);
    let call = match operation {
        Operation::Read => "cuFileRead",
        Operation::Write => "cuFileWrite",
    };
    let name = op_error_name(code).unwrap_or("an error that its header does not name");
    Error::gpu(code, format!("{call} failed with {name} ({code})"))
        .remedy("see cuFile's log (cufile.log), or use route=auto, which works without cuFile")
}

/// The whole pages of some pieces, and their unaligned heads and tails.
fn split_at_pages(pieces: &[Extent], page: u64) -> (Vec<Extent>, Vec<Extent>) {
    let mut whole = Vec::with_capacity(pieces.len());
    let mut ends = Vec::new();
    for piece in pieces {
        let [head, middle, tail] = piece.split_aligned(page);
        whole.push(middle);
        ends.extend([head, tail]);
    }
    whole.retain(|e| e.length > 0);
    ends.retain(|e| e.length > 0);
    (whole, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_ends_make_up_the_piece() {
        let piece = |offset, length, memory| Extent {
            offset,
            length,
            memory,
        };
        let (whole, ends) = split_at_pages(
            &[
                piece(100, 10_000, 1000),
                piece(8192, 8192, 0),
                piece(5, 7, 1),
                piece(4095, 2, 7),
            ],
            4096,
        );
        assert_eq!(whole, [piece(4096, 4096, 4996), piece(8192, 8192, 0)]);
        assert_eq!(
            ends,
            [
                piece(100, 3996, 1000),
                piece(8192, 1908, 9092),
                piece(5, 7, 1),
                piece(4095, 1, 7),
                piece(4096, 1, 8),
            ]
        );
    }

    #[test]
    fn a_refusal_of_cufile_is_named_with_its_code() {
        let error = refused(-5030, Operation::Write);
        assert_eq!(error.gpu_code(), 5030);
        assert!(
            error
                .cause()
                .contains("cuFileWrite failed with CU_FILE_INTERNAL_ERROR (5030)")
        );
        assert!(refused(-5999, Operation::Read).cause().contains("(5999)"));
    }
}
