//! Any dataset and any reading of it.

use std::sync::Arc;

use penstock_array::{ElementMapping, MemoryLayout, MemorySize, Plan, Selection};
use proptest::prelude::*;

use super::plans::read_plan;
use super::read::read_plainly;
use super::sample::{Sample, chunked, contiguous};
use super::selections::{destination, selection};

#[derive(Clone, Debug)]
pub struct Case {
    pub sample: Sample,
    pub selection: Selection,
    pub destination: MemoryLayout,
    pub element: ElementMapping,
    pub limit: u64,
}

pub fn samples() -> impl Strategy<Value = Sample> {
    let shapes = prop::collection::vec(0..9u64, 0..4);
    let chunks = prop::collection::vec(1..6u64, 4);
    (shapes, chunks, 1..10usize, any::<(u64, u64)>(), 0..3u8).prop_map(
        |(shape, chunk, element, (seed, missing), kind)| match kind {
            1 if !shape.is_empty() => {
                chunked(&shape, &chunk[..shape.len()], element, seed, missing)
            }
            2 if !shape.is_empty() => chunked(&shape, &chunk[..shape.len()], element, seed, 0),
            _ => contiguous(&shape, element),
        },
    )
}

pub fn cases() -> impl Strategy<Value = Case> {
    samples()
        .prop_flat_map(|sample| {
            let selection = selection(sample.info.shape.clone());
            let gaps = prop_oneof![Just(vec![0]), prop::collection::vec(0..9u64, 4)];
            let backwards = prop_oneof![Just(0u8), any::<u8>()];
            let limit = prop_oneof![Just(0), 0..5000u64, Just(1 << 30)];
            (
                Just(sample),
                selection,
                gaps,
                backwards,
                any::<bool>(),
                limit,
            )
        })
        .prop_map(|(sample, selection, gaps, backwards, is_field, limit)| {
            let stored = sample.info.element.size();
            let size = stored.0;
            let element = if is_field && size > 2 {
                ElementMapping::of_read(stored, 1..size - 1, MemorySize(size + 1))
            } else {
                ElementMapping::whole(MemorySize(size))
            };
            let shape = selection.shape().unwrap();
            Case {
                destination: destination(&shape, element.target, &gaps, backwards),
                sample,
                selection,
                element,
                limit,
            }
        })
}

impl Case {
    pub fn plan(&self) -> Arc<Plan> {
        let Case {
            sample,
            selection,
            destination,
            element,
            ..
        } = self;
        let plan = read_plan(
            &sample.info,
            sample.table.clone(),
            selection.clone(),
            destination,
            *element,
        );
        Arc::new(plan.unwrap())
    }

    pub fn expected(&self) -> Vec<u8> {
        read_plainly(
            &self.sample,
            &self.selection,
            &self.destination,
            self.element,
        )
    }
}
