//! Arrays, selections and memory layouts that the fuzzer makes up, sound and unsound ones.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_array::{
    Axis, ChunkGrid, ChunkTable, ElementMapping, FileSegment, MemoryLayout, MemorySize, Run,
    Selection, Source, StoredArray, StoredChunk, StoredSize, TableBuilder,
};
use penstock_codec::{Filter, Pipeline};

use crate::draw::Draw;

pub fn shape(draw: &mut Draw) -> Vec<u64> {
    let rank = match draw.byte() {
        // One more than HDF5 has.
        255 => 33,
        rank => rank % 5,
    };
    (0..rank).map(|_| draw.number()).collect()
}

/// Indices along a dimension of this size.
pub fn axis(draw: &mut Draw, size: u64) -> Axis {
    match draw.choice(6) {
        0 => Axis::all(size),
        1 => Axis::Slab {
            start: draw.number(),
            stride: draw.number(),
            count: draw.number(),
            block: draw.number(),
        },
        2 => {
            let start = draw.number() % size.max(1);
            let room = (size - start.min(size)).max(1);
            let block = draw.number() % room + 1;
            let stride = block.saturating_add(draw.number());
            let fit = (room - block) / stride + 1;
            Axis::Slab {
                start,
                stride,
                count: draw.number() % fit.saturating_add(1),
                block,
            }
        }
        3 => Axis::list(&draw.list(12, |draw| draw.index(size))).unwrap(),
        4 => Axis::mask(&draw.list(20, Draw::flag)),
        _ => Axis::Runs(draw.list(4, |draw| Run {
            start: draw.index(size),
            position: draw.number(),
            length: draw.number(),
        })),
    }
}

pub fn selection(draw: &mut Draw, shape: &[u64]) -> Selection {
    let elements = shape
        .iter()
        .fold(1u64, |all, size| all.saturating_mul(*size));
    match draw.choice(8) {
        0 => Selection::Runs(draw.list(8, |draw| Run {
            start: draw.index(elements),
            position: draw.number(),
            length: draw.number(),
        })),
        1 => Selection::Runs(dense_runs(draw, elements)),
        2 => Selection::mask(&draw.list(64, Draw::flag)),
        3 => {
            let coordinates: Vec<u64> = (0..draw.choice(6))
                .flat_map(|_| shape)
                .map(|size| draw.index(*size))
                .collect();
            Selection::points(shape, &coordinates).unwrap_or(Selection::none())
        }
        _ => Selection::Grid(shape.iter().map(|size| axis(draw, *size)).collect()),
    }
}

/// Runs as HDF5 lists them: what comes out has no gaps.
pub fn dense_runs(draw: &mut Draw, elements: u64) -> Vec<Run> {
    let mut position = 0;
    draw.list(8, |draw| {
        let start = draw.number() % elements.max(1);
        let length = draw.number().min(elements - start.min(elements)).min(4096);
        let run = Run {
            start,
            position,
            length,
        };
        position += length;
        run
    })
}

pub fn element(draw: &mut Draw, size: StoredSize) -> ElementMapping {
    match draw.choice(4) {
        0 => {
            let (offset, length) = (draw.number(), draw.number());
            let part = offset..offset.saturating_add(length);
            ElementMapping::of_read(size, part, MemorySize(draw.number()))
        }
        1 if size.0 > 2 => ElementMapping::of_read(size, 1..size.0 - 1, MemorySize(draw.number())),
        _ => ElementMapping::whole(MemorySize(size.0)),
    }
}

/// Memory into which elements of `element` bytes come out with this shape.
pub fn memory(draw: &mut Draw, shape: &[u64], element: u64) -> MemoryLayout {
    match draw.choice(4) {
        0 => MemoryLayout {
            base: draw.number(),
            length: draw.number(),
            strides: draw.list(5, |draw| draw.number() as i64),
        },
        1 => with_gaps(draw, shape, element),
        _ => MemoryLayout::dense(shape, MemorySize(element)).unwrap_or(MemoryLayout {
            base: 0,
            length: u64::MAX,
            strides: vec![1; shape.len()],
        }),
    }
}

/// Rows that do not touch, and axes that run backwards. The strides of huge shapes wrap around.
fn with_gaps(draw: &mut Draw, shape: &[u64], element: u64) -> MemoryLayout {
    let mut bytes = element;
    let mut base = draw.number();
    let mut strides = vec![0; shape.len()];
    for (stride, size) in strides.iter_mut().zip(shape).rev() {
        bytes = bytes.wrapping_add(draw.number());
        *stride = bytes as i64;
        if draw.flag() && *size > 0 {
            base = base.wrapping_add((size - 1).wrapping_mul(bytes));
            *stride = stride.wrapping_neg();
        }
        bytes = bytes.wrapping_mul((*size).max(1));
    }
    MemoryLayout {
        base,
        length: base.saturating_add(bytes),
        strides,
    }
}

/// An array in a file. `None` if its chunks make no grid.
pub fn array(draw: &mut Draw) -> Option<StoredArray> {
    let shape = shape(draw);
    let element = draw.number();
    let filters = match draw.byte() {
        // More than the mask has bits.
        255 => 40,
        count => count % 3,
    };
    let fill = draw.flag().then(|| vec![0x5c; element.min(64) as usize]);
    let mut pipeline = Pipeline::default();
    let mut unfiltered_edges = false;
    let source = match draw.choice(8) {
        0 => Source::Memory,
        1 => Source::Missing,
        2 => Source::Contiguous {
            offset: draw.number(),
        },
        3 => Source::Segments(draw.list(4, |draw| FileSegment {
            path: PathBuf::from("external"),
            offset: draw.number(),
            size: (!draw.flag()).then(|| draw.number()),
        })),
        _ => {
            let chunk: Vec<u64> = shape.iter().map(|_| draw.number()).collect();
            let gzip = Filter {
                id: 1,
                optional: true,
                values: vec![4],
            };
            pipeline.filters = vec![gzip; filters.into()];
            let table = chunk_table(draw, &shape, &chunk, element)?;
            unfiltered_edges = draw.flag();
            Source::Chunks(Arc::new(table))
        }
    };
    Some(StoredArray {
        name: "/dataset".to_owned(),
        shape,
        element: StoredSize(element),
        source,
        pipeline,
        unfiltered_edges,
        fill,
    })
}

/// A table of which all chunks, or some, are allocated.
fn chunk_table(draw: &mut Draw, shape: &[u64], chunk: &[u64], element: u64) -> Option<ChunkTable> {
    let grid = ChunkGrid::new(shape, chunk).ok()?;
    let bytes = grid.elements().saturating_mul(element);
    if draw.flag() && grid.total() <= 256 {
        let size = bytes.clamp(1, 1 << 40);
        let mut builder = TableBuilder::new(grid.clone(), size * grid.total());
        let mask = draw.number() as u32;
        for number in 0..grid.total() {
            let stored = StoredChunk {
                address: (grid.total() - 1 - number) * size,
                size,
                mask,
            };
            builder.add(&first(&grid, number), stored).ok()?;
        }
        return Some(builder.finish());
    }
    let mut builder = TableBuilder::new(grid.clone(), draw.number());
    for _ in 0..draw.choice(12) {
        let number = draw.number() % grid.total().max(1);
        let stored = StoredChunk {
            address: draw.number(),
            size: if draw.flag() { bytes } else { draw.number() },
            mask: draw.number() as u32,
        };
        builder.add(&first(&grid, number), stored).ok()?;
    }
    Some(builder.finish())
}

/// The first element of a chunk of the grid.
fn first(grid: &ChunkGrid, number: u64) -> Vec<u64> {
    let coordinates = grid.coordinates(number);
    coordinates
        .iter()
        .zip(grid.chunk())
        .map(|(at, side)| at * side)
        .collect()
}
