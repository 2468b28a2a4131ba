//! Caches of decoded chunks, one for each file, with one limit for all of them.
//!
//! A cache has a limit of its own, and drops its least recently used chunks to stay below it. All caches
//! together have another limit, above which the least recently used chunk of all caches is dropped. So
//! the caches of files that are no longer read make room for those of files that are.
//!
//! [`Caches`] has each cache that has chunks by a use that is not later than any of its chunks' last uses.
//! Uses do not change it. Whether it is still the use of the oldest chunk is checked when it is the first of
//! all; if not, the cache is entered anew. A drop takes no longer if more files are open.
//!
//! The lock of a cache may be held when that of [`Caches`] is taken, not the reverse.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use penstock_engine::Recover;

/// A chunk of an array. A cache may serve several arrays, each of which has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkKey {
    /// The array.
    pub array: u64,
    /// Number of the chunk in the array's grid.
    pub chunk: u64,
}

/// The bytes of a decoded chunk.
pub(super) type Decoded = Arc<Vec<u8>>;

/// Decoded chunks of arrays that do not change.
#[derive(Debug)]
pub struct ChunkCache {
    limit: u64,
    all: &'static AllCaches,
    this: Weak<ChunkCache>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    chunks: HashMap<ChunkKey, Chunk>,
    /// The chunks by the time of their last use.
    by_use: BTreeMap<u64, ChunkKey>,
    bytes: u64,
    /// The use by which [`Caches`] has the cache, or had it until a thread removed it to drop a chunk.
    listed: Option<u64>,
    is_closed: bool,
}

#[derive(Debug)]
struct Chunk {
    decoded: Decoded,
    used: u64,
}

/// All caches that share a limit.
#[derive(Debug)]
struct AllCaches {
    /// The most bytes of all caches together, unless the limit of a single cache is higher.
    limit: u64,
    bytes: AtomicU64,
    /// The number of uses of chunks, which is their order.
    uses: AtomicU64,
    /// The bytes of all chunks that were ever added.
    added: AtomicU64,
    caches: Mutex<Caches>,
}

#[derive(Debug)]
struct Caches {
    by_use: BTreeMap<u64, Weak<ChunkCache>>,
    /// The limits of all caches, and how many caches have each.
    limits: BTreeMap<u64, usize>,
}

/// The caches of the process.
static PROCESS: AllCaches = AllCaches::new(256 << 20);

/// The bytes that a chunk counts at least, since an entry takes memory itself.
const LEAST: u64 = 256;

/// Returns the bytes that a chunk counts.
fn size(decoded: &Decoded) -> u64 {
    LEAST.max(decoded.len() as u64)
}

impl Drop for ChunkCache {
    fn drop(&mut self) {
        self.close();
        let mut caches = self.all.caches.lock().recover();
        if let Entry::Occupied(mut count) = caches.limits.entry(self.limit) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl ChunkCache {
    /// Returns an empty cache for at most `limit` bytes.
    pub fn new(limit: u64) -> Arc<ChunkCache> {
        ChunkCache::among(&PROCESS, limit)
    }

    fn among(all: &'static AllCaches, limit: u64) -> Arc<ChunkCache> {
        let mut caches = all.caches.lock().recover();
        *caches.limits.entry(limit).or_default() += 1;
        Arc::new_cyclic(|this| ChunkCache {
            limit,
            all,
            this: Weak::clone(this),
            kept: Mutex::default(),
        })
    }

    /// Returns the most bytes of the cache.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how many bytes were ever added to all caches of the process.
    pub(super) fn added(&self) -> u64 {
        self.all.added.load(Relaxed)
    }

    /// Returns a chunk of the cache.
    pub(super) fn find(&self, key: ChunkKey) -> Option<Decoded> {
        let mut kept = self.kept();
        let kept = &mut *kept;
        let entry = kept.chunks.get_mut(&key)?;
        kept.by_use.remove(&entry.used);
        entry.used = self.all.next_use();
        kept.by_use.insert(entry.used, key);
        Some(Arc::clone(&entry.decoded))
    }

    /// Returns whether the cache has a chunk, which is not a use of it.
    pub(super) fn has(&self, key: ChunkKey) -> bool {
        self.kept().chunks.contains_key(&key)
    }

    /// Drops all chunks. The cache takes no more.
    pub fn close(&self) {
        let mut kept = self.kept();
        let dropped = std::mem::take(&mut *kept);
        kept.is_closed = true;
        if let Some(listed) = dropped.listed {
            self.all.caches.lock().recover().by_use.remove(&listed);
        }
        drop(kept);
        self.all.bytes.fetch_sub(dropped.bytes, Relaxed);
    }

    /// Adds a chunk, unless it has more bytes than the limit.
    pub(super) fn add(&self, key: ChunkKey, decoded: Decoded) {
        let bytes = size(&decoded);
        let mut kept = self.kept();
        if kept.is_closed || bytes > self.limit {
            return;
        }
        // The memory is freed without the lock.
        let mut dropped: Vec<Decoded> = kept.remove(key).into_iter().collect();
        while kept.bytes + bytes > self.limit {
            dropped.extend(kept.remove_oldest());
        }
        let used = self.all.next_use();
        kept.by_use.insert(used, key);
        kept.chunks.insert(key, Chunk { decoded, used });
        kept.bytes += bytes;
        self.all.bytes.fetch_add(bytes, Relaxed);
        self.all.added.fetch_add(bytes, Relaxed);
        if kept.listed.is_none() {
            self.list(&mut kept);
        }
        drop(kept);
        self.all.dropped(dropped);
        self.all.make_room();
    }

    /// Drops the least recently used chunk if this was its last use, and enters the cache into [`Caches`]
    /// again, from which the caller has removed it.
    fn drop_oldest(&self, listed: u64) {
        let mut kept = self.kept();
        if kept.is_closed {
            return;
        }
        let oldest = kept.by_use.get(&listed).copied();
        let dropped = oldest.and_then(|key| kept.remove(key));
        self.list(&mut kept);
        drop(kept);
        self.all.dropped(dropped);
    }

    /// Enters the cache into [`Caches`], unless it has no chunks.
    fn list(&self, kept: &mut Kept) {
        kept.listed = kept.by_use.keys().next().copied();
        if let Some(oldest) = kept.listed {
            let mut caches = self.all.caches.lock().recover();
            caches.by_use.insert(oldest, Weak::clone(&self.this));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().recover()
    }
}

impl Kept {
    fn remove(&mut self, key: ChunkKey) -> Option<Decoded> {
        let entry = self.chunks.remove(&key)?;
        self.by_use.remove(&entry.used);
        self.bytes -= size(&entry.decoded);
        Some(entry.decoded)
    }

    fn remove_oldest(&mut self) -> Option<Decoded> {
        let oldest = *self.by_use.values().next()?;
        self.remove(oldest)
    }
}

impl AllCaches {
    const fn new(limit: u64) -> AllCaches {
        AllCaches {
            limit,
            bytes: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            added: AtomicU64::new(0),
            caches: Mutex::new(Caches {
                by_use: BTreeMap::new(),
                limits: BTreeMap::new(),
            }),
        }
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Relaxed)
    }

    fn dropped(&self, chunks: impl IntoIterator<Item = Decoded>) {
        for chunk in chunks {
            self.bytes.fetch_sub(size(&chunk), Relaxed);
        }
    }

    /// Drops the least recently used chunks of all caches until the others are within the limit.
    fn make_room(&self) {
        while self.bytes.load(Relaxed) > self.limit {
            let Some((listed, cache)) = self.take_first() else {
                return;
            };
            // One that is gone has dropped its chunks.
            if let Some(cache) = cache.upgrade() {
                cache.drop_oldest(listed);
            }
        }
    }

    /// Removes the first cache from [`Caches`]; `None` if no chunk is to be dropped.
    fn take_first(&self) -> Option<(u64, Weak<ChunkCache>)> {
        let mut caches = self.caches.lock().recover();
        let highest = caches.limits.keys().next_back().copied().unwrap_or(0);
        let is_full = self.bytes.load(Relaxed) > self.limit.max(highest);
        is_full.then(|| caches.by_use.pop_first()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { array: 0, chunk }
    }

    fn chunk(value: u8, kilobytes: usize) -> Decoded {
        Arc::new(vec![value; kilobytes * 1000])
    }

    /// Returns the caches of a process of its own, with this limit for all.
    fn process(limit: u64) -> &'static AllCaches {
        Box::leak(Box::new(AllCaches::new(limit)))
    }

    fn found(cache: &ChunkCache, keys: std::ops::Range<u64>) -> Vec<bool> {
        keys.map(|n| cache.has(key(n))).collect()
    }

    #[test]
    fn the_least_recently_used_chunk_goes_first() {
        let cache = ChunkCache::new(30_000);
        for number in 0..3 {
            cache.add(key(number), chunk(number as u8, 10));
        }
        assert!(cache.find(key(0)).is_some());
        cache.add(key(3), chunk(3, 10));
        assert_eq!(found(&cache, 0..4), [true, false, true, true]);
    }

    #[test]
    fn a_chunk_that_is_added_again_counts_once() {
        let cache = ChunkCache::new(30_000);
        for value in 0..9 {
            cache.add(key(0), chunk(value, 20));
        }
        assert_eq!(cache.find(key(0)).unwrap()[0], 8);
        cache.add(key(1), chunk(9, 10));
        assert_eq!(found(&cache, 0..2), [true, true]);
    }

    #[test]
    fn a_closed_cache_has_and_takes_nothing() {
        let all = process(20_000);
        let cache = ChunkCache::among(all, 20_000);
        cache.add(key(0), chunk(0, 20));
        cache.close();
        cache.add(key(1), chunk(1, 20));
        assert_eq!(found(&cache, 0..2), [false, false]);
        assert_eq!(all.bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_chunk_of_more_than_the_limit_is_not_kept() {
        for (limit, bytes) in [(0, 1), (5_000, 6)] {
            let cache = ChunkCache::new(limit);
            cache.add(key(0), chunk(1, bytes));
            assert!(cache.find(key(0)).is_none());
        }
    }

    #[test]
    fn tiny_chunks_count_the_memory_of_their_entries() {
        let cache = ChunkCache::new(1000);
        for number in 0..5 {
            cache.add(key(number), Arc::new(vec![1; 4]));
        }
        assert_eq!(found(&cache, 0..5), [false, false, true, true, true]);
    }

    #[test]
    fn a_later_file_takes_the_room_of_those_that_are_no_longer_read() {
        let all = process(40_000);
        let files: Vec<_> = (0..5).map(|_| ChunkCache::among(all, 10_000)).collect();
        for file in &files {
            file.add(key(0), chunk(0, 10));
            files[0].find(key(0));
        }
        let kept: Vec<bool> = files.iter().map(|file| file.has(key(0))).collect();
        assert_eq!(kept, [true, false, true, true, true]);
        assert_eq!(all.bytes.load(Relaxed), 40_000);
    }

    #[test]
    fn chunks_go_in_the_order_of_their_last_uses_over_all_files() {
        let all = process(30_000);
        let files: Vec<_> = (0..8).map(|_| ChunkCache::among(all, 30_000)).collect();
        let mut by_use: Vec<(usize, u64)> = Vec::new();
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (file, number) = ((state >> 29) as usize, u64::from(state >> 20) % 6);
            let is_kept = by_use.contains(&(file, number));
            assert_eq!(files[file].find(key(number)).is_some(), is_kept);
            by_use.retain(|kept| *kept != (file, number));
            by_use.push((file, number));
            if !is_kept {
                files[file].add(key(number), chunk(0, 1));
            }
            if by_use.len() > 30 {
                by_use.remove(0);
            }
            assert_eq!(all.bytes.load(Relaxed), 1000 * by_use.len() as u64);
        }
    }

    #[test]
    fn a_cache_of_which_all_chunks_were_dropped_takes_part_again() {
        let all = process(20_000);
        let files: Vec<_> = (0..3).map(|_| ChunkCache::among(all, 20_000)).collect();
        for number in 0..9 {
            for file in &files {
                file.add(key(number), chunk(0, 10));
            }
        }
        let kept: Vec<bool> = files.iter().map(|file| file.has(key(8))).collect();
        assert_eq!(kept, [false, true, true]);
        assert_eq!(all.bytes.load(Relaxed), 20_000);
        assert_eq!(all.caches.lock().recover().by_use.len(), 2);
    }

    #[test]
    fn the_limit_of_one_cache_may_be_higher_than_that_of_all() {
        let all = process(10_000);
        let large = ChunkCache::among(all, 30_000);
        for number in 0..4 {
            large.add(key(number), chunk(0, 10));
        }
        assert_eq!(found(&large, 0..4), [false, true, true, true]);
        let small = ChunkCache::among(all, 10_000);
        small.add(key(0), chunk(0, 10));
        assert_eq!(found(&large, 0..4), [false, false, true, true]);
        drop(large);
        assert_eq!(all.bytes.load(Relaxed), 10_000);
    }

    #[test]
    fn caches_that_are_gone_leave_no_bytes_and_no_entry() {
        let all = process(1_000_000);
        for number in 0..100 {
            let cache = ChunkCache::among(all, 1_000_000);
            cache.add(key(number), chunk(0, 100));
        }
        assert_eq!(all.bytes.load(Relaxed), 0);
        let last = ChunkCache::among(all, 1);
        let caches = all.caches.lock().recover();
        assert_eq!((caches.by_use.len(), caches.limits.len()), (0, 1));
        drop(caches);
        drop(last);
        assert!(all.caches.lock().recover().limits.is_empty());
    }

    #[test]
    fn threads_that_add_and_drop_find_what_was_added() {
        let all = process(120_000);
        let files: Vec<_> = (0..3).map(|_| ChunkCache::among(all, 50_000)).collect();
        let work = |seed: u64| {
            for step in 0..5_000 {
                let file = &files[((step * 7 + seed) % 3) as usize];
                let number = (step * 13 + seed) % 40;
                match file.find(key(number)) {
                    Some(found) => assert!(found.iter().all(|byte| u64::from(*byte) == number)),
                    None => file.add(key(number), chunk(number as u8, 3)),
                }
            }
        };
        thread::scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || work(seed));
            }
        });
        let sums = files.iter().map(|file| {
            let kept = file.kept();
            assert!(kept.bytes <= 50_000 && kept.by_use.len() == kept.chunks.len());
            assert_eq!(kept.bytes, 3_000 * kept.chunks.len() as u64);
            kept.bytes
        });
        assert_eq!(sums.sum::<u64>(), all.bytes.load(Relaxed));
        assert!(all.bytes.load(Relaxed) <= 120_000);
    }
}
