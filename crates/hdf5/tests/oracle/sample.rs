//! Datasets whose bytes are known.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_array::{ChunkGrid, ChunkTable, StoredChunk, TableBuilder};
use penstock_codec::Filter;
use penstock_hdf5::dataset::{DatasetInfo, ElementType, FileInfo, FileType, Fill, Layout};

/// A dataset whose bytes are known, and the file that holds it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub info: DatasetInfo,
    pub table: Option<Arc<ChunkTable>>,
    pub file: Vec<u8>,
    /// All elements in C order.
    pub elements: Vec<u8>,
}

pub fn info(shape: &[u64], element: usize, layout: Layout, file_size: u64) -> DatasetInfo {
    DatasetInfo {
        name: "/sample".to_owned(),
        shape: shape.to_vec(),
        max_shape: shape.iter().copied().map(Some).collect(),
        is_null: false,
        element: FileType::from(ElementType::Opaque {
            size: element,
            tag: String::new(),
        }),
        layout,
        filters: Vec::new(),
        fill: Fill::Nothing,
        file: Arc::new(FileInfo {
            name: PathBuf::from("sample.h5"),
            descriptor: None,
            size: file_size,
            is_writable: false,
            is_swmr: false,
            is_plain: true,
            is_in_memory: false,
            page_buffer: 0,
            sieve_buffer: 0,
            user_block: 0,
            address_size: 8,
            unchanged: None,
        }),
    }
}

/// Elements that differ from each other wherever they can.
pub fn numbered(count: usize, element: usize) -> Vec<u8> {
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

pub fn contiguous(shape: &[u64], element: usize) -> Sample {
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
pub fn chunked(shape: &[u64], chunk: &[u64], element: usize, seed: u64, missing: u64) -> Sample {
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
        lists_extent: false,
        chunk: chunk.to_vec(),
        dont_filter_edges: false,
    };
    let mut info = info(shape, element, layout, file.len() as u64);
    info.fill = Fill::Value(fill);
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
