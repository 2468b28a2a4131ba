//! Plans against the plainest possible reading: element by element.

mod cases;
#[path = "../common/plans.rs"]
mod plans;
mod read;
#[path = "../../../engine/tests/common/repetitions.rs"]
mod repetitions;
mod sample;
#[path = "../common/selections.rs"]
mod selections;

use std::collections::BTreeSet;
use std::sync::Arc;

use cases::{cases, samples};
use penstock_array::{
    Axis, ChunkGrid, ElementMapping, MemoryLayout, MemorySize, NO_FILTERS, Plan, PlanJob,
    Selection, Source, StoredChunk, TableBuilder, match_selections,
};
use penstock_engine::file::position::Operation;
use penstock_hdf5::dataset::Layout;
use plans::read_plan;
use proptest::prelude::*;
use read::{UNTOUCHED, read_by_plan, stored};
use repetitions::or_more;
use sample::{chunked, contiguous, info};
use selections::{selected, selection};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(or_more(1000, 3000)))]

    #[test]
    fn a_plan_puts_every_element_in_its_place_and_nothing_else(case in cases()) {
        let plan = case.plan();
        let found = read_by_plan(&case.sample, &plan, case.destination.length, case.limit);
        prop_assert_eq!(found, case.expected());
    }

    #[test]
    fn what_hdf5_has_read_is_placed_in_the_same_way(case in cases()) {
        let plan = Plan::new(
            &case.sample.info.array_from(Source::Memory),
            case.selection.clone(),
            &case.destination,
            case.element,
            Operation::Read,
        );
        let plan = Arc::new(plan.unwrap());
        let found = read_by_plan(&case.sample, &plan, case.destination.length, case.limit);
        prop_assert_eq!(found, case.expected());
    }

    #[test]
    fn only_touched_chunks_appear_and_each_once(case in cases()) {
        let Some(table) = &case.sample.table else {
            return Ok(());
        };
        let grid = table.grid();
        let touched: BTreeSet<u64> = selected(&case.selection, grid.shape())
            .iter()
            .map(|(source, _)| {
                let mut left = *source;
                let mut place = vec![0; grid.shape().len()];
                for ((at, size), side) in
                    place.iter_mut().zip(grid.shape()).zip(grid.chunk()).rev()
                {
                    *at = left % size / side;
                    left /= size;
                }
                grid.number(&place)
            })
            .collect();
        let plan = case.plan();
        let found: Vec<u64> = plan
            .works()
            .map(|work| match work.unwrap() {
                PlanJob::Chunk(job) => job.chunk,
                PlanJob::Fill(fill) => fill.chunk,
            })
            .collect();
        prop_assert_eq!(found, touched.into_iter().collect::<Vec<u64>>());
    }

    #[test]
    fn ranges_of_plain_jobs_read_the_same_bytes(case in cases()) {
        let plan = case.plan();
        let mut memory = read_by_plan(&case.sample, &plan, case.destination.length, 1 << 30);
        let expected = memory.clone();
        if !plan.element().is_whole() {
            return Ok(());
        }
        for window in plan.windows(case.limit) {
            let window = window.unwrap();
            prop_assert!(window.jobs.is_sorted_by_key(|job| job.address));
            for job in &window.jobs {
                prop_assert!(job.is_plain);
                for patch in job.boxes(&plan) {
                    for range in job.ranges(&plan, &patch) {
                        let (from, to) = (range.offset as usize, range.memory as usize);
                        let bytes = &case.sample.file[from..][..range.length as usize];
                        memory[to..][..bytes.len()].copy_from_slice(bytes);
                    }
                }
                if let Some(target) = job.whole(&plan) {
                    let bytes = stored(&case.sample, job);
                    prop_assert_eq!(&expected[target as usize..][..bytes.len()], &bytes[..]);
                }
            }
        }
        prop_assert_eq!(memory, expected);
    }

    #[test]
    fn a_plan_that_is_one_range_reads_the_same_bytes_by_it(case in cases()) {
        let plan = case.plan();
        let Some(range) = plan.one_range() else {
            return Ok(());
        };
        let mut memory = vec![UNTOUCHED; case.destination.length as usize];
        let bytes = &case.sample.file[range.offset as usize..][..range.length as usize];
        memory[range.memory as usize..][..bytes.len()].copy_from_slice(bytes);
        prop_assert_eq!(memory, case.expected());
    }

    #[test]
    fn a_file_and_a_memory_selection_pair_element_by_element(
        (sample, file, memory_shape, memory) in samples().prop_flat_map(|sample| {
            let shape = sample.info.shape.clone();
            let memory_shapes = prop::collection::vec(1..9u64, 0..4);
            (Just(sample), selection(shape), memory_shapes)
        }).prop_flat_map(|(sample, file, memory_shape)| {
            let memory = selection(memory_shape.clone());
            (Just(sample), Just(file), Just(memory_shape), memory)
        })
    ) {
        let size = sample.info.element.size().0;
        let order = |selection: &Selection, shape: &[u64]| {
            let mut all = selected(selection, shape);
            all.sort_by(|one, other| one.1.cmp(&other.1));
            all.into_iter().map(|pair| pair.0).collect::<Vec<u64>>()
        };
        let from = order(&file, &sample.info.shape);
        let to = order(&memory, &memory_shape);
        let made = match_selections(&file, &sample.info.shape, &memory, &memory_shape, MemorySize(size));
        if from.len() != to.len() {
            prop_assert!(made.is_err());
            return Ok(());
        }
        let (selection, destination) = made.unwrap();
        let mut expected = vec![UNTOUCHED; destination.length as usize];
        for (from, to) in from.iter().zip(&to) {
            let bytes = &sample.elements[(from * size) as usize..][..size as usize];
            expected[(to * size) as usize..][..size as usize].copy_from_slice(bytes);
        }
        // Where a destination element is given twice, either value may stay.
        let unique: BTreeSet<&u64> = to.iter().collect();
        if unique.len() == to.len() {
            let plan = read_plan(
                &sample.info, sample.table.clone(), selection, &destination, ElementMapping::whole(MemorySize(size)),
            );
            let plan = Arc::new(plan.unwrap());
            let found = read_by_plan(&sample, &plan, destination.length, 1 << 30);
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn rows_of_contiguous_data_are_one_range() {
    let sample = contiguous(&[6, 5, 4], 8);
    let range = |axes: Vec<Axis>, shape: &[u64]| {
        let destination = MemoryLayout::dense(shape, MemorySize(8)).unwrap();
        let grid = Selection::Grid(axes);
        let plan = read_plan(
            &sample.info,
            None,
            grid,
            &destination,
            ElementMapping::whole(MemorySize(8)),
        );
        plan.unwrap().one_range()
    };
    let all = [Axis::all(6), Axis::all(5), Axis::all(4)];
    assert_eq!(range(all.to_vec(), &[6, 5, 4]).unwrap().length, 960);
    let rows = vec![Axis::range(2, 1), Axis::range(1, 3), Axis::all(4)];
    let found = range(rows, &[1, 3, 4]).unwrap();
    let Layout::Contiguous { offset } = sample.info.layout else {
        panic!("the sample is contiguous");
    };
    assert_eq!(found.offset, offset.unwrap() + (2 * 20 + 4) * 8);
    assert_eq!((found.length, found.memory), (96, 0));
    let columns = vec![Axis::all(6), Axis::all(5), Axis::range(0, 2)];
    assert_eq!(range(columns, &[6, 5, 2]), None);
}

#[test]
fn a_destination_that_is_too_small_is_an_error() {
    let sample = contiguous(&[4, 4], 4);
    let plan = |destination: MemoryLayout| {
        let all = Selection::all(&[4, 4]);
        read_plan(
            &sample.info,
            None,
            all,
            &destination,
            ElementMapping::whole(MemorySize(4)),
        )
    };
    let destination = |base, length, strides: [i64; 2]| MemoryLayout {
        base,
        length,
        strides: strides.to_vec(),
    };
    plan(destination(0, 64, [16, 4])).unwrap();
    for wrong in [
        destination(0, 63, [16, 4]),
        destination(1, 64, [16, 4]),
        destination(47, 64, [-16, 4]),
        destination(0, 64, [i64::MAX, i64::MAX]),
        destination(u64::MAX, u64::MAX, [i64::MIN, 4]),
    ] {
        assert!(plan(wrong.clone()).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_plain_chunk_of_another_size_is_named() {
    let mut sample = chunked(&[4], &[2], 4, 0, 0);
    let grid = ChunkGrid::new(&[4], &[2]).unwrap();
    let mut builder = TableBuilder::new(grid, 100);
    for (first, size) in [(0, 8), (2, 7)] {
        let stored = StoredChunk {
            address: 64,
            size,
            mask: NO_FILTERS,
        };
        builder.add(&[first], stored).unwrap();
    }
    sample.table = Some(Arc::new(builder.finish()));
    let all = Selection::all(&[4]);
    let dense = MemoryLayout::dense(&[4], MemorySize(4)).unwrap();
    let plan = read_plan(
        &sample.info,
        sample.table,
        all,
        &dense,
        ElementMapping::whole(MemorySize(4)),
    )
    .unwrap();
    let plan = Arc::new(plan);
    let works: Vec<_> = plan.works().collect();
    assert!(works[0].is_ok());
    let text = works[1].as_ref().err().unwrap().to_string();
    for part in ["dataset /sample", "chunk at [1]", "7 bytes at offset 64"] {
        assert!(text.contains(part), "{text}");
    }
    let windows: Vec<_> = plan.windows(1 << 20).collect();
    assert!(windows.len() == 2 && windows[0].is_ok() && windows[1].is_err());
}

#[test]
fn a_few_elements_of_a_dataset_too_large_to_count_can_be_read() {
    let shape = [1u64 << 31, 1 << 31, 1 << 31];
    let chunk = [1u64 << 20, 1 << 20, 1 << 20];
    let grid = ChunkGrid::new(&shape, &chunk).unwrap();
    let layout = Layout::Chunked {
        lists_extent: false,
        chunk: chunk.to_vec(),
        dont_filter_edges: false,
    };
    let mut info = info(&shape, 1, layout, 1000);
    info.fill = penstock_hdf5::dataset::Fill::Value(vec![7]);
    let table = Arc::new(TableBuilder::new(grid, 1000).finish());
    let few = Selection::Grid(vec![Axis::range((1 << 20) - 1, 2); 3]);
    let dense = MemoryLayout::dense(&[2, 2, 2], MemorySize(1)).unwrap();
    let plan = read_plan(
        &info,
        Some(table),
        few,
        &dense,
        ElementMapping::whole(MemorySize(1)),
    )
    .unwrap();
    let fills = Arc::new(plan)
        .works()
        .filter(|w| matches!(w, Ok(PlanJob::Fill(_))))
        .count();
    assert_eq!(fills, 8);
    assert!(info.bytes().is_err());
}
