//! Which elements of one decoded chunk correspond to which bytes of memory, as strided boxes.

use std::sync::Arc;

use penstock_engine::error::Result;

use crate::reserve::push;

/// `count` indices along one axis, evenly spaced in the chunk and in the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first index.
    pub index: u64,
    /// From an index to the next.
    pub index_step: u64,
    /// The position of the first index in the selection.
    pub position: u64,
    /// From a position to the next.
    pub position_step: u64,
    /// Number of indices; the steps of a single one mean nothing.
    pub count: u64,
}

impl Segment {
    /// Indices that follow each other, and come out so.
    pub fn range(index: u64, position: u64, count: u64) -> Segment {
        Segment {
            index,
            index_step: 1,
            position,
            position_step: 1,
            count,
        }
    }

    /// The last index.
    fn last(&self) -> u64 {
        match self.count {
            1 => self.index,
            count => self.index + (count - 1) * self.index_step,
        }
    }

    /// Appends it, as part of the last segment if a single index continues that one.
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

/// Which elements of a chunk are selected, and at which positions of the selection.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// Each combination of the segments of the axes.
    Grid(Vec<Arc<Vec<Segment>>>),
    /// Runs of elements of the chunk; each of one segment.
    Runs(Vec<Segment>),
}

/// How indices become bytes.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// Bytes from an index of the decoded chunk to the next, for each axis.
    pub chunk_strides: Vec<u64>,
    /// Bytes from a position of the selection to the next in memory, for each axis.
    pub memory_strides: Vec<i64>,
    /// Offset of the selection's first element in memory.
    pub base: u64,
    /// Bytes of an element in the chunk and in memory.
    pub chunk_element: u64,
    pub memory_element: u64,
}

/// A strided box of elements, which lies in the decoded chunk and in memory. Offsets and strides are in
/// bytes. Which side is read and which is written is the direction of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StridedBox {
    /// Offset of the first element in the decoded chunk.
    pub chunk: u64,
    /// Offset of the first element in memory.
    pub memory: u64,
    /// Elements that follow each other on both sides without a gap.
    pub run: u64,
    /// Repetitions of the run, outermost first; none if the box is one run.
    pub axes: Vec<BoxAxis>,
}

/// Repetitions of what is inside, in one dimension of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxAxis {
    /// At least 2.
    pub count: u64,
    /// Bytes from a repetition to the next, in the decoded chunk.
    pub chunk_stride: u64,
    /// The same in memory, where arrays may run backwards.
    pub memory_stride: i64,
}

/// A run of elements: offsets in bytes, length in elements.
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
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.axes
            .iter()
            .fold(self.run, |all, axis| all * axis.count)
    }

    /// The runs of the box, one after the other.
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
    /// The boxes that make up the placement. All numbers were checked when the plan was made.
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

    /// Number of elements, and first and behind the last byte of the decoded chunk that they take.
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

    /// Number of boxes.
    pub(crate) fn box_count(&self) -> u64 {
        match self {
            Placement::Runs(segments) => segments.len() as u64,
            Placement::Grid(axes) => axes
                .iter()
                .fold(1, |all, segments| all.saturating_mul(segments.len() as u64)),
        }
    }

    /// Roughly the memory that it takes.
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
        // Innermost first while they are collected.
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
