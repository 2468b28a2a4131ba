//! The peer of Penstock's decoding in the benchmarks: threads that each read a chunk, inflate it with
//! libdeflate and unshuffle it, and nothing else. `python/penstock/bench/peers/libdeflate.py` calls it.

use std::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use libdeflater::Decompressor;

/// The size of an element, float32.
const ITEM: usize = 4;

/// Fills `out` with `count` chunks of `chunk_bytes` each, which the file of `descriptor` stores as
/// zlib streams of shuffled elements. Returns 0, or 1 if a chunk could not be read or decoded.
///
/// # Safety
/// `offsets` and `sizes` have `count` entries, `out` has room for all chunks and is used by nobody
/// else during the call, and the descriptor stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn threaded_inflate(
    descriptor: c_int,
    offsets: *const u64,
    sizes: *const u64,
    count: usize,
    chunk_bytes: usize,
    out: *mut u8,
    threads: usize,
) -> c_int {
    // SAFETY: by contract of this function.
    let offsets = unsafe { std::slice::from_raw_parts(offsets, count) };
    // SAFETY: as above.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, count) };
    // SAFETY: as above.
    let out = unsafe { std::slice::from_raw_parts_mut(out, count * chunk_bytes) };
    // SAFETY: the descriptor is open, and ManuallyDrop leaves it so.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let places: Vec<_> = out
        .chunks_exact_mut(chunk_bytes)
        .map(|place| Mutex::new(Some(place)))
        .collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut decompressor = Decompressor::new();
                let (mut stored, mut shuffled) = (Vec::new(), vec![0; chunk_bytes]);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = places.get(index) else {
                        return;
                    };
                    let place = place.lock().ok().and_then(|mut place| place.take());
                    stored.resize(sizes[index] as usize, 0);
                    let decoded = file
                        .read_exact_at(&mut stored, offsets[index])
                        .is_ok()
                        .then(|| decompressor.zlib_decompress(&stored, &mut shuffled));
                    match (place, decoded) {
                        (Some(place), Some(Ok(length))) if length == chunk_bytes => {
                            unshuffle(&shuffled, place);
                        }
                        _ => failed.store(true, Ordering::Relaxed),
                    }
                }
            });
        }
    });
    c_int::from(failed.into_inner())
}

fn unshuffle(planes: &[u8], out: &mut [u8]) {
    let count = out.len() / ITEM;
    let (first, rest) = planes.split_at(count);
    let (second, rest) = rest.split_at(count);
    let (third, fourth) = rest.split_at(count);
    let bytes = first.iter().zip(second).zip(third).zip(fourth);
    for (element, (((a, b), c), d)) in out.chunks_exact_mut(ITEM).zip(bytes) {
        element.copy_from_slice(&[*a, *b, *c, *d]);
    }
}
