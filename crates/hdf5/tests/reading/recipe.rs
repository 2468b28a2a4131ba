//! Datasets made chunk by chunk, honest or not.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_codec::{Filter, Pipeline, Scratch};

use crate::common::Setting;

/// A dataset of `u32`, little endian.
#[derive(Clone)]
pub struct Recipe {
    pub name: String,
    pub shape: Vec<u64>,
    /// Empty for a contiguous dataset.
    pub chunk: Vec<u64>,
    pub pipeline: Pipeline,
    pub chunks: Vec<Chunk>,
}

/// A stored chunk.
#[derive(Clone)]
pub struct Chunk {
    /// Counted in chunks.
    pub coordinates: Vec<u64>,
    pub mask: u32,
    pub stored: Vec<u8>,
}

pub const DEFLATE: u32 = 1;
pub const SHUFFLE: u32 = 2;
pub const FLETCHER32: u32 = 3;
pub const LZ4: u32 = 32004;
pub const ZSTD: u32 = 32015;

/// Filters by their numbers, with usual values.
pub fn pipeline(ids: &[u32]) -> Pipeline {
    let filter = |id: &u32| Filter {
        id: *id,
        optional: true,
        values: match *id {
            SHUFFLE => vec![4],
            DEFLATE => vec![4],
            LZ4 => vec![4096],
            ZSTD => vec![3],
            _ => Vec::new(),
        },
    };
    Pipeline {
        filters: ids.iter().map(filter).collect(),
    }
}

/// What the element with this number is: with runs, as deflate likes them, and no two chunks alike.
pub fn element(number: u64) -> u32 {
    (number / 5) as u32 ^ ((number / 97) as u32) << 16
}

/// The bytes of consecutive elements.
pub fn elements(count: u64) -> Vec<u8> {
    // Not with `flat_map`, which takes several times as long where nothing is optimized.
    let mut bytes = vec![0; count as usize * 4];
    for (bytes, number) in bytes.as_chunks_mut().0.iter_mut().zip(0..) {
        *bytes = element(number).to_le_bytes();
    }
    bytes
}

impl Recipe {
    /// A dataset whose elements are numbered in C order and whose chunks are all there.
    pub fn honest(name: &str, shape: &[u64], chunk: &[u64], filters: &[u32]) -> Recipe {
        let mut recipe = Recipe {
            name: name.to_owned(),
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            pipeline: pipeline(filters),
            chunks: Vec::new(),
        };
        let mut scratch = Scratch::default();
        let mut coordinates = vec![0; chunk.len()];
        loop {
            let bytes = recipe.decoded(&coordinates);
            let (stored, mask) = recipe.pipeline.encode(&bytes, &mut scratch).unwrap();
            recipe.chunks.push(Chunk {
                coordinates: coordinates.clone(),
                mask,
                stored,
            });
            let is_done = !(0..chunk.len()).rev().any(|at| {
                coordinates[at] = (coordinates[at] + 1) % shape[at].div_ceil(chunk[at]);
                coordinates[at] != 0
            });
            if is_done {
                return recipe;
            }
        }
    }

    /// All elements in one piece.
    pub fn contiguous(name: &str, shape: &[u64]) -> Recipe {
        Recipe {
            name: name.to_owned(),
            shape: shape.to_vec(),
            chunk: Vec::new(),
            pipeline: Pipeline::default(),
            chunks: vec![Chunk {
                coordinates: Vec::new(),
                mask: 0,
                stored: elements(shape.iter().product()),
            }],
        }
    }

    pub fn named(&self, name: String) -> Recipe {
        Recipe {
            name,
            ..self.clone()
        }
    }

    pub fn content(&self) -> Vec<u8> {
        elements(self.shape.iter().product())
    }

    /// A chunk as it is before it is encoded; zeros outside the dataset.
    pub fn decoded(&self, coordinates: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; self.chunk.iter().product::<u64>() as usize * 4];
        self.each_element(coordinates, |inside, number| {
            bytes[inside * 4..][..4].copy_from_slice(&element(number).to_le_bytes());
        });
        bytes
    }

    /// Calls with the place in the chunk and the number of each element that is in the dataset.
    pub fn each_element(&self, coordinates: &[u64], mut call: impl FnMut(usize, u64)) {
        // Row by row: an index for each element takes most of a test's time where nothing is optimized.
        let (side, length) = (
            self.chunk[self.chunk.len() - 1],
            self.shape[self.shape.len() - 1],
        );
        let column = coordinates[coordinates.len() - 1] * side;
        let wide = side.min(length.saturating_sub(column));
        let rows: u64 = self.chunk[..self.chunk.len() - 1].iter().product();
        for row in 0..rows {
            let (mut left, mut number, mut factor, mut is_in) = (row, column, length, true);
            for at in (0..self.chunk.len() - 1).rev() {
                let index = coordinates[at] * self.chunk[at] + left % self.chunk[at];
                left /= self.chunk[at];
                is_in &= index < self.shape[at];
                number += index * factor;
                factor *= self.shape[at];
            }
            if is_in {
                let inside = row * side;
                for at in 0..wide {
                    call((inside + at) as usize, number + at);
                }
            }
        }
    }

    pub fn at(&mut self, coordinates: &[u64]) -> &mut Chunk {
        let found = self
            .chunks
            .iter_mut()
            .find(|chunk| chunk.coordinates == coordinates);
        found.unwrap()
    }
}

/// Writes each of the files with its datasets.
pub fn write(setting: &Setting, folder: &Path, files: &[(&str, &[Recipe])]) -> Vec<PathBuf> {
    let (mut text, mut bytes) = (String::new(), Vec::new());
    let list = |numbers: &[u64]| {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        words.join(",")
    };
    for (file, recipes) in files {
        writeln!(text, "file\t{file}").unwrap();
        for recipe in *recipes {
            let filters: Vec<String> = recipe
                .pipeline
                .filters
                .iter()
                .map(|filter| {
                    let values: Vec<String> = filter.values.iter().map(u32::to_string).collect();
                    format!("{}:{}", filter.id, values.join("."))
                })
                .collect();
            let chunk = match recipe.chunk.as_slice() {
                [] => "-".to_owned(),
                sides => list(sides),
            };
            writeln!(
                text,
                "dataset\t{}\t{}\t{chunk}\t{}",
                recipe.name,
                list(&recipe.shape),
                filters.join(",")
            )
            .unwrap();
            for chunk in &recipe.chunks {
                let places = chunk.coordinates.iter().zip(&recipe.chunk);
                let first: Vec<u64> = places.map(|(at, side)| at * side).collect();
                let size = chunk.stored.len();
                writeln!(text, "chunk\t{}\t{}\t{size}", list(&first), chunk.mask).unwrap();
                bytes.extend_from_slice(&chunk.stored);
            }
        }
    }
    fs::write(folder.join("recipe"), text).unwrap();
    fs::write(folder.join("bytes"), bytes).unwrap();
    setting.script_named("reading/pack.py", &[folder.as_os_str()]);
    files.iter().map(|(file, _)| folder.join(file)).collect()
}
