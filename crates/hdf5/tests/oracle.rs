//! Plans against the plainest possible reading: element by element.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_codec::Filter;
use penstock_hdf5::{
    Axis, ByteCopy, ChunkGrid, ChunkJob, ChunkTable, DatasetInfo, Destination, ElementType,
    FileInfo, Item, Layout, NO_FILTERS, ReadPlan, Run, Selection, Source, StoredChunk,
    TableBuilder, Window, Work, pair,
};
use proptest::prelude::*;

/// A dataset whose bytes are known, and the file that holds it.
#[derive(Clone, Debug)]
struct Sample {
    info: DatasetInfo,
    table: Option<Arc<ChunkTable>>,
    file: Vec<u8>,
    /// All elements in C order.
    elements: Vec<u8>,
}

fn info(shape: &[u64], element: usize, layout: Layout, file_size: u64) -> DatasetInfo {
    DatasetInfo {
        name: "/sample".to_owned(),
        shape: shape.to_vec(),
        max_shape: shape.iter().copied().map(Some).collect(),
        is_null: false,
        element: ElementType::Opaque {
            size: element,
            tag: String::new(),
        },
        layout,
        filters: Vec::new(),
        fill: None,
        file: FileInfo {
            name: PathBuf::from("sample.h5"),
            descriptor: None,
            size: file_size,
            is_writable: false,
            is_swmr: false,
            is_plain: true,
            page_buffer: 0,
            sieve_buffer: 0,
            user_block: 0,
        },
    }
}

/// Elements that differ from each other wherever they can.
fn numbered(count: usize, element: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|n| {
            (n as u64 * 7 + 1)
                .to_le_bytes()
                .into_iter()
                .cycle()
                .take(element)
        })
        .collect()
}

fn contiguous(shape: &[u64], element: usize) -> Sample {
    let count = shape.iter().product::<u64>() as usize;
    let elements = numbered(count, element);
    let mut file = vec![0xaa; 100];
    file.extend(&elements);
    let layout = Layout::Contiguous { offset: Some(100) };
    Sample {
        info: info(shape, element, layout, file.len() as u64),
        table: None,
        file,
        elements,
    }
}

/// Chunks in the order of `seed`; those whose bit in `missing` is set are not allocated.
fn chunked(shape: &[u64], chunk: &[u64], element: usize, seed: u64, missing: u64) -> Sample {
    let fill: Vec<u8> = (0..element as u8).map(|b| b ^ 0x5c).collect();
    let count = shape.iter().product::<u64>() as usize;
    let mut elements = numbered(count, element);
    let grid = ChunkGrid::new(shape, chunk).unwrap();
    let is_missing = |number: u64| missing >> (number % 64) & 1 == 1;
    let mut chunks = vec![vec![0xbb; grid.elements() as usize * element]; grid.total() as usize];
    for (at, bytes) in elements.chunks_exact_mut(element).enumerate() {
        let mut left = at as u64;
        let mut index: Vec<u64> = vec![0; shape.len()];
        for (i, size) in index.iter_mut().zip(shape).rev() {
            *i = left % size;
            left /= size;
        }
        let place: Vec<u64> = index.iter().zip(chunk).map(|(i, c)| i / c).collect();
        let inside = index
            .iter()
            .zip(chunk)
            .fold(0, |all, (i, c)| all * c + i % c) as usize;
        let number = grid.number(&place);
        if is_missing(number) {
            bytes.copy_from_slice(&fill);
        }
        chunks[number as usize][inside * element..][..element].copy_from_slice(bytes);
    }
    let mut order: Vec<u64> = (0..grid.total()).filter(|n| !is_missing(*n)).collect();
    order.sort_by_key(|n| n.wrapping_mul(seed | 1).rotate_left(17));
    let mut file = vec![0xaa; 64];
    let size = (grid.elements() * element as u64, grid.total());
    let mut builder = TableBuilder::new(grid.clone(), 64 + size.0 * size.1);
    for number in order {
        let first: Vec<u64> = grid
            .coordinates(number)
            .iter()
            .zip(chunk)
            .map(|(at, c)| at * c)
            .collect();
        let stored = StoredChunk {
            address: file.len() as u64,
            size: size.0,
            mask: 1,
        };
        builder.add(&first, stored).unwrap();
        file.extend(&chunks[number as usize]);
    }
    let layout = Layout::Chunked {
        chunk: chunk.to_vec(),
        dont_filter_edges: false,
    };
    let mut info = info(shape, element, layout, file.len() as u64);
    info.fill = Some(fill);
    // Left out in each chunk, as the masks say.
    info.filters = vec![Filter {
        id: 1,
        optional: true,
        values: vec![4],
    }];
    Sample {
        info,
        table: Some(Arc::new(builder.finish())),
        file,
        elements,
    }
}

/// Index of each selected element along its axis, in the order in which they come out.
fn indices(axis: &Axis) -> Vec<u64> {
    match axis {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        } => (0..*count)
            .flat_map(|b| (0..*block).map(move |i| start + b * stride + i))
            .collect(),
        Axis::Runs(runs) => {
            let mut out = vec![0; axis.len() as usize];
            for run in runs {
                for i in 0..run.length {
                    out[(run.position + i) as usize] = run.start + i;
                }
            }
            out
        }
    }
}

/// Source element and position along each dimension of what comes out, for each selected element.
fn selected(selection: &Selection, shape: &[u64]) -> Vec<(u64, Vec<u64>)> {
    match selection {
        Selection::Runs(runs) => runs
            .iter()
            .flat_map(|r| (0..r.length).map(|i| (r.source + i, vec![r.target + i])))
            .collect(),
        Selection::Grid(axes) => {
            let mut all = vec![(0, Vec::new())];
            for (axis, size) in axes.iter().zip(shape) {
                let along = indices(axis);
                all = all
                    .iter()
                    .flat_map(|(source, position)| {
                        along.iter().zip(0..).map(move |(index, at)| {
                            let mut position: Vec<u64> = position.clone();
                            position.push(at);
                            (source * size + index, position)
                        })
                    })
                    .collect();
            }
            all
        }
    }
}

const UNTOUCHED: u8 = 0xee;

fn read_plainly(
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

fn stored(sample: &Sample, job: &ChunkJob) -> Vec<u8> {
    sample.file[job.address as usize..][..job.stored_size as usize].to_vec()
}

fn read_by_plan(sample: &Sample, plan: &ReadPlan, length: u64, limit: u64) -> Vec<u8> {
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

fn selection(shape: Vec<u64>) -> BoxedStrategy<Selection> {
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
struct Case {
    sample: Sample,
    selection: Selection,
    destination: Destination,
    item: Item,
    limit: u64,
}

fn samples() -> impl Strategy<Value = Sample> {
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

fn cases() -> impl Strategy<Value = Case> {
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
    fn plan(&self) -> ReadPlan {
        let Case {
            sample,
            selection,
            destination,
            item,
            ..
        } = self;
        ReadPlan::new(
            &sample.info,
            sample.table.clone(),
            selection.clone(),
            destination,
            *item,
        )
        .unwrap()
    }

    fn expected(&self) -> Vec<u8> {
        read_plainly(&self.sample, &self.selection, &self.destination, self.item)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_plan_puts_every_element_in_its_place_and_nothing_else(case in cases()) {
        let plan = case.plan();
        let found = read_by_plan(&case.sample, &plan, case.destination.length, case.limit);
        prop_assert_eq!(found, case.expected());
    }

    #[test]
    fn what_hdf5_has_read_is_placed_in_the_same_way(case in cases()) {
        let plan = ReadPlan::of_memory(
            &case.sample.info,
            case.selection.clone(),
            &case.destination,
            case.item,
        )
        .unwrap();
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
                Work::Chunk(job) => job.chunk,
                Work::Fill(fill) => fill.chunk,
            })
            .collect();
        prop_assert_eq!(found, touched.into_iter().collect::<Vec<u64>>());
    }

    #[test]
    fn ranges_of_plain_jobs_read_the_same_bytes(case in cases()) {
        let plan = case.plan();
        let mut memory = read_by_plan(&case.sample, &plan, case.destination.length, 1 << 30);
        let expected = memory.clone();
        if !plan.item().is_whole() {
            return Ok(());
        }
        for window in plan.windows(case.limit) {
            let window = window.unwrap();
            prop_assert!(window.jobs.is_sorted_by_key(|job| job.address));
            for job in &window.jobs {
                prop_assert!(job.is_plain);
                for range in job.ranges(&plan) {
                    let bytes = &case.sample.file[range.offset as usize..][..range.length as usize];
                    memory[range.target as usize..][..bytes.len()].copy_from_slice(bytes);
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
        let size = sample.info.element.size() as u64;
        let order = |selection: &Selection, shape: &[u64]| {
            let mut all = selected(selection, shape);
            all.sort_by(|one, other| one.1.cmp(&other.1));
            all.into_iter().map(|pair| pair.0).collect::<Vec<u64>>()
        };
        let from = order(&file, &sample.info.shape);
        let to = order(&memory, &memory_shape);
        let made = pair(&file, &sample.info.shape, &memory, &memory_shape, size);
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
            let plan = ReadPlan::new(
                &sample.info, sample.table.clone(), selection, &destination, Item::whole(size),
            ).unwrap();
            let found = read_by_plan(&sample, &plan, destination.length, 1 << 30);
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_destination_that_is_too_small_is_an_error() {
    let sample = contiguous(&[4, 4], 4);
    let plan = |destination: Destination| {
        let all = Selection::all(&[4, 4]);
        ReadPlan::new(&sample.info, None, all, &destination, Item::whole(4))
    };
    let destination = |base, length, strides: [i64; 2]| Destination {
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
    let dense = Destination::dense(&[4], 4).unwrap();
    let plan = ReadPlan::new(&sample.info, sample.table, all, &dense, Item::whole(4)).unwrap();
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
        chunk: chunk.to_vec(),
        dont_filter_edges: false,
    };
    let mut info = info(&shape, 1, layout, 1000);
    info.fill = Some(vec![7]);
    let table = Arc::new(TableBuilder::new(grid, 1000).finish());
    let few = Selection::Grid(vec![Axis::range((1 << 20) - 1, 2); 3]);
    let dense = Destination::dense(&[2, 2, 2], 1).unwrap();
    let plan = ReadPlan::new(&info, Some(table), few, &dense, Item::whole(1)).unwrap();
    let fills = plan
        .works()
        .filter(|w| matches!(w, Ok(Work::Fill(_))))
        .count();
    assert_eq!(fills, 8);
    assert!(info.bytes().is_err());
}
