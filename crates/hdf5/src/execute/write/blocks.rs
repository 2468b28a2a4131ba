//! Writing contiguous data that must be gathered or converted: each worker takes blocks from the
//! array to the file by itself.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::request::{Duty, Remaining, Share};

use super::feed::Feed;
use super::gather::Array;
use super::{Native, Writing};

/// The duty of writing a contiguous dataset. From the first to the last element of a block that change,
/// it is written whole: what lies between them is read before.
pub struct BlockWrite {
    pub writing: Writing,
    pub array: Array,
    pub native: Native,
    pub path: PathBuf,
    feed: Mutex<Feed>,
}

impl BlockWrite {
    pub fn new(writing: Writing, array: Array, native: Native, path: PathBuf) -> BlockWrite {
        BlockWrite {
            feed: Mutex::new(Feed::new(&writing)),
            writing,
            array,
            native,
            path,
        }
    }
}

impl Duty for BlockWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let side = FileSide {
            file: self.writing.reading.file(0)?,
            operation: Operation::Write,
            direct: Direct::Never,
            counters: share.counters(),
            gate: None,
        };
        self.array.each(
            &self.writing,
            share,
            || self.feed.lock().unwrap_or_else(|e| e.into_inner()).bite(),
            |numbered, filled| {
                let job = &numbered.changed.job;
                let (low, high) = job.span(&self.writing.reading.plan);
                let bytes = &filled.bytes[low as usize..high as usize];
                let start = bytes.as_ptr().cast_mut();
                let (address, length) = (job.address + low, high - low);
                // SAFETY: a write only reads the bytes.
                unsafe { side.move_buffered(start, address, length)? };
                let moved = self.writing.moved(&numbered.changed);
                share.counters().moved(self.array.path(), moved);
                Ok(())
            },
        )
    }

    /// No worker asks for a turn, so it comes when all have left.
    fn turn(&self, _share: &Share<'_>) -> Result<Remaining> {
        // SAFETY: whoever takes the turn may call HDF5, as the submitter has promised.
        let session = unsafe { self.native.session() };
        self.native.make_durable(&session)?;
        Ok(Remaining::Nothing)
    }

    fn end_turns(&self) {
        // SAFETY: as above.
        let session = unsafe { self.native.session() };
        // A failure leaves HDF5 with what it knew of a dataset that it cannot read either.
        let _ = self.native.forget_sieve(&session);
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
