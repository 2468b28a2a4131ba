//! The same reading twice: element by element, and by a plan.

use std::sync::Arc;

use penstock_hdf5::{ByteCopy, ChunkJob, Destination, Item, ReadPlan, Selection, Source, Window};

use super::sample::Sample;
use super::selections::selected;

pub const UNTOUCHED: u8 = 0xee;

pub fn read_plainly(
    sample: &Sample,
    selection: &Selection,
    destination: &Destination,
    item: Item,
) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; destination.length as usize];
    for (source, position) in selected(selection, &sample.info.shape) {
        let offset = destination.base as i64
            + position
                .iter()
                .zip(&destination.strides)
                .map(|(p, s)| *p as i64 * s)
                .sum::<i64>();
        let from = (source * item.stored + item.offset) as usize;
        let length = item.length.min(item.memory) as usize;
        memory[offset as usize..][..length].copy_from_slice(&sample.elements[from..][..length]);
    }
    memory
}

fn place(memory: &mut [u8], copy: ByteCopy, item: Item, element: impl Fn(u64) -> Vec<u8>) {
    let length = item.length.min(item.memory) as usize;
    for i in 0..copy.elements {
        let bytes = element(copy.source + i * item.stored);
        memory[(copy.target + i * item.memory) as usize..][..length]
            .copy_from_slice(&bytes[item.offset as usize..][..length]);
    }
}

pub fn stored(sample: &Sample, job: &ChunkJob) -> Vec<u8> {
    sample.file[job.address as usize..][..job.stored_size as usize].to_vec()
}

pub fn read_by_plan(sample: &Sample, plan: &Arc<ReadPlan>, length: u64, limit: u64) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; length as usize];
    let item = plan.item();
    for window in plan.windows(limit) {
        let Window { jobs, fills, .. } = window.unwrap();
        for job in &jobs {
            let bytes = match plan.source() {
                Source::Given => sample.elements.clone(),
                _ => stored(sample, job),
            };
            assert_eq!(bytes.len() as u64, job.decoded_size);
            let (low, high) = job.span(plan);
            for copy in job
                .patches(plan)
                .flat_map(|p| p.copies().collect::<Vec<_>>())
            {
                assert!(low <= copy.source);
                assert!(copy.source + copy.elements * item.stored <= high);
                place(&mut memory, copy, item, |at| bytes[at as usize..].to_vec());
            }
        }
        for fill in &fills {
            let value = plan.fill().unwrap().to_vec();
            for copy in fill
                .patches(plan)
                .flat_map(|p| p.copies().collect::<Vec<_>>())
            {
                place(&mut memory, copy, item, |_| value.clone());
            }
        }
    }
    memory
}
