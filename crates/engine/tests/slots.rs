//! Slots of a worker on the staged route: any number of them moves the same bytes.

mod common;

use common::process::run_case;
use common::{Place, Sandbox, has_gpu, options, pattern, plain};
use penstock_engine::file::position::Operation;

const SIZE: u64 = (2 << 20) + 4321;

#[test]
fn any_number_of_slots_reads_and_writes_the_same_bytes() {
    if !has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    for (round, slots) in [1, 2, 3, 5, 64].into_iter().enumerate() {
        for threads in [1, 3] {
            let content = pattern(SIZE as usize, round as u8);
            let file = sandbox.file("file.bin", &content);
            let memory = Place::Device.memory(SIZE as usize + 64, 32);
            let text =
                format!("route=staged;io=threads;block=64KiB;slots={slots};threads={threads}");
            let whole = [(0, SIZE, 0)];
            let report = memory
                .transfer(&file, Operation::Read, &whole, options(&text))
                .unwrap();
            assert_eq!(report.bytes(), SIZE, "{text}");
            assert!(memory.bytes(SIZE as usize) == content, "{text}");

            let changed = pattern(SIZE as usize, 100 + round as u8);
            memory.fill(&changed);
            memory
                .transfer(&file, Operation::Write, &whole, options(&text))
                .unwrap();
            assert!(plain(file.path()) == changed, "{text}");
        }
    }
}

#[test]
#[ignore = "a case"]
fn few_slots_for_many_workers() {
    if !has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    let bytes = 40 << 20;
    let content = pattern(bytes as usize, 5);
    let file = sandbox.file("file.bin", &content);
    let memory = Place::Device.memory(bytes as usize, 0);
    let whole = [(0, bytes, 0)];
    let text = options("route=staged;io=threads;block=1MiB;slots=8;threads=3");
    for _ in 0..5 {
        memory
            .transfer(&file, Operation::Read, &whole, text)
            .unwrap();
        assert!(memory.bytes(bytes as usize) == content);
    }
    let changed = pattern(bytes as usize, 6);
    memory.fill(&changed);
    memory
        .transfer(&file, Operation::Write, &whole, text)
        .unwrap();
    assert!(plain(file.path()) == changed);
}

#[test]
fn a_worker_works_with_fewer_slots_than_requested() {
    // Three workers request 8 slots each, and there are 5.
    run_case("few_slots_for_many_workers", &[("PENSTOCK_RING", "5MiB")]);
}
