//! The same reading twice: element by element, and by a plan.

use std::sync::Arc;

use penstock_array::{
    BoxRun, ChunkJob, ElementMapping, MemoryLayout, Plan, Selection, Source, Window,
};

use super::sample::Sample;
use super::selections::selected;

pub const UNTOUCHED: u8 = 0xee;

pub fn read_plainly(
    sample: &Sample,
    selection: &Selection,
    destination: &MemoryLayout,
    element: ElementMapping,
) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; destination.length as usize];
    for (source, position) in selected(selection, &sample.info.shape) {
        let offset = destination.base as i64
            + position
                .iter()
                .zip(&destination.strides)
                .map(|(p, s)| *p as i64 * s)
                .sum::<i64>();
        let from = (source * element.source + element.offset) as usize;
        let length = element.length.min(element.target) as usize;
        memory[offset as usize..][..length].copy_from_slice(&sample.elements[from..][..length]);
    }
    memory
}

fn place(
    memory: &mut [u8],
    copy: BoxRun,
    element: ElementMapping,
    bytes_at: impl Fn(u64) -> Vec<u8>,
) {
    let length = element.length.min(element.target) as usize;
    for i in 0..copy.elements {
        let bytes = bytes_at(copy.chunk + i * element.source);
        memory[(copy.memory + i * element.target) as usize..][..length]
            .copy_from_slice(&bytes[element.offset as usize..][..length]);
    }
}

pub fn stored(sample: &Sample, job: &ChunkJob) -> Vec<u8> {
    sample.file[job.address as usize..][..job.stored_size as usize].to_vec()
}

pub fn read_by_plan(sample: &Sample, plan: &Arc<Plan>, length: u64, limit: u64) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; length as usize];
    let element = plan.element();
    for window in plan.windows(limit) {
        let Window { jobs, fills, .. } = window.unwrap();
        for job in &jobs {
            let bytes = match plan.source() {
                Source::Memory => sample.elements.clone(),
                _ => stored(sample, job),
            };
            assert_eq!(bytes.len() as u64, job.decoded_size);
            let (low, high) = job.span;
            for copy in job.boxes(plan).flat_map(|p| p.runs().collect::<Vec<_>>()) {
                assert!(low <= copy.chunk);
                assert!(copy.chunk + copy.elements * element.source <= high);
                place(&mut memory, copy, element, |at| {
                    bytes[at as usize..].to_vec()
                });
            }
        }
        for fill in &fills {
            let value = plan.fill().unwrap().to_vec();
            for copy in fill.boxes(plan).flat_map(|p| p.runs().collect::<Vec<_>>()) {
                place(&mut memory, copy, element, |_| value.clone());
            }
        }
    }
    memory
}
