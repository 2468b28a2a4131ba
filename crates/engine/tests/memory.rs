//! Kinds of memory, and copies between them.

mod common;

use common::{Place, stream};
use penstock_engine::MemoryKind;
use penstock_engine::allocate::{self, copy, memory_kind};
use penstock_engine::error::Kind;
use penstock_engine::fault::Fault;
use penstock_engine::file::position::Operation;

const PLACES: [Place; 4] = [Place::Host, Place::Pinned, Place::Managed, Place::Device];

fn kind_of(place: Place) -> (MemoryKind, i32) {
    match place {
        Place::Host => (MemoryKind::Host, -1),
        Place::Pinned => (MemoryKind::Pinned, 0),
        Place::Managed => (MemoryKind::Managed, 0),
        Place::Device => (MemoryKind::Device, 0),
    }
}

#[test]
fn memory_of_the_process_is_host_memory() {
    let (heap, stack) = (vec![0u8; 100], [0u8; 100]);
    for address in [heap.as_ptr() as usize, stack.as_ptr() as usize, 1, 0] {
        assert_eq!(memory_kind(address).unwrap(), (MemoryKind::Host, -1));
    }
}

#[test]
fn the_kind_of_memory_is_known_at_each_of_its_bytes() {
    if !common::has_gpu() {
        return;
    }
    for place in PLACES {
        let memory = place.memory(100_000, 0);
        for at in [0, 1, 4096, 99_999] {
            let known = memory_kind(memory.address() + at).unwrap();
            assert_eq!(known, kind_of(place), "{place:?} at {at}");
        }
    }
}

#[test]
fn freed_device_memory_is_no_device_memory_any_more() {
    if !common::has_gpu() {
        return;
    }
    let address = allocate::device_alloc(0, 1 << 20).unwrap();
    // SAFETY: the memory is not used any more.
    unsafe { allocate::device_free(address).unwrap() };
    assert_eq!(memory_kind(address as usize).unwrap().0, MemoryKind::Host);
}

#[test]
fn copies_between_all_kinds_of_memory_are_done_on_return() {
    if !common::has_gpu() {
        return;
    }
    const LENGTH: usize = 300_000;
    for from in PLACES {
        for to in PLACES {
            let (source, target) = (from.memory(LENGTH + 7, 7), to.memory(LENGTH + 20, 3));
            let content = common::pattern(LENGTH, 13);
            source.fill(&content);
            // SAFETY: both are longer than that.
            unsafe { copy(target.address(), source.address(), LENGTH as u64).unwrap() };
            // What happens to the source afterwards does not matter.
            source.fill(&vec![0; LENGTH]);
            assert!(target.bytes(LENGTH) == content, "{from:?} to {to:?}");
            assert!(target.frame_is_intact(LENGTH), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn managed_memory_is_read_and_written_like_device_memory() {
    if !common::has_gpu() {
        return;
    }
    const LENGTH: usize = (1 << 20) + 5;
    let sandbox = common::Sandbox::new();
    for text in ["route=auto", "route=staged;io=uring", "route=mapped"] {
        let content = common::pattern(LENGTH, 21);
        let file = sandbox.file("managed.bin", &content);
        let memory = Place::Managed.memory(LENGTH, 0);
        let whole = [(0, LENGTH as u64, 0)];
        let set = common::options(text);
        let report = memory
            .transfer(&file, Operation::Read, &whole, set)
            .unwrap();
        assert_eq!(report.device, 0);
        assert!(memory.bytes(LENGTH) == content, "{text}");
        memory.fill(&common::pattern(LENGTH, 77));
        memory
            .transfer(&file, Operation::Write, &whole, set)
            .unwrap();
        assert!(common::plain(file.path()) == common::pattern(LENGTH, 77));
    }
}

#[test]
fn ranges_in_several_kinds_of_memory_are_one_request() {
    if !common::has_gpu() {
        return;
    }
    const LENGTH: usize = 200_000;
    let sandbox = common::Sandbox::new();
    let content = common::pattern(4 * LENGTH, 5);
    let file = sandbox.file("mixed.bin", &content);
    let memories: Vec<_> = PLACES.iter().map(|p| p.memory(LENGTH, 0)).collect();
    let base = memories[0].address();
    let pieces: Vec<_> = memories
        .iter()
        .enumerate()
        .map(|(i, m)| {
            let from_base = (m.address() as u64).wrapping_sub(base as u64);
            ((i * LENGTH) as u64, LENGTH as u64, from_base)
        })
        .collect();
    let read = |faults| {
        let set = common::options("block=16KiB");
        memories[0].faulty(&file, Operation::Read, &pieces, set, faults)
    };
    assert_eq!(read(None).unwrap().bytes(), 4 * LENGTH as u64);
    for (i, memory) in memories.iter().enumerate() {
        assert!(memory.bytes(LENGTH) == content[i * LENGTH..][..LENGTH]);
    }
    let error = read(Some(Box::new(|n, _| match n {
        30 => Fault::Errno(libc::EIO),
        _ => Fault::None,
    })));
    assert_eq!(error.unwrap_err().kind(), Kind::Io);
}

#[test]
fn ranges_of_one_length_in_several_allocations_are_one_request() {
    if !common::has_gpu() {
        return;
    }
    const LENGTH: usize = 3000;
    let sandbox = common::Sandbox::new();
    let content = common::pattern(40_000, 5);
    let whole = [("route=staged", 0)];
    let routes = [
        "",
        "route=staged",
        "route=staged;io=uring;direct=yes",
        "route=mapped",
    ];
    for (route, shift) in whole.into_iter().chain(routes.map(|route| (route, 100))) {
        let mut memories: Vec<_> = (0..6)
            .map(|_| Place::Device.memory(2 * LENGTH, shift))
            .collect();
        memories.sort_by_key(common::Memory::address);
        let base = memories[0].address();
        let places = memories.iter().enumerate();
        let pieces: Vec<_> = places
            .map(|(i, m)| {
                (
                    10 + 6000 * i as u64,
                    LENGTH as u64,
                    (m.address() - base) as u64,
                )
            })
            .collect();
        let transfer = |file: &_, operation| {
            let set = common::options(route);
            memories[0].transfer(file, operation, &pieces, set).unwrap()
        };
        transfer(&sandbox.file("read.bin", &content), Operation::Read);
        let written = sandbox.file("written.bin", b"");
        transfer(&written, Operation::Write);
        let written = common::plain(written.path());
        for (memory, (offset, _, _)) in memories.iter().zip(&pieces) {
            let wanted = &content[*offset as usize..][..LENGTH];
            assert!(
                memory.bytes(LENGTH) == wanted && memory.frame_is_intact(LENGTH),
                "{route}"
            );
            assert!(written[*offset as usize..][..LENGTH] == *wanted, "{route}");
        }
    }
}

#[test]
fn allocations_of_no_bytes_can_be_freed() {
    if !common::has_gpu() {
        return;
    }
    let device = allocate::device_alloc(0, 0).unwrap();
    let host = allocate::host_alloc(0).unwrap();
    assert_eq!((device, host as usize), (0, 0));
    // SAFETY: the memory is not used any more.
    unsafe {
        allocate::device_free(device).unwrap();
        allocate::host_free(host).unwrap();
    }
}

#[test]
fn the_error_of_a_missing_device_names_it() {
    if !common::has_gpu() {
        return;
    }
    for device in [-1, 1000] {
        let error = allocate::device_alloc(device, 16).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.cause().contains(&device.to_string()), "{error}");
    }
}

#[test]
fn without_a_driver_device_memory_is_unavailable_and_host_memory_works() {
    let settings = [
        ("PENSTOCK_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"),
        ("PENSTOCK_CUFILE_LIBRARY", "/nonexistent/libcufile.so.0"),
    ];
    common::process::run_case("a_process_without_a_driver", &settings);
}

#[test]
#[ignore = "a case"]
fn a_process_without_a_driver() {
    assert_eq!(allocate::device_count().unwrap(), 0);
    let error = allocate::device_alloc(0, 16).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(
        error.cause().contains("/nonexistent/libcuda.so.1"),
        "{error}"
    );
    assert!(!error.remedy_text().is_empty());
    let (a, mut b) = ([7u8; 100], [0u8; 100]);
    // SAFETY: both have 100 bytes.
    unsafe { copy(b.as_mut_ptr() as usize, a.as_ptr() as usize, 100).unwrap() };
    assert_eq!(b, a);
}

#[test]
fn memory_that_is_not_device_memory_cannot_be_freed_as_such() {
    if !common::has_gpu() {
        return;
    }
    stream::enter_context();
    let host = [0u8; 16];
    // SAFETY: the address is not of device memory, so nothing is freed.
    let error = unsafe { allocate::device_free(host.as_ptr() as u64).unwrap_err() };
    assert_eq!(error.kind(), Kind::Invalid);
}
