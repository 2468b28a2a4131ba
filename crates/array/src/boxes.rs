//! Strided boxes that map elements of one decoded chunk to bytes of memory.
//!
//! A selection inside a chunk has the form of a grid: along each axis a few segments, each of which
//! is evenly spaced in the chunk and in memory. Every combination of one segment per axis is one
//! *strided box*: an offset on both sides, a run of elements that is contiguous on both sides, and
//! repetitions of that run with a stride on each side. A selection of single runs has one box per
//! run.
//!
//! The invariant is that the boxes of a chunk cover each selected element exactly once. A box is
//! built innermost axis first: an axis that continues the run on both sides lengthens the run, and
//! any other axis becomes a repetition. So a dense selection is a single `memcpy` per chunk. Boxes
//! are computed on demand and not stored; they are also the entries of the table of the GPU kernel
//! that places elements.

use std::sync::Arc;

use penstock_engine::error::Result;

use crate::reserve::push;

/// `count` indices along one axis, evenly spaced both in the chunk and in the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first index.
    pub index: u64,
    /// Distance from one index to the next.
    pub index_step: u64,
    /// The position of the first index in the selection.
    pub position: u64,
    /// Distance from one position to the next.
    pub position_step: u64,
    /// Number of indices; the steps have no meaning if it is 1.
    pub count: u64,
}

impl Segment {
    /// Returns consecutive indices at consecutive positions.
    pub fn range(index: u64, position: u64, count: u64) -> Segment {
        Segment {
            index,
            index_step: 1,
            position,
            position_step: 1,
            count,
        }
    }
}

/// Evenly spaced ranges of consecutive indices, whose positions are consecutive, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The first index of each range.
    pub starts: Segment,
    /// Number of indices of each range.
    pub length: u64,
}

impl Ranges {
    /// Returns one range.
    pub fn one(index: u64, position: u64, length: u64) -> Ranges {
        Ranges {
            starts: Segment::range(index, position, 1),
            length,
        }
    }

    /// Returns the number of indices.
    pub fn indices(&self) -> u64 {
        self.starts.count.saturating_mul(self.length)
    }

    /// Iterates over the first index of each range and its position.
    pub fn firsts(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let starts = self.starts;
        let of = move |n| {
            (
                starts.index + n * starts.index_step,
                starts.position + n * starts.position_step,
            )
        };
        let first = (starts.index, starts.position);
        std::iter::once(first).chain((1..starts.count).map(of))
    }

    /// Returns the first index of the last range and its position.
    fn last_start(&self) -> (u64, u64) {
        let starts = &self.starts;
        match starts.count {
            1 => (starts.index, starts.position),
            count => (
                starts.index + (count - 1) * starts.index_step,
                starts.position + (count - 1) * starts.position_step,
            ),
        }
    }

    /// Returns the index after the last one.
    fn end(&self) -> u64 {
        self.last_start().0 + self.length
    }

    /// Appends these ranges. A single range extends the last range of the list if it continues it
    /// on both sides, and else the last ranges if it is as long and as far away as they are.
    pub fn push_to(self, all: &mut Vec<Ranges>) -> Result<()> {
        if self.starts.count == 1
            && let Some(last) = all.last_mut()
            && let (index, position) = last.last_start()
            && let Some(index_step) = self.starts.index.checked_sub(index)
            && let Some(position_step) = self.starts.position.checked_sub(position)
        {
            if index_step == last.length && position_step == last.length {
                let joined = Ranges::one(index, position, last.length + self.length);
                if last.starts.count > 1 {
                    last.starts.count -= 1;
                    return push(all, joined);
                }
                *last = joined;
                return Ok(());
            }
            let steps = (index_step, position_step);
            let starts = &mut last.starts;
            let continues = match starts.count {
                1 => index_step >= self.length && position_step >= self.length,
                _ => steps == (starts.index_step, starts.position_step),
            };
            if self.length == last.length && continues {
                (starts.index_step, starts.position_step) = steps;
                starts.count += 1;
                return Ok(());
            }
        }
        push(all, self)
    }
}

/// The selected elements of a chunk and their positions in the selection.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// Every combination of the ranges of the axes.
    Grid(Vec<Arc<Vec<Ranges>>>),
    /// Runs of elements of the chunk.
    Runs(Vec<Ranges>),
}

/// The numbers that turn indices into byte offsets.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// Bytes from one index of the decoded chunk to the next, for each axis.
    pub chunk_strides: Vec<u64>,
    /// Bytes from one position of the selection to the next in memory, for each axis.
    pub memory_strides: Vec<i64>,
    /// Offset of the selection's first element in memory.
    pub base: u64,
    /// Bytes of an element in the chunk and in memory, respectively.
    pub chunk_element: u64,
    pub memory_element: u64,
}

/// A strided box of elements, which exists in the decoded chunk and in memory. Offsets and strides
/// are in bytes. The plan's direction determines which side is the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StridedBox {
    /// Offset of the first element in the decoded chunk.
    pub chunk: u64,
    /// Offset of the first element in memory.
    pub memory: u64,
    /// Number of elements that are contiguous on both sides.
    pub run: u64,
    /// Repetitions of the run, outermost first; empty if the box is a single run.
    pub axes: Vec<BoxAxis>,
}

/// Repetitions of the inner part of a box along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxAxis {
    /// Number of repetitions, at least 2.
    pub count: u64,
    /// Bytes from one repetition to the next in the decoded chunk.
    pub chunk_stride: u64,
    /// Bytes from one repetition to the next in memory; negative if the memory runs backwards.
    pub memory_stride: i64,
}

/// A contiguous run of elements: offsets in bytes, length in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxRun {
    /// Offset in the decoded chunk.
    pub chunk: u64,
    /// Offset in memory.
    pub memory: u64,
    /// Length.
    pub elements: u64,
}

impl StridedBox {
    /// Cuts the box along its outermost dimension into boxes that span about `most` bytes of the chunk. `sizes` are
    /// the bytes of an element in the chunk and in memory.
    pub(crate) fn pieces(self, most: u64, sizes: (u64, u64)) -> impl Iterator<Item = StridedBox> {
        let run = BoxAxis {
            count: self.run,
            chunk_stride: sizes.0,
            memory_stride: sizes.1 as i64,
        };
        let outer = *self.axes.first().unwrap_or(&run);
        let step = (most / outer.chunk_stride.max(1)).max(1);
        (0..outer.count).step_by(step as usize).map(move |first| {
            let mut piece = self.clone();
            let count = step.min(outer.count - first);
            piece.chunk += first * outer.chunk_stride;
            piece.memory = (piece.memory as i64 + first as i64 * outer.memory_stride) as u64;
            match piece.axes.first_mut() {
                None => piece.run = count,
                Some(axis) if count > 1 => axis.count = count,
                Some(_) => drop(piece.axes.remove(0)),
            }
            piece
        })
    }

    /// Returns the byte after the last one of the chunk that the box spans; `size` is that of an element there.
    pub(crate) fn end(&self, size: u64) -> u64 {
        let last = self
            .axes
            .iter()
            .map(|axis| (axis.count - 1) * axis.chunk_stride);
        self.chunk + last.sum::<u64>() + self.run * size
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.axes
            .iter()
            .fold(self.run, |all, axis| all * axis.count)
    }

    /// Iterates over the runs of the box in order.
    pub fn runs(&self) -> impl Iterator<Item = BoxRun> + '_ {
        let mut at = vec![0u64; self.axes.len()];
        let mut next = Some(BoxRun {
            chunk: self.chunk,
            memory: self.memory,
            elements: self.run,
        });
        std::iter::from_fn(move || {
            let run = next?;
            let (mut chunk, mut memory) = (run.chunk, run.memory as i64);
            next = None;
            for (at, axis) in at.iter_mut().zip(&self.axes).rev() {
                *at += 1;
                if *at < axis.count {
                    chunk += axis.chunk_stride;
                    memory += axis.memory_stride;
                    next = Some(BoxRun {
                        chunk,
                        memory: memory as u64,
                        elements: self.run,
                    });
                    break;
                }
                *at = 0;
                chunk -= (axis.count - 1) * axis.chunk_stride;
                memory -= (axis.count - 1) as i64 * axis.memory_stride;
            }
            Some(run)
        })
    }
}

impl Placement {
    /// Returns the boxes that make up the placement. The arithmetic cannot overflow: all numbers
    /// were checked when the plan was made.
    pub(crate) fn boxes<'a>(
        &'a self,
        geometry: &'a Geometry,
    ) -> impl Iterator<Item = StridedBox> + 'a {
        let mut runs = [].iter();
        let mut axes: &[Arc<Vec<Ranges>>] = &[];
        let mut at = None;
        match self {
            Placement::Runs(ranges) => runs = ranges.iter(),
            Placement::Grid(all) => {
                axes = all;
                at = all
                    .iter()
                    .all(|ranges| !ranges.is_empty())
                    .then(|| vec![0usize; all.len()]);
            }
        }
        std::iter::from_fn(move || {
            if let Some(run) = runs.next() {
                let strides = (geometry.chunk_element, geometry.memory_strides[0]);
                return Some(geometry.strided_box([(*run, strides)].into_iter()));
            }
            let places = at.as_mut()?;
            let strides = geometry
                .chunk_strides
                .iter()
                .copied()
                .zip(geometry.memory_strides.iter().copied());
            let chosen = axes.iter().zip(&*places).map(|(ranges, at)| ranges[*at]);
            let found = geometry.strided_box(chosen.zip(strides));
            let is_last = !places.iter_mut().zip(axes).rev().any(|(at, ranges)| {
                *at = (*at + 1) % ranges.len();
                *at != 0
            });
            if is_last {
                at = None;
            }
            Some(found)
        })
    }

    /// Returns the number of elements, and the byte range (start, end) of the decoded chunk that
    /// they span.
    pub(crate) fn extent(&self, geometry: &Geometry) -> (u64, (u64, u64)) {
        match self {
            Placement::Runs(all) => {
                let size = geometry.chunk_element;
                let count = all.iter().map(Ranges::indices);
                let elements = count.fold(0, u64::saturating_add);
                let low = all.iter().map(|ranges| ranges.starts.index * size).min();
                let high = all.iter().map(|ranges| ranges.end() * size);
                (elements, (low.unwrap_or(u64::MAX), high.max().unwrap_or(0)))
            }
            Placement::Grid(axes) => {
                let (mut elements, mut low, mut high) = (1, 0, geometry.chunk_element);
                for (all, stride) in axes.iter().zip(&geometry.chunk_strides) {
                    let first = all.iter().map(|ranges| ranges.starts.index).min();
                    let end = all.iter().map(Ranges::end).max();
                    let (Some(first), Some(end)) = (first, end) else {
                        return (0, (u64::MAX, 0));
                    };
                    let count = all.iter().map(Ranges::indices);
                    elements = count.fold(0, u64::saturating_add).saturating_mul(elements);
                    low += first * stride;
                    high += (end - 1) * stride;
                }
                (elements, (low, high))
            }
        }
    }

    /// Returns the number of boxes.
    pub(crate) fn box_count(&self) -> u64 {
        match self {
            Placement::Runs(ranges) => ranges.len() as u64,
            Placement::Grid(axes) => axes
                .iter()
                .fold(1, |all, ranges| all.saturating_mul(ranges.len() as u64)),
        }
    }

    /// Returns the approximate memory footprint in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let ranges = match self {
            Placement::Grid(axes) => axes.iter().map(|ranges| ranges.len()).sum(),
            Placement::Runs(ranges) => ranges.len(),
        };
        (ranges * size_of::<Ranges>()) as u64
    }
}

impl Geometry {
    fn strided_box(
        &self,
        axes: impl DoubleEndedIterator<Item = (Ranges, (u64, i64))>,
    ) -> StridedBox {
        let mut chunk = 0;
        let mut memory = self.base as i64;
        let mut run = 1;
        // The axes are collected innermost first and reversed below.
        let mut repeated: Vec<BoxAxis> = Vec::new();
        for (ranges, (chunk_stride, memory_stride)) in axes.rev() {
            let starts = ranges.starts;
            chunk += starts.index * chunk_stride;
            memory += starts.position as i64 * memory_stride;
            // The indices of a range, and the ranges.
            let steps = [
                (ranges.length, 1, 1),
                (starts.count, starts.index_step, starts.position_step),
            ];
            for (count, index_step, position_step) in steps {
                if count == 1 {
                    continue;
                }
                let axis = BoxAxis {
                    count,
                    chunk_stride: index_step * chunk_stride,
                    memory_stride: position_step as i64 * memory_stride,
                };
                let continues = |count: u64, chunk: u64, memory: i64| {
                    axis.chunk_stride == count * chunk
                        && axis.memory_stride == count as i64 * memory
                };
                match repeated.last_mut() {
                    None if continues(run, self.chunk_element, self.memory_element as i64) => {
                        run *= axis.count;
                    }
                    Some(inner)
                        if continues(inner.count, inner.chunk_stride, inner.memory_stride) =>
                    {
                        inner.count *= axis.count;
                    }
                    _ => repeated.push(axis),
                }
            }
        }
        repeated.reverse();
        StridedBox {
            chunk,
            memory: memory as u64,
            run,
            axes: repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(count: u64, chunk_stride: u64, memory_stride: i64) -> BoxAxis {
        BoxAxis {
            count,
            chunk_stride,
            memory_stride,
        }
    }

    #[test]
    fn the_pieces_of_a_box_have_its_runs() {
        let axes = vec![axis(5, 400, -96), axis(3, 40, 32)];
        for (axes, run) in [(axes.clone(), 2), (axes[1..].to_vec(), 1), (vec![], 90)] {
            let all = StridedBox {
                chunk: 8,
                memory: 1000,
                run,
                axes,
            };
            for most in [0, 40, 130, 400, 900, 4000] {
                let pieces: Vec<_> = all.clone().pieces(most, (4, 8)).collect();
                let spans = pieces.iter().map(|piece| piece.end(4) - piece.chunk);
                assert!(spans.max() <= Some(most.max(if run == 2 { 88 } else { 4 })));
                let found: u64 = pieces.iter().map(StridedBox::elements).sum();
                assert_eq!(found, all.elements());
                let mut runs = pieces.iter().flat_map(StridedBox::runs);
                assert!(run == 90 || runs.by_ref().eq(all.runs()));
                assert_eq!(pieces.last().map(|piece| piece.end(4)), Some(all.end(4)));
            }
        }
    }
}
