//! Datasets, selections and destinations that the fuzzer makes up, sound and unsound ones.

use std::path::PathBuf;

use penstock_codec::Filter;
use penstock_hdf5::{
    Axis, AxisRun, ChunkGrid, ChunkTable, DatasetInfo, Destination, ElementType, ExternalSlot,
    FileInfo, Item, Layout, Run, Selection, StoredChunk, TableBuilder,
};

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
        3 => Axis::list(&draw.list(12, |draw| draw.index(size))),
        4 => Axis::mask(&draw.list(20, Draw::flag)),
        _ => Axis::Runs(draw.list(4, |draw| AxisRun {
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
            source: draw.index(elements),
            target: draw.number(),
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
    let mut target = 0;
    draw.list(8, |draw| {
        let source = draw.number() % elements.max(1);
        let length = draw.number().min(elements - source.min(elements)).min(4096);
        let run = Run {
            source,
            target,
            length,
        };
        target += length;
        run
    })
}

pub fn item(draw: &mut Draw, size: u64) -> Item {
    match draw.choice(4) {
        0 => Item {
            stored: size,
            offset: draw.number(),
            length: draw.number(),
            memory: draw.number(),
        },
        1 if size > 2 => Item {
            stored: size,
            offset: 1,
            length: size - 2,
            memory: draw.number(),
        },
        _ => Item::whole(size),
    }
}

/// Memory into which elements of `element` bytes come out with this shape.
pub fn destination(draw: &mut Draw, shape: &[u64], element: u64) -> Destination {
    match draw.choice(4) {
        0 => Destination {
            base: draw.number(),
            length: draw.number(),
            strides: draw.list(5, |draw| draw.number() as i64),
        },
        1 => with_gaps(draw, shape, element),
        _ => Destination::dense(shape, element).unwrap_or(Destination {
            base: 0,
            length: u64::MAX,
            strides: vec![1; shape.len()],
        }),
    }
}

/// Rows that do not touch, and axes that run backwards. The strides of huge shapes wrap around.
fn with_gaps(draw: &mut Draw, shape: &[u64], element: u64) -> Destination {
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
    Destination {
        base,
        length: base.saturating_add(bytes),
        strides,
    }
}

/// A dataset, and the chunk table of a chunked one.
pub fn dataset(draw: &mut Draw) -> (DatasetInfo, Option<ChunkTable>) {
    let shape = shape(draw);
    let element = draw.number() as usize;
    let file_size = draw.number();
    let filters = match draw.byte() {
        // More than the mask has bits.
        255 => 40,
        count => count % 3,
    };
    let mut info = DatasetInfo {
        name: "/dataset".to_owned(),
        max_shape: shape.iter().copied().map(Some).collect(),
        is_null: draw.byte() == 255,
        element: ElementType::Opaque {
            size: element,
            tag: String::new(),
        },
        layout: Layout::Compact,
        filters: Vec::new(),
        fill: draw.flag().then(|| vec![0x5c; element.min(64)]),
        file: FileInfo {
            name: PathBuf::from("file.h5"),
            descriptor: None,
            size: file_size,
            is_writable: false,
            is_swmr: false,
            is_plain: true,
            page_buffer: 0,
            sieve_buffer: 0,
            user_block: 0,
        },
        shape,
    };
    let mut table = None;
    info.layout = match draw.choice(8) {
        0 => Layout::Compact,
        1 => Layout::Contiguous { offset: None },
        2 => Layout::Contiguous {
            offset: Some(draw.number()),
        },
        3 => Layout::External(draw.list(4, |draw| ExternalSlot {
            path: PathBuf::from("external"),
            offset: draw.number(),
            size: (!draw.flag()).then(|| draw.number()),
        })),
        _ => {
            let chunk: Vec<u64> = info.shape.iter().map(|_| draw.number()).collect();
            info.filters = vec![
                Filter {
                    id: 1,
                    optional: true,
                    values: vec![4],
                };
                filters.into()
            ];
            table = chunk_table(draw, &info.shape, &chunk, element as u64);
            Layout::Chunked {
                chunk,
                dont_filter_edges: draw.flag(),
            }
        }
    };
    (info, table)
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
