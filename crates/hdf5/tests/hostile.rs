//! Numbers that no honest file or caller gives: an error or a plan inside its bounds, never a panic.

#[path = "common/plans.rs"]
mod plans;
#[path = "../../engine/tests/common/repetitions.rs"]
mod repetitions;
#[path = "oracle/sample.rs"]
#[allow(dead_code)]
mod sample;

use std::sync::Arc;

use penstock_array::{
    Axis, ChunkGrid, ElementMapping, MemoryLayout, MemorySize, PlanJob, Run, Selection,
    StoredChunk, StoredSize, TableBuilder, match_selections,
};
use penstock_hdf5::dataset::{DatasetInfo, Fill, Layout};
use plans::read_plan;
use proptest::prelude::*;
use repetitions::or_more;

fn number() -> BoxedStrategy<u64> {
    let edges = prop_oneof![
        Just(0u64),
        Just(1 << 31),
        Just(1 << 32),
        Just(1 << 62),
        Just(1 << 63),
        Just(u64::MAX)
    ];
    let near = (edges, -2..3i64).prop_map(|(edge, by)| edge.wrapping_add_signed(by));
    prop_oneof![3 => 0..12u64, 1 => near, 1 => any::<u64>()].boxed()
}

fn axis() -> impl Strategy<Value = Axis> {
    let slab = (number(), number(), number(), 0..5u64).prop_map(|(start, stride, count, block)| {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        }
    });
    let run = (number(), number(), number()).prop_map(|(start, position, length)| Run {
        start,
        position,
        length,
    });
    let runs = prop::collection::vec(run, 0..4).prop_map(Axis::Runs);
    let list = prop::collection::vec(number(), 0..6).prop_map(|list| Axis::list(&list).unwrap());
    prop_oneof![2 => slab, 1 => runs, 1 => list]
}

fn selection(rank: usize) -> impl Strategy<Value = Selection> {
    let run = (number(), number(), 0..50u64).prop_map(|(start, position, length)| Run {
        start,
        position,
        length,
    });
    prop_oneof![
        2 => prop::collection::vec(axis(), rank).prop_map(Selection::Grid),
        1 => prop::collection::vec(run, 0..5).prop_map(Selection::Runs),
    ]
}

fn info(shape: Vec<u64>, element: usize, layout: Layout, file_size: u64) -> DatasetInfo {
    DatasetInfo {
        max_shape: vec![None; shape.len()],
        fill: Fill::Value(vec![0; element]),
        ..sample::info(&shape, element, layout, file_size)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(or_more(1500, 4000)))]

    #[test]
    fn every_target_of_a_plan_is_inside_the_destination(
        (shape, chunk, selection, strides) in (1..4usize).prop_flat_map(|rank| (
            prop::collection::vec(number(), rank),
            prop::collection::vec(number(), rank),
            selection(rank),
            prop::collection::vec(prop_oneof![number().prop_map(|n| n as i64), 1..99i64], 1..4),
        )),
        entries in prop::collection::vec(
            (prop::collection::vec(number(), 1..4), number(), number(), any::<u32>()), 0..5),
        (base, length, element, memory) in (number(), number(), 1..9usize, number()),
        (file_size, offset, is_chunked, is_dense) in
            (number(), number(), any::<bool>(), any::<bool>()),
    ) {
        let (layout, table) = if is_chunked {
            let Ok(grid) = ChunkGrid::new(&shape, &chunk) else { return Ok(()) };
            let mut builder = TableBuilder::new(grid, file_size);
            for (first, address, size, mask) in entries {
                let stored = StoredChunk { address, size, mask };
                let _ = builder.add(&first, stored);
            }
            let table = builder.finish();
            (Layout::Chunked { chunk, dont_filter_edges: true, lists_extent: false }, Some(Arc::new(table)))
        } else {
            (Layout::Contiguous { offset: Some(offset) }, None)
        };
        let info = info(shape, element, layout, file_size);
        let mut destination = MemoryLayout { base, length, strides };
        if selection.check(&info.shape).is_err() {
            return Ok(());
        }
        if is_dense && let Some(shape) = selection.shape() {
            let Ok(dense) = MemoryLayout::dense(&shape, MemorySize(memory)) else { return Ok(()) };
            destination = dense;
        }
        let stored = StoredSize(element as u64);
        let item = ElementMapping::of_read(stored, 0..stored.0, MemorySize(memory));
        let Ok(plan) = read_plan(&info, table, selection, &destination, item) else {
            return Ok(());
        };
        let plan = Arc::new(plan);
        for work in plan.works().take(20) {
            let Ok(work) = work else { continue };
            let (patches, decoded) = match &work {
                PlanJob::Chunk(job) => {
                    (job.boxes(&plan).take(20).collect::<Vec<_>>(), job.decoded_size)
                }
                PlanJob::Fill(fill) => (fill.boxes(&plan).take(20).collect(), plan.decoded_size()),
            };
            for copy in patches.iter().flat_map(|patch| patch.runs().take(20)) {
                let target = u128::from(copy.memory) + u128::from(copy.elements * memory);
                prop_assert!(target <= u128::from(destination.length));
                prop_assert!(copy.chunk + copy.elements * element as u64 <= decoded);
            }
        }
    }

    #[test]
    fn pairs_of_selections_never_overflow(
        (file_shape, file) in (1..3usize)
            .prop_flat_map(|rank| (prop::collection::vec(number(), rank), selection(rank))),
        (memory_shape, memory) in (1..3usize)
            .prop_flat_map(|rank| (prop::collection::vec(number(), rank), selection(rank))),
        element in number(),
    ) {
        // The memory of a selection in memory is already allocated.
        let is_small = |s: &Selection| s.len().is_some_and(|len| len < 10_000);
        let is_inside = file.check(&file_shape).is_ok() && memory.check(&memory_shape).is_ok();
        if is_inside && is_small(&file) && is_small(&memory)
            && let Ok((selection, _)) = match_selections(&file, &file_shape, &memory, &memory_shape, MemorySize(element))
        {
            prop_assert!(selection.check(&file_shape).is_ok());
        } else if !is_inside {
            prop_assert!(match_selections(&file, &file_shape, &memory, &memory_shape, MemorySize(element)).is_err());
        }
    }
}

#[test]
fn contiguous_data_past_the_last_offset_are_an_error() {
    let layout = Layout::Contiguous {
        offset: Some(u64::MAX - 10),
    };
    let info = info(vec![4], 4, layout, u64::MAX);
    let destination = MemoryLayout::dense(&[4], MemorySize(4)).unwrap();
    let plan = read_plan(
        &info,
        None,
        Selection::all(&[4]),
        &destination,
        ElementMapping::whole(MemorySize(4)),
    );
    let text = plan.unwrap_err().to_string();
    assert!(text.contains("16 bytes at offset"), "{text}");
}
