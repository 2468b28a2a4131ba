//! A cache of decoded chunks, for partial reads of the same chunk.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_engine::Recover;

/// A chunk of an array. A cache may serve several arrays, to which its users give numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// The array.
    pub array: u64,
    /// Number of the chunk in the array's grid.
    pub chunk: u64,
}

/// Decoded chunks of arrays that do not change. If there is no room, the least recently used chunks
/// are dropped.
#[derive(Debug)]
pub struct ChunkCache {
    limit: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    chunks: HashMap<ChunkKey, Entry>,
    /// The chunks by the time of their last use.
    by_use: BTreeMap<u64, ChunkKey>,
    bytes: u64,
    now: u64,
}

#[derive(Debug)]
struct Entry {
    decoded: Arc<Vec<u8>>,
    used: u64,
}

/// The number of bytes that all caches of the process keep.
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// The most bytes that all caches keep together, unless the limit of a single cache is higher. A
/// cache without room keeps no new chunk.
const MOST_OF_ALL: u64 = 256 << 20;

impl Drop for ChunkCache {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ChunkCache {
    /// Returns an empty cache that keeps at most `limit` bytes.
    pub fn new(limit: u64) -> ChunkCache {
        ChunkCache {
            limit,
            kept: Mutex::default(),
        }
    }

    /// Returns whether a chunk of this many bytes can be kept.
    pub fn takes(&self, bytes: u64) -> bool {
        (1..=self.limit).contains(&bytes)
    }

    /// Returns whether chunks of this many bytes can be kept in half of the room, so that other
    /// chunks stay.
    pub fn has_room_beside(&self, bytes: u64) -> bool {
        (1..=self.limit / 2).contains(&bytes)
    }

    /// Returns a chunk that is kept.
    pub fn find(&self, key: ChunkKey) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept();
        let kept = &mut *kept;
        kept.now += 1;
        let entry = kept.chunks.get_mut(&key)?;
        kept.by_use.remove(&entry.used);
        kept.by_use.insert(kept.now, key);
        entry.used = kept.now;
        Some(Arc::clone(&entry.decoded))
    }

    /// Drops all chunks.
    pub fn clear(&self) {
        let dropped = std::mem::take(&mut *self.kept());
        TOTAL.fetch_sub(dropped.bytes, Relaxed);
    }

    /// Keeps a chunk.
    pub fn keep(&self, key: ChunkKey, decoded: &Arc<Vec<u8>>) {
        let bytes = decoded.len() as u64;
        if !self.takes(bytes) {
            return;
        }
        let mut kept = self.kept();
        kept.remove(key);
        let most = MOST_OF_ALL.max(self.limit);
        while kept.bytes + bytes > self.limit || TOTAL.load(Relaxed) + bytes > most {
            let Some((_, oldest)) = kept.by_use.pop_first() else {
                break;
            };
            kept.remove(oldest);
        }
        if TOTAL.load(Relaxed) + bytes > most {
            return;
        }
        kept.now += 1;
        let used = kept.now;
        kept.by_use.insert(used, key);
        let decoded = Arc::clone(decoded);
        kept.chunks.insert(key, Entry { decoded, used });
        kept.bytes += bytes;
        TOTAL.fetch_add(bytes, Relaxed);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().recover()
    }
}

impl Kept {
    fn remove(&mut self, key: ChunkKey) {
        if let Some(entry) = self.chunks.remove(&key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.decoded.len() as u64;
            TOTAL.fetch_sub(entry.decoded.len() as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { array: 0, chunk }
    }

    fn chunk(value: u8, bytes: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![value; bytes])
    }

    #[test]
    fn the_least_recently_used_chunk_goes_first() {
        let cache = ChunkCache::new(30);
        for number in 0..3 {
            cache.keep(key(number), &chunk(number as u8, 10));
        }
        assert!(cache.find(key(0)).is_some());
        cache.keep(key(3), &chunk(3, 10));
        let kept: Vec<bool> = (0..4).map(|n| cache.find(key(n)).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn a_chunk_that_is_kept_again_counts_once() {
        let cache = ChunkCache::new(30);
        for value in 0..9 {
            cache.keep(key(0), &chunk(value, 20));
        }
        assert_eq!(cache.find(key(0)).unwrap()[0], 8);
        cache.keep(key(1), &chunk(9, 10));
        assert!(cache.find(key(0)).is_some() && cache.find(key(1)).is_some());
    }

    #[test]
    fn a_cache_that_is_cleared_has_room_for_all_again() {
        let cache = ChunkCache::new(20);
        cache.keep(key(0), &chunk(0, 20));
        cache.clear();
        assert!(cache.find(key(0)).is_none());
        cache.keep(key(1), &chunk(1, 20));
        assert!(cache.find(key(1)).is_some());
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let cache = ChunkCache::new(0);
        cache.keep(key(0), &chunk(1, 1));
        assert!(!cache.takes(1) && cache.find(key(0)).is_none());
        let cache = ChunkCache::new(5);
        cache.keep(key(0), &chunk(1, 6));
        assert!(cache.find(key(0)).is_none());
    }
}
