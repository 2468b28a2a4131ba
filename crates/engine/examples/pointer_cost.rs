//! Prints the cost of a query of the kind of memory at an address, and of small copies and fills:
//!
//!     cargo run --release -p penstock-engine --example pointer_cost

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use penstock_engine::allocate::{device_alloc, device_count, host_alloc};
use penstock_engine::copy::{copy, follow_default_stream, zero};
use penstock_engine::memory::{Memory, is_on_host};
use penstock_sys::cuda;

const BYTES: u64 = 1 << 20;
const ROW: usize = 512;

/// Nanoseconds of one call: the least of several rounds, as nothing makes a call too quick.
fn cost(rounds: usize, mut call: impl FnMut()) -> f64 {
    call();
    (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / rounds as f64
        })
        .fold(f64::MAX, f64::min)
}

fn print(what: &str, nanoseconds: f64) {
    println!("{what:<58} {nanoseconds:>10.1} ns");
}

fn main() {
    let heap = vec![1u8; BYTES as usize];
    let mut other = vec![0u8; BYTES as usize];
    let (heap, other) = (heap.as_ptr() as usize, other.as_mut_ptr() as usize);
    query("pageable, before CUDA is in use", heap);
    if device_count().is_ok_and(|count| count > 0) {
        query("pageable, no context yet", heap);
        let device = device_alloc(0, BYTES).unwrap() as usize;
        let pinned = host_alloc(BYTES).unwrap() as usize;
        let managed = managed();
        let addresses = [
            ("pageable", heap),
            ("pinned", pinned),
            ("managed", managed),
            ("device", device),
        ];
        for (name, address) in addresses {
            query(name, address);
            query_the_driver(name, address);
        }
        move_rows("device", device, heap);
        move_rows("managed", managed, heap);
    } else {
        println!("no GPU");
    }
    move_rows("pageable", other, heap);
}

fn query(name: &str, address: usize) {
    let is_on_host = cost(100_000, || {
        black_box(is_on_host(black_box(address)).unwrap());
    });
    print(&format!("{name}: is_on_host"), is_on_host);
    let at = cost(100_000, || {
        black_box(Memory::at(black_box(address)).unwrap());
    });
    print(&format!("{name}: Memory::at"), at);
}

/// The queries that the driver has.
fn query_the_driver(name: &str, address: usize) {
    let cuda = cuda::cuda().unwrap();
    let mut kind: c_uint = 0;
    let single = cost(100_000, || {
        let attribute = cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        // SAFETY: `kind` has the size that the attribute takes.
        let code = unsafe {
            (cuda.cuPointerGetAttribute)((&raw mut kind).cast(), attribute, address as u64)
        };
        black_box(code);
    });
    print(&format!("{name}: cuPointerGetAttribute"), single);
    let mut values = [0u64; 6];
    let mut names: [c_int; 6] = [
        cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        cuda::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        cuda::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        cuda::CU_POINTER_ATTRIBUTE_CONTEXT,
        cuda::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        cuda::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut places = values.each_mut().map(|v| ptr::from_mut(v).cast::<c_void>());
    for count in [1, 6] {
        let several = cost(100_000, || {
            // SAFETY: no attribute takes more than eight bytes.
            let code = unsafe {
                (cuda.cuPointerGetAttributes)(
                    count,
                    names.as_mut_ptr(),
                    places.as_mut_ptr(),
                    address as u64,
                )
            };
            black_box(code);
        });
        print(
            &format!("{name}: cuPointerGetAttributes of {count}"),
            several,
        );
    }
}

fn move_rows(name: &str, address: usize, host: usize) {
    let follow = cost(1000, || {
        follow_default_stream(&Memory::at(address).unwrap()).unwrap();
    });
    print(
        &format!("{name}: Memory::at and follow_default_stream"),
        follow,
    );
    // SAFETY: both are longer than a row.
    let to = cost(1000, || unsafe { copy(address, host, ROW).unwrap() });
    print(&format!("{name}: copy of {ROW} bytes from the host"), to);
    // SAFETY: the memory is longer than a row.
    let zeros = cost(1000, || unsafe { zero(address, ROW).unwrap() });
    print(&format!("{name}: zero of {ROW} bytes"), zeros);
}

fn managed() -> usize {
    let cuda = cuda::cuda().unwrap();
    let (mut context, mut address) = (ptr::null_mut(), 0);
    // SAFETY: both are places for the answers; the context is kept for the whole process.
    unsafe {
        assert_eq!((cuda.cuDevicePrimaryCtxRetain)(&mut context, 0), 0);
        assert_eq!((cuda.cuCtxSetCurrent)(context), 0);
        let flags = cuda::CU_MEM_ATTACH_GLOBAL;
        let code = (cuda.cuMemAllocManaged)(&mut address, BYTES as usize, flags);
        assert_eq!(code, 0);
    }
    address as usize
}
