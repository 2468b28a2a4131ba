//! Modes of the HDF5 driver for comparison: transfers of raw data as programs make them without
//! Penstock's engine (Ravi, Byna, Koziol, "GPU Direct I/O with HDF5", PDSW 2020). Each mode is as
//! fast as its method allows.
//!
//! - `sec2`, `sec2+pinned`: one `pread` or `pwrite` and one copy, through a buffer as large as the
//!   request;
//! - `direct`, `direct+pinned`: the same with direct I/O; the unaligned head and tail of a write,
//!   which O_DIRECT does not accept, go through the page cache;
//! - `posix-mt`: several threads, each with a buffer of one block;
//! - `gds`: cuFile for all bytes, or an error.
//!
//! The driver finds a [`Mode`] by its name and calls only the trait's methods. It zeroes the memory
//! of what lies past the end of the file before [`Mode::run`], and calls [`Mode::sync`] after a
//! write.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

mod buffer;
mod direct;
mod gds;
mod posix_mt;
mod sec2;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt::Debug;
use std::path::Path;

use penstock_engine::Extent;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::options::Options;

pub use buffer::Kind;
pub use transfer::{Transfer, Way};

/// Where the memory of a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Host memory, which system calls access directly.
    Host,
    /// Device or managed memory.
    Gpu,
}

/// A way to move raw data without a choice by the engine.
pub trait Mode: Debug + Sync {
    /// Returns the value of the option `mode` that selects this mode.
    fn name(&self) -> &'static str;

    /// Returns whether the mode moves raw data of this side. The driver moves the rest by itself.
    fn moves(&self, side: Side) -> bool {
        side == Side::Gpu
    }

    /// Returns an error if the mode cannot access the GPU memory of these extents of the file at `path`.
    fn check(&self, _path: &Path, _extents: &[Extent]) -> Result<()> {
        Ok(())
    }

    /// Moves the extents. A read has no extents past the end of the file.
    ///
    /// # Safety
    /// The memory of each extent is valid and on `side` (for writing, if the operation is a read), and
    /// nothing else accesses it until the call returns.
    unsafe fn run(&self, transfer: &Transfer<'_>, side: Side, extents: &[Extent]) -> Result<()>;

    /// Makes a completed write durable if the options request it.
    fn sync(&self, file: &File, options: &Options) -> Result<()> {
        if options.durable == Some(true) {
            file.sync()
        } else {
            Ok(())
        }
    }
}

/// Modes are equal if they have the same name.
impl PartialEq for dyn Mode {
    fn eq(&self, other: &dyn Mode) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Mode {}

/// All modes, in the order in which error messages list them.
pub const MODES: [&dyn Mode; 6] = [
    &sec2::Sec2 {
        name: "sec2",
        buffer: Kind::Pageable,
    },
    &direct::Direct {
        name: "direct",
        buffer: Kind::Pageable,
    },
    &sec2::Sec2 {
        name: "sec2+pinned",
        buffer: Kind::Pinned,
    },
    &direct::Direct {
        name: "direct+pinned",
        buffer: Kind::Pinned,
    },
    &posix_mt::PosixMt,
    &gds::Gds,
];

/// Returns the mode with this name.
pub fn find(name: &str) -> Option<&'static dyn Mode> {
    MODES.into_iter().find(|mode| mode.name() == name)
}
