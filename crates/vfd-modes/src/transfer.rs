//! A transfer as the driver passes it to a mode, and the steps that several modes share.

use std::sync::Arc;
use std::time::Instant;

use penstock_engine::Extent;
use penstock_engine::copy::Copies;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::{Gate, Operation};
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::report::{Counters, Report};

use crate::buffer::Kind;

/// The path of moved bytes, for the driver's report.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Through a host buffer of this kind.
    Buffer(Kind),
    /// Between the page cache and host memory, without a buffer.
    Host,
    /// By a request of the engine.
    Engine(&'a Report),
}

/// Receives the path, the number of bytes and the start of each call that has moved bytes.
pub(crate) type Record<'a> = dyn Fn(Way<'_>, u64, Instant) + Sync + 'a;

/// A transfer of one file in one direction.
pub struct Transfer<'a> {
    pub(crate) file: &'a Arc<File>,
    pub(crate) operation: Operation,
    pub(crate) options: Options,
    pub(crate) record: &'a Record<'a>,
    /// Intercepts system calls in tests.
    pub(crate) gate: Option<&'a dyn Gate>,
}

impl<'a> Transfer<'a> {
    /// Describes a transfer. The mode calls `record` with the path, the number of bytes and the start
    /// of each call that has moved bytes.
    pub fn new(
        file: &'a Arc<File>,
        operation: Operation,
        options: Options,
        record: &'a (dyn Fn(Way<'_>, u64, Instant) + Sync + 'a),
    ) -> Transfer<'a> {
        Transfer {
            file,
            operation,
            options,
            record,
            gate: None,
        }
    }

    pub(crate) fn side<'b>(&'b self, direct: Direct, counters: &'b Counters) -> FileSide<'b> {
        FileSide {
            direct,
            gate: self.gate,
            ..FileSide::new(self.file, self.operation, counters)
        }
    }

    /// Moves a range between file and buffer by `io`, and between buffer and GPU by a copy, in the
    /// order of the operation.
    ///
    /// # Safety
    /// As for [`Mode::run`](crate::Mode::run), in GPU memory, and the buffer is as long as the range.
    pub(crate) unsafe fn through(
        &self,
        extent: &Extent,
        buffer: *mut u8,
        io: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let at = |error: Error| error.at(self.file.path(), extent.offset, extent.length);
        let memory = Memory::at(extent.memory).map_err(at)?;
        let length = extent.length as usize;
        let copy = |to, from| {
            let mut copies = Copies::with(&memory)?;
            // SAFETY: the caller guarantees both ranges, which stay valid until the copy has
            // finished.
            unsafe { copies.copy(to, from, length) }.and_then(|()| copies.finish())
        };
        match self.operation {
            Operation::Read => {
                io()?;
                copy(extent.memory, buffer as usize).map_err(at)
            }
            Operation::Write => {
                copy(buffer as usize, extent.memory).map_err(at)?;
                io()
            }
        }
    }
}
