//! How long HDF5 takes to list the chunks of a dataset, and whether it reads a few of them sooner.
//!
//! HDF5 returns the place of a chunk only by a walk through the index (H5Dget_chunk_info_by_coord, too). An
//! extensible or fixed array has an entry for each chunk of the extent, stored or not.

use penstock_array::Selection;
use penstock_engine::request::MOST_AT_ONCE;

use super::extent_index::{LARGE, chunk_count};
use super::{DatasetInfo, Layout};

/// What a transfer touches of the chunks.
#[derive(Clone, Copy)]
pub struct TouchedChunks {
    /// Upper bound of the number of chunks.
    pub chunks: u64,
    /// Bytes in memory.
    pub bytes: u64,
}

impl TouchedChunks {
    /// One small chunk.
    pub(crate) const ONE: TouchedChunks = TouchedChunks {
        chunks: 1,
        bytes: 0,
    };

    /// What a selection touches of chunks of this shape.
    pub(crate) fn of(selection: &Selection, chunk: &[u64], bytes: u64) -> TouchedChunks {
        let chunks = selection.touched_chunks(chunk);
        TouchedChunks { chunks, bytes }
    }
}

impl DatasetInfo {
    /// Returns an upper bound of the entries that HDF5 walks through to list all chunks; 0 without chunks.
    pub(crate) fn index_entries(&self) -> u64 {
        /// The least that a node of a B-tree has for a chunk: its address and coordinates.
        const ENTRY: u64 = 16;
        match &self.layout {
            Layout::Chunked {
                chunk,
                lists_extent,
                ..
            } => {
                let most = if *lists_extent {
                    u64::MAX
                } else {
                    self.file.size / ENTRY
                };
                chunk_count(&self.shape, chunk).min(most)
            }
            _ => 0,
        }
    }

    /// Returns whether to list all chunks takes HDF5 longer than to look up a few.
    pub(crate) fn has_large_index(&self) -> bool {
        self.index_entries() >= LARGE
    }

    /// Returns whether HDF5 takes some 0.4 s or more to list all chunks.
    pub(crate) fn has_huge_index(&self) -> bool {
        self.index_entries() >= 1 << 22
    }

    /// Returns how many entries HDF5 lists in the time of such a transfer. It lists an entry in some 0.1 us,
    /// looks up a chunk in some 50 us, and decodes a byte in some 5 ns, in which several workers would decode
    /// more. Many chunks count `MARGIN` times: a program that reads many chunks reads more later, by the same
    /// table.
    pub(crate) fn entries_for(&self, touched: TouchedChunks) -> u64 {
        const LOOKED_UP: u64 = 500;
        const BYTES: u64 = 20;
        const FEW: u64 = 4;
        const MARGIN: u64 = 8;
        /// More bytes than this are not put into temporary memory.
        const MOST: u64 = 256 << 20;
        if !matches!(self.layout, Layout::Chunked { .. }) {
            return u64::MAX;
        }
        let TouchedChunks { chunks, bytes } = touched;
        match chunks.saturating_mul(self.chunk_bytes()) {
            _ if chunks <= FEW && bytes <= MOST_AT_ONCE => LOOKED_UP,
            decoded if decoded.max(bytes) > MOST => u64::MAX,
            decoded => (chunks.saturating_mul(LOOKED_UP) + decoded / BYTES).saturating_mul(MARGIN),
        }
    }

    /// Returns whether HDF5 carries out a transfer sooner than it lists the chunks for this one alone.
    pub(crate) fn is_sooner_by_hdf5(&self, touched: TouchedChunks) -> bool {
        self.has_large_index() && self.entries_for(touched) < self.index_entries()
    }

    /// Returns the number of chunks, whether they have storage or not; 0 without chunks. Saturates.
    pub(crate) fn chunk_count(&self) -> u64 {
        let Layout::Chunked { chunk, .. } = &self.layout else {
            return 0;
        };
        chunk_count(&self.shape, chunk)
    }

    /// Returns the number of bytes of a decoded chunk; 0 without chunks.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let Layout::Chunked { chunk, .. } = &self.layout else {
            return 0;
        };
        let size = self.element.size().0;
        chunk.iter().copied().fold(size, u64::saturating_mul)
    }
}
