//! The ways for bytes to travel between a healthy file and memory.

use std::sync::Arc;

use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;

use super::{Place, options};

const HOST: [&str; 5] = [
    "",
    "io=threads;direct=no;threads=3;block=64KiB",
    "io=threads;direct=yes;threads=3;block=64KiB",
    "io=uring;direct=no;block=64KiB",
    "io=uring;direct=yes;block=64KiB",
];
const GPU: [&str; 5] = [
    "",
    "route=staged;io=threads;direct=no;block=64KiB",
    "route=staged;io=threads;direct=yes;block=64KiB",
    "route=staged;io=uring;direct=yes;block=64KiB",
    "route=mapped;block=64KiB",
];

/// Each place and way that there is here for files of this file system.
pub fn ways(file: &File) -> Vec<(Place, Options)> {
    let gpu = if super::has_gpu() { &GPU[..] } else { &[] };
    let can_go = |text: &&&str| file.system().direct.is_some() || !text.contains("direct=yes");
    let host = HOST
        .iter()
        .filter(can_go)
        .map(|t| (Place::Host, options(t)));
    let gpu = gpu
        .iter()
        .filter(can_go)
        .map(|t| (Place::Device, options(t)));
    host.chain(gpu).collect()
}

/// Reads a range of an open file every way that there is.
pub fn assert_reads(file: &Arc<File>, offset: u64, wanted: &[u8]) {
    for (place, set) in ways(file) {
        let memory = place.memory(wanted.len() + 9, 5);
        let piece = (offset, wanted.len() as u64, 0);
        let report = memory
            .transfer(file, Operation::Read, &[piece], set)
            .unwrap();
        assert!(memory.bytes(wanted.len()) == wanted, "{place:?} {set:?}");
        assert_eq!(report.bytes(), wanted.len() as u64);
        assert!(memory.frame_is_intact(wanted.len()));
    }
}
