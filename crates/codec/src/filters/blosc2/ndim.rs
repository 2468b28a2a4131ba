//! The `b2nd` array: its shape is divided into chunks and a chunk into blocks, each a box of elements
//! in C order. Boxes that reach past an edge are stored whole, with padding.

use super::frame::{Cursor, Frame};
use super::{NAME, error};
use crate::error::Result;
use crate::filters::blosc::chunk::{Chunk, Scratch};
use crate::filters::{sized, wrong_size};

/// The most axes that a short array of MessagePack holds. HDF5's filter supports fewer.
const MAX_AXES: usize = 15;
/// Bytes by which a block may exceed the array, since it may reach past the edges.
const MAX_EXCESS: usize = 1 << 16;
/// The largest ratio of all blocks' size to the array's: half of an axis can be padding, but hostile
/// metadata could ask for far more.
const MAX_PADDING: usize = 64;

pub(super) struct Array {
    typesize: usize,
    shape: Vec<usize>,
    chunk: Vec<usize>,
    block: Vec<usize>,
}

impl Array {
    pub(super) fn parse(metadata: &[u8], typesize: usize) -> Result<Self> {
        let mut cursor = Cursor(metadata);
        cursor.byte()?;
        let version = cursor.byte()?;
        if version > 0x7f {
            return Err(error("the b2nd metadata are damaged"));
        }
        let axes = usize::from(cursor.byte()?);
        if !(1..=MAX_AXES).contains(&axes) {
            return Err(error(format!("a b2nd array of {axes} dimensions")));
        }
        let mut lengths = |marker, size| {
            if usize::from(cursor.byte()?) != 0x90 + axes {
                return Err(error("the b2nd metadata are damaged"));
            }
            (0..axes)
                .map(|_| match cursor.number(marker, size)? {
                    0 => Err(error("a b2nd axis of length 0")),
                    length => Ok(length),
                })
                .collect::<Result<Vec<_>>>()
        };
        let array = Array {
            typesize,
            shape: lengths(0xd3, 8)?,
            chunk: lengths(0xd2, 4)?,
            block: lengths(0xd2, 4)?,
        };
        if array.block.iter().zip(&array.chunk).any(|(b, c)| b > c) {
            return Err(error("a b2nd block is larger than its chunk"));
        }
        Ok(array)
    }

    pub(super) fn bytes(&self) -> Result<usize> {
        product(&self.shape)
            .and_then(|count| count.checked_mul(self.typesize))
            .ok_or_else(|| error("the size of the b2nd array overflows"))
    }

    /// `output` has [`Self::bytes`] bytes.
    pub(super) fn decode_into(&self, frame: &Frame, output: &mut [u8]) -> Result<()> {
        let grid = quotients(&self.shape, &self.chunk);
        let count = product(&grid).ok_or_else(|| error("too many b2nd chunks"))?;
        if count > (output.len() + MAX_EXCESS) / 8 {
            return Err(error(format!("{count} b2nd chunks are too many")));
        }
        let offsets = frame.offsets(count)?;
        if offsets.len() != count {
            return Err(error(format!(
                "{} chunks in the frame where the b2nd array has {count}",
                offsets.len()
            )));
        }
        let mut buffers = Buffers {
            work: output
                .len()
                .saturating_add(MAX_EXCESS)
                .saturating_mul(MAX_PADDING),
            ..Buffers::default()
        };
        let mut place = vec![0; grid.len()];
        for offset in offsets {
            let origin = scaled(&place, &self.chunk);
            buffers.decode_chunk(self, &frame.chunk(offset)?, &origin, output)?;
            advance(&mut place, &grid);
        }
        Ok(())
    }

    /// The size of the part of a box at `origin` that lies inside the array and inside its chunk,
    /// which ends at `end`.
    fn visible(&self, origin: &[usize], size: &[usize], end: &[usize]) -> Vec<usize> {
        (0..origin.len())
            .map(|axis| {
                let stop = self.shape[axis].min(end[axis]);
                size[axis].min(stop.saturating_sub(origin[axis]))
            })
            .collect()
    }

    /// Copies the visible part of a box, row by row.
    fn scatter(
        &self,
        from: &[u8],
        size: &[usize],
        origin: &[usize],
        visible: &[usize],
        output: &mut [u8],
    ) {
        let Some((row, outer)) = visible.split_last() else {
            return;
        };
        if visible.contains(&0) {
            return;
        }
        let bytes = row * self.typesize;
        let mut place = vec![0; outer.len()];
        loop {
            let (mut source, mut target) = (0, 0);
            for (axis, at) in place.iter().chain([&0]).enumerate() {
                source = source * size[axis] + at;
                target = target * self.shape[axis] + origin[axis] + at;
            }
            let target = &mut output[target * self.typesize..][..bytes];
            target.copy_from_slice(&from[source * self.typesize..][..bytes]);
            if !advance(&mut place, outer) {
                return;
            }
        }
    }
}

/// Memory reused from block to block.
#[derive(Default)]
struct Buffers {
    /// Bytes that may still be decoded.
    work: usize,
    first: Vec<u8>,
    block: Vec<u8>,
    scratch: Scratch,
}

impl Buffers {
    fn decode_chunk(
        &mut self,
        array: &Array,
        chunk: &Chunk,
        origin: &[usize],
        output: &mut [u8],
    ) -> Result<()> {
        let overflow = || error("the size of a b2nd chunk overflows");
        let grid = quotients(&array.chunk, &array.block);
        let block_len = product(&array.block)
            .and_then(|count| count.checked_mul(array.typesize))
            .ok_or_else(overflow)?;
        let len = product(&grid)
            .and_then(|count| count.checked_mul(block_len))
            .ok_or_else(overflow)?;
        if chunk.len() != len {
            return Err(wrong_size(NAME, chunk.len(), len));
        }
        if chunk.block_len() != block_len || block_len > output.len().saturating_add(MAX_EXCESS) {
            return Err(error(format!(
                "blocks of {} bytes where the b2nd array has {block_len}",
                chunk.block_len()
            )));
        }
        let end = sums(origin, &array.chunk);
        // Blocks wholly outside the array are skipped.
        let inside = array.visible(origin, &array.chunk, &end);
        let inside = quotients(&inside, &array.block);
        self.work = product(&inside)
            .and_then(|count| count.checked_mul(block_len))
            .and_then(|work| self.work.checked_sub(work))
            .ok_or_else(|| error("the b2nd array has too much padding"))?;
        let Buffers {
            work: _,
            first,
            block,
            scratch,
        } = self;
        let first = sized(NAME, first, block_len)?;
        let block = sized(NAME, block, block_len)?;
        if chunk.needs_first_block() {
            chunk.decode_block(0, &[], scratch, first)?;
        }
        let mut place = vec![0; grid.len()];
        loop {
            let index = place
                .iter()
                .zip(&grid)
                .fold(0, |index, (at, count)| index * count + at);
            chunk.decode_block(index, first, scratch, block)?;
            let corner = sums(origin, &scaled(&place, &array.block));
            let visible = array.visible(&corner, &array.block, &end);
            array.scatter(block, &array.block, &corner, &visible, output);
            if !advance(&mut place, &inside) {
                return Ok(());
            }
        }
    }
}

fn product(lengths: &[usize]) -> Option<usize> {
    lengths
        .iter()
        .try_fold(1usize, |product, length| product.checked_mul(*length))
}

fn quotients(lengths: &[usize], parts: &[usize]) -> Vec<usize> {
    lengths
        .iter()
        .zip(parts)
        .map(|(length, part)| length.div_ceil(*part))
        .collect()
}

fn scaled(place: &[usize], lengths: &[usize]) -> Vec<usize> {
    place.iter().zip(lengths).map(|(p, l)| p * l).collect()
}

fn sums(left: &[usize], right: &[usize]) -> Vec<usize> {
    left.iter()
        .zip(right)
        .map(|(l, r)| l.saturating_add(*r))
        .collect()
}

/// Advances to the next index of a grid, in C order. Returns false after the last.
fn advance(place: &mut [usize], grid: &[usize]) -> bool {
    for (at, count) in place.iter_mut().zip(grid).rev() {
        *at += 1;
        if *at < *count {
            return true;
        }
        *at = 0;
    }
    false
}
