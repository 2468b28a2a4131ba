//! Large cached reads into a GPU tell what has arrived.

mod common;

use common::{Extras, Place, Sandbox, has_gpu, options, pattern};
use penstock_engine::file::position::Operation::Read;
use penstock_engine::request::Waited;

const SIZE: u64 = (100 << 20) + 4321;

#[test]
fn a_read_of_long_ranges_counts_what_has_arrived() {
    if !has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    let content = pattern(SIZE as usize, 3);
    let file = sandbox.file("file.bin", &content);
    let memory = Place::Device.memory(SIZE as usize + 64, 32);
    let (third, last) = (33 << 20, SIZE - (66 << 20));
    let ranges = [
        (0, third, 0),
        (third, third, third),
        (2 * third, last, 2 * third),
    ];
    let mut counted = 0;
    for text in ["", "", "", "threads=2", "block=1MiB;slots=3"] {
        let set = options("route=staged").or(options(text));
        let started = memory.start_with(&file, Read, &ranges, set, Extras::default());
        let request = started.unwrap();
        let mut before = 0;
        while matches!(request.peek(), Waited::Pending) {
            let arrived = request.arrived();
            assert!(arrived >= before && arrived <= request.moved());
            if arrived > before {
                let found = memory.bytes(arrived as usize);
                assert!(found[before as usize..] == content[before as usize..arrived as usize]);
            }
            before = arrived;
        }
        request.finish().unwrap();
        assert_eq!(request.arrived(), SIZE);
        assert!(memory.bytes(SIZE as usize) == content);
        counted += before;
    }
    // Requests are looked at while they run, on any machine at least once.
    assert!(counted > 0);
    assert!(memory.frame_is_intact(SIZE as usize));
}
