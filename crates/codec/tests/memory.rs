//! Encoding and decoding for which there is no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use penstock_codec::{CodecError, Fault, Filter, Pipeline, Scratch};

/// More bytes than any table of a filter has.
const LARGE: usize = 40_000;

thread_local! {
    /// How many large allocations of this thread still succeed.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Scarce;

impl Scarce {
    fn has(size: usize) -> bool {
        let left = LEFT.get();
        if size < LARGE || left == usize::MAX {
            return true;
        }
        LEFT.set(left.saturating_sub(1));
        left > 0
    }
}

// SAFETY: memory is the system's; without it, the result is null.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Scarce::has(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller promises what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !Scarce::has(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// Calls the function with memory for one more allocation each time, until it succeeds. Returns how often
/// it failed.
fn failures<T>(name: &str, mut call: impl FnMut() -> Result<T, CodecError>) -> usize {
    for left in 0..100 {
        LEFT.set(left);
        let result = call();
        LEFT.set(usize::MAX);
        match result {
            Ok(_) => return left,
            Err(error) => assert_eq!(error.kind, Fault::Memory, "{name}: {error}"),
        }
    }
    panic!("{name} fails with enough memory");
}

const COUNT: u32 = 50_000;

/// Numbers of 4 bytes that shrink: those of the second half hardly.
fn numbers() -> Vec<u8> {
    let mut random = 1_u32;
    (0..COUNT)
        .flat_map(|i| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = if i < COUNT / 2 { i / 7 } else { random >> 4 };
            number.to_le_bytes()
        })
        .collect()
}

fn filters() -> Vec<Filter> {
    let mut filters = vec![
        (1, vec![4]),
        (2, vec![4]),
        (3, vec![]),
        (4, vec![169, 32, 32, 1200]),
        (4, vec![169, 16, 64, 500]),
        (5, vec![8, 0, COUNT, 1, 4, 0, 29, 0]),
        (5, vec![3, 1, COUNT]),
        (6, [2, 0, COUNT, 0, 4].into_iter().chain([0; 15]).collect()),
        (6, [2, 32, COUNT, 0, 4].into_iter().chain([0; 15]).collect()),
        (32000, vec![4, 0x105, 4 * COUNT]),
        (32004, vec![0]),
        (32004, vec![50_000]),
        (32008, vec![0, 4, 4, 0, 0]),
        (32008, vec![0, 4, 4, 0, 2]),
        (32008, vec![0, 4, 4, 0, 3, 1]),
        (32015, vec![3]),
    ];
    for compressor in [0, 1, 4, 5] {
        for shuffle in 0..3 {
            for id in [32001, 32026] {
                filters.push((id, vec![2, 2, 4, 4 * COUNT, 5, shuffle, compressor]));
            }
        }
    }
    let filter = |(id, values)| Filter {
        id,
        // A filter is not skipped for lack of memory.
        optional: true,
        values,
    };
    filters.into_iter().map(filter).collect()
}

#[test]
fn a_chunk_for_which_there_is_no_memory_is_an_error() {
    let chunk = numbers();
    for filter in filters() {
        let name = filter.to_string();
        let checksum = Filter::new(3, &[]);
        let pipeline = Pipeline {
            filters: vec![filter, checksum],
        };
        // Makes the tables that a thread keeps.
        let (stored, mask) = pipeline.encode(&chunk, &mut Scratch::default()).unwrap();
        assert_eq!(mask, 0, "{name} is skipped");
        let encoding = failures(&name, || pipeline.encode(&chunk, &mut Scratch::default()));
        assert!(encoding > 0, "{name}");
        failures(&name, || {
            let mut output = [0; 4 * COUNT as usize];
            pipeline.decode(mask, &stored, &mut output, &mut Scratch::default())
        });
    }
}
