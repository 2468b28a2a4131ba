//! The decoded chunks of one array, and the rule by which chunks that are read as a whole are kept.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::cache::{ChunkCache, ChunkKey};

/// The part of a cache that has the decoded chunks of one array.
#[derive(Debug)]
pub struct ArrayChunks {
    cache: Arc<ChunkCache>,
    /// Number of the array.
    array: u64,
    read: ReadChunks,
}

impl ArrayChunks {
    /// Returns the part for a new array of `total` chunks, each of at most `bytes` bytes.
    pub fn new(cache: &Arc<ChunkCache>, total: u64, bytes: u64) -> ArrayChunks {
        static ARRAYS: AtomicU64 = AtomicU64::new(0);
        let most = cache.limit() / bytes.max(1);
        ArrayChunks {
            cache: Arc::clone(cache),
            array: ARRAYS.fetch_add(1, Relaxed),
            read: ReadChunks::new(most.min(total)),
        }
    }

    /// Returns whether the cache has room for a number of bytes.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        (1..=self.cache.limit()).contains(&bytes)
    }

    /// Returns whether half of the cache has room for a number of bytes, so that other chunks stay.
    pub fn has_room_beside(&self, bytes: u64) -> bool {
        (1..=self.cache.limit() / 2).contains(&bytes)
    }

    /// Returns the bytes of a chunk, if it is in the cache.
    pub fn find(&self, chunk: u64) -> Option<Arc<Vec<u8>>> {
        self.cache.find(self.key(chunk))
    }

    /// Returns whether the cache has a chunk.
    pub fn has(&self, chunk: u64) -> bool {
        self.cache.has(self.key(chunk))
    }

    /// Adds the bytes of a chunk, and returns them.
    pub fn add(&self, chunk: u64, decoded: Vec<u8>) -> Arc<Vec<u8>> {
        let decoded = Arc::new(decoded);
        self.cache.add(self.key(chunk), Arc::clone(&decoded));
        decoded
    }

    /// Records that a chunk was decoded and not added.
    pub fn note_read(&self, chunk: u64) {
        self.read.note(chunk, self.cache.added());
    }

    /// Returns whether a chunk was decoded so recently that it would still be in the cache if it had been
    /// added then: fewer bytes than the limit were added since.
    pub fn was_read_recently(&self, chunk: u64) -> bool {
        let since = self.read.since(chunk, self.cache.added());
        since.is_some_and(|added| added <= self.cache.limit())
    }

    /// Returns the memory of the list of chunks that were decoded.
    pub fn list_bytes(&self) -> usize {
        self.read.count * size_of::<AtomicU64>()
    }

    fn key(&self, chunk: u64) -> ChunkKey {
        ChunkKey {
            array: self.array,
            chunk,
        }
    }
}

/// The last chunks of an array that were decoded and not kept.
///
/// There is a slot for each chunk of which the cache could keep all: a chunk that was decoded longer ago
/// than that many others would have been dropped before its next read. Chunk `n` has slot `n % count`, so
/// that of chunks which are read in order the slots have the last ones.
#[derive(Debug)]
struct ReadChunks {
    count: usize,
    slots: OnceLock<Box<[AtomicU64]>>,
}

impl ReadChunks {
    /// Largest number of slots, twice as many as HDF5 2 has for the chunks of a dataset: 128 KiB.
    const MOST: u64 = 1 << 14;
    /// The unit of the counts of bytes in slots, as a power of two.
    const UNIT: u32 = 10;

    fn new(count: u64) -> ReadChunks {
        ReadChunks {
            count: count.min(Self::MOST) as usize,
            slots: OnceLock::new(),
        }
    }

    /// Records that a chunk was decoded when `added` bytes had been added to the caches.
    fn note(&self, chunk: u64, added: u64) {
        let empty = || (0..self.count).map(|_| AtomicU64::new(0)).collect();
        if self.count > 0 {
            let slots = self.slots.get_or_init(empty);
            let slot = &slots[(chunk % self.count as u64) as usize];
            slot.store(entry(chunk) | time(added), Relaxed);
        }
    }

    /// Returns how many bytes had been added since the chunk was decoded; `None` if the list does not
    /// have it.
    fn since(&self, chunk: u64, added: u64) -> Option<u64> {
        let slots = self.slots.get()?;
        let found = slots[(chunk % self.count as u64) as usize].load(Relaxed);
        let then = found as u32;
        let is_chunk = found - u64::from(then) == entry(chunk);
        is_chunk.then(|| u64::from((time(added) as u32).wrapping_sub(then)) << Self::UNIT)
    }
}

/// The upper half of a slot: the lower half of the chunk's number plus one, as 0 is an empty slot.
fn entry(chunk: u64) -> u64 {
    chunk.wrapping_add(1) << 32
}

/// The lower half of a slot.
fn time(added: u64) -> u64 {
    u64::from((added >> ReadChunks::UNIT) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_in_the_list_until_as_many_others_were_read_as_the_cache_could_keep() {
        let chunks = ArrayChunks::new(&ChunkCache::new(400), 100, 100);
        for chunk in 0..5 {
            assert!(!chunks.was_read_recently(chunk));
            chunks.note_read(chunk);
        }
        let read: Vec<bool> = (0..6).map(|n| chunks.was_read_recently(n)).collect();
        assert_eq!(read, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_chunk_is_not_recent_once_the_limit_was_added_since() {
        let read = ReadChunks::new(4);
        read.note(2, 5 << 10);
        assert_eq!(read.since(2, 5 << 10), Some(0));
        assert_eq!(read.since(2, 9 << 10), Some(4 << 10));
        assert_eq!(read.since(6, 9 << 10), None);
        // The counts in slots may wrap around.
        read.note(1, (1 << 42) - (1 << 10));
        assert_eq!(read.since(1, (1 << 42) + (2 << 10)), Some(3 << 10));
    }

    #[test]
    fn the_list_of_many_small_chunks_is_bounded() {
        let chunks = ArrayChunks::new(&ChunkCache::new(64 << 20), 1 << 40, 4);
        chunks.note_read(1 << 39);
        assert!(chunks.was_read_recently(1 << 39));
        assert_eq!(chunks.list_bytes(), 128 << 10);
        assert_eq!(
            ArrayChunks::new(&ChunkCache::new(64 << 20), 3, 4).list_bytes(),
            24
        );
    }

    #[test]
    fn without_a_cache_nothing_is_noted() {
        let chunks = ArrayChunks::new(&ChunkCache::new(0), 10, 4);
        chunks.note_read(0);
        assert!(!chunks.was_read_recently(0) && !chunks.has_room_for(1));
    }

    #[test]
    fn arrays_that_share_a_cache_have_chunks_of_their_own() {
        let cache = ChunkCache::new(1000);
        let arrays = [(); 2].map(|()| ArrayChunks::new(&cache, 1, 10));
        arrays[0].add(0, vec![7; 10]);
        assert!(arrays[0].has(0) && !arrays[1].has(0));
        assert_eq!(arrays[0].find(0).unwrap()[..], [7; 10]);
    }
}
