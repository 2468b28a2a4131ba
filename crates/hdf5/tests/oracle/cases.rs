//! Any dataset, selection and destination.

use std::sync::Arc;

use penstock_hdf5::{Axis, Destination, Item, ReadPlan, Run, Selection};
use proptest::prelude::*;

use super::read::read_plainly;
use super::sample::{Sample, chunked, contiguous};

fn axis(size: u64) -> BoxedStrategy<Axis> {
    let list = prop::collection::vec(0..size.max(1), 0..6)
        .prop_map(move |list| Axis::list(if size == 0 { &[] } else { &list }));
    let mask =
        prop::collection::vec(any::<bool>(), size as usize).prop_map(|mask| Axis::mask(&mask));
    let slab =
        (0..=size, 1..5u64, 0..6u64, 1..4u64).prop_map(move |(start, stride, count, block)| {
            let block = block.min(size - start).max(1);
            let stride = stride.max(block);
            let room = (size - start) / stride + u64::from((size - start) % stride >= block);
            Axis::Slab {
                start,
                stride,
                count: count.min(room),
                block,
            }
        });
    prop_oneof![Just(Axis::all(size)), slab, list, mask].boxed()
}

pub fn selection(shape: Vec<u64>) -> BoxedStrategy<Selection> {
    let elements: u64 = shape.iter().product();
    let grid: Vec<_> = shape.iter().map(|size| axis(*size)).collect();
    let points = prop::collection::vec(0..elements.max(1), 0..20).prop_map(move |points| {
        let points = points.iter().zip(0..).filter(|_| elements > 0);
        let run = |(source, target): (&u64, u64)| Run {
            source: *source,
            target,
            length: 1,
        };
        Selection::Runs(points.map(run).collect())
    });
    let mask = prop::collection::vec(any::<bool>(), elements as usize)
        .prop_map(|mask| Selection::mask(&mask));
    let runs = (0..=elements, 0..=elements).prop_map(|(one, other)| {
        Selection::Runs(vec![Run {
            source: one.min(other),
            target: 0,
            length: one.abs_diff(other),
        }])
    });
    prop_oneof![4 => grid.prop_map(Selection::Grid), 1 => points, 1 => mask, 1 => runs].boxed()
}

/// A destination of the right shape: dense, or with gaps and axes that run backwards.
fn destination(shape: &[u64], memory: u64, gaps: &[u64], backwards: u8) -> Destination {
    let mut bytes = memory;
    let mut base = 3;
    let mut strides = vec![0; shape.len()];
    for (at, (stride, size)) in strides.iter_mut().zip(shape).enumerate().rev() {
        bytes += gaps[at % gaps.len()];
        *stride = bytes as i64;
        if backwards >> at & 1 == 1 && *size > 0 {
            base += (size - 1) * bytes;
            *stride = -(bytes as i64);
        }
        bytes *= (*size).max(1);
    }
    Destination {
        base,
        length: base + bytes + 3,
        strides,
    }
}

#[derive(Clone, Debug)]
pub struct Case {
    pub sample: Sample,
    pub selection: Selection,
    pub destination: Destination,
    pub item: Item,
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
            let size = sample.info.element.size() as u64;
            let item = if is_field && size > 2 {
                Item {
                    stored: size,
                    offset: 1,
                    length: size - 2,
                    memory: size + 1,
                }
            } else {
                Item::whole(size)
            };
            let shape = selection.shape().unwrap();
            Case {
                destination: destination(&shape, item.memory, &gaps, backwards),
                sample,
                selection,
                item,
                limit,
            }
        })
}

impl Case {
    pub fn plan(&self) -> Arc<ReadPlan> {
        let Case {
            sample,
            selection,
            destination,
            item,
            ..
        } = self;
        let plan = ReadPlan::new(
            &sample.info,
            sample.table.clone(),
            selection.clone(),
            destination,
            *item,
        );
        Arc::new(plan.unwrap())
    }

    pub fn expected(&self) -> Vec<u8> {
        read_plainly(&self.sample, &self.selection, &self.destination, self.item)
    }
}
