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

    /// Returns the last index.
    fn last(&self) -> u64 {
        match self.count {
            1 => self.index,
            count => self.index + (count - 1) * self.index_step,
        }
    }

    /// Appends this segment, or extends the last one if this is a single index that continues it.
    pub fn push_to(self, segments: &mut Vec<Segment>) -> Result<()> {
        if self.count == 1
            && let Some(last) = segments.last_mut()
            && let Some(index) = self.index.checked_sub(last.index)
            && let Some(position) = self.position.checked_sub(last.position)
        {
            if last.count == 1 && index > 0 && position > 0 {
                last.index_step = index;
                last.position_step = position;
                last.count = 2;
                return Ok(());
            }
            if last.count > 1
                && last.index_step.checked_mul(last.count) == Some(index)
                && last.position_step.checked_mul(last.count) == Some(position)
            {
                last.count += 1;
                return Ok(());
            }
        }
        push(segments, self)
    }
}

/// The selected elements of a chunk and their positions in the selection.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// Every combination of the segments of the axes.
    Grid(Vec<Arc<Vec<Segment>>>),
    /// Runs of elements of the chunk, one segment each.
    Runs(Vec<Segment>),
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
        let mut axes: &[Arc<Vec<Segment>>] = &[];
        let mut at = None;
        match self {
            Placement::Runs(segments) => runs = segments.iter(),
            Placement::Grid(all) => {
                axes = all;
                at = all
                    .iter()
                    .all(|segments| !segments.is_empty())
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
            let chosen = axes
                .iter()
                .zip(&*places)
                .map(|(segments, at)| segments[*at]);
            let found = geometry.strided_box(chosen.zip(strides));
            let is_last = !places.iter_mut().zip(axes).rev().any(|(at, segments)| {
                *at = (*at + 1) % segments.len();
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
            Placement::Runs(segments) => {
                let size = geometry.chunk_element;
                let count = segments.iter().map(|segment| segment.count);
                let elements = count.fold(0, u64::saturating_add);
                let low = segments.iter().map(|segment| segment.index * size).min();
                let high = segments.iter().map(|segment| (segment.last() + 1) * size);
                (elements, (low.unwrap_or(u64::MAX), high.max().unwrap_or(0)))
            }
            Placement::Grid(axes) => {
                let (mut elements, mut low, mut high) = (1, 0, geometry.chunk_element);
                for (segments, stride) in axes.iter().zip(&geometry.chunk_strides) {
                    let first = segments.iter().map(|segment| segment.index).min();
                    let last = segments.iter().map(Segment::last).max();
                    let (Some(first), Some(last)) = (first, last) else {
                        return (0, (u64::MAX, 0));
                    };
                    let count = segments.iter().map(|segment| segment.count);
                    elements = count.fold(0, u64::saturating_add).saturating_mul(elements);
                    low += first * stride;
                    high += last * stride;
                }
                (elements, (low, high))
            }
        }
    }

    /// Returns the number of boxes.
    pub(crate) fn box_count(&self) -> u64 {
        match self {
            Placement::Runs(segments) => segments.len() as u64,
            Placement::Grid(axes) => axes
                .iter()
                .fold(1, |all, segments| all.saturating_mul(segments.len() as u64)),
        }
    }

    /// Returns the approximate memory footprint in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let segments = match self {
            Placement::Grid(axes) => axes.iter().map(|segments| segments.len()).sum(),
            Placement::Runs(segments) => segments.len(),
        };
        (segments * size_of::<Segment>()) as u64
    }
}

impl Geometry {
    fn strided_box(
        &self,
        axes: impl DoubleEndedIterator<Item = (Segment, (u64, i64))>,
    ) -> StridedBox {
        let mut chunk = 0;
        let mut memory = self.base as i64;
        let mut run = 1;
        // The axes are collected innermost first and reversed below.
        let mut repeated: Vec<BoxAxis> = Vec::new();
        for (segment, (chunk_stride, memory_stride)) in axes.rev() {
            chunk += segment.index * chunk_stride;
            memory += segment.position as i64 * memory_stride;
            if segment.count == 1 {
                continue;
            }
            let axis = BoxAxis {
                count: segment.count,
                chunk_stride: segment.index_step * chunk_stride,
                memory_stride: segment.position_step as i64 * memory_stride,
            };
            let continues = |count: u64, chunk: u64, memory: i64| {
                axis.chunk_stride == count * chunk && axis.memory_stride == count as i64 * memory
            };
            match repeated.last_mut() {
                None if continues(run, self.chunk_element, self.memory_element as i64) => {
                    run *= axis.count;
                }
                Some(inner) if continues(inner.count, inner.chunk_stride, inner.memory_stride) => {
                    inner.count *= axis.count;
                }
                _ => repeated.push(axis),
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
