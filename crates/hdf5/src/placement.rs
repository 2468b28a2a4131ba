//! Where the elements of one decoded chunk go in the destination.

use std::sync::Arc;

use penstock_engine::error::Result;

use crate::room::push;

/// `count` indices along one axis, evenly spaced in the chunk and in the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub source: u64,
    pub source_step: u64,
    pub target: u64,
    pub target_step: u64,
    pub count: u64,
}

impl Segment {
    pub fn range(source: u64, target: u64, count: u64) -> Segment {
        Segment {
            source,
            source_step: 1,
            target,
            target_step: 1,
            count,
        }
    }

    /// Appends it, as part of the last segment if a single index continues that one.
    pub fn push_to(self, segments: &mut Vec<Segment>) -> Result<()> {
        if self.count == 1
            && let Some(last) = segments.last_mut()
            && let Some(source) = self.source.checked_sub(last.source)
            && let Some(target) = self.target.checked_sub(last.target)
        {
            if last.count == 1 && source > 0 && target > 0 {
                last.source_step = source;
                last.target_step = target;
                last.count = 2;
                return Ok(());
            }
            if last.count > 1
                && last.source_step.checked_mul(last.count) == Some(source)
                && last.target_step.checked_mul(last.count) == Some(target)
            {
                last.count += 1;
                return Ok(());
            }
        }
        push(segments, self)
    }
}

/// What of a chunk goes where, in elements.
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
    pub source: Vec<u64>,
    /// Bytes from an index of the destination to the next, for each axis.
    pub target: Vec<i64>,
    /// Offset of the selection's first element in the destination.
    pub base: u64,
    /// Bytes of an element in the chunk and in the destination.
    pub source_element: u64,
    pub target_element: u64,
}

/// A strided box of elements. Offsets are in bytes, in the decoded chunk and in the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub source: u64,
    pub target: u64,
    /// Elements that follow each other on both sides without a gap.
    pub run: u64,
    /// Repetitions of the run, outermost first; none if the box is one run.
    pub dims: Vec<PatchDim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchDim {
    pub count: u64,
    pub source_stride: u64,
    pub target_stride: i64,
}

/// A run of elements: offsets in bytes, length in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCopy {
    pub source: u64,
    pub target: u64,
    pub elements: u64,
}

impl Patch {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(self.run, |all, dim| all * dim.count)
    }

    /// Offset in the chunk of the last element of the box.
    pub(crate) fn last_source(&self, source_element: u64) -> u64 {
        let past: u64 = self
            .dims
            .iter()
            .map(|d| (d.count - 1) * d.source_stride)
            .sum();
        self.source + past + (self.run - 1) * source_element
    }

    /// The runs of the box, one after the other.
    pub fn copies(&self) -> impl Iterator<Item = ByteCopy> + '_ {
        let mut at = vec![0u64; self.dims.len()];
        let mut next = Some(ByteCopy {
            source: self.source,
            target: self.target,
            elements: self.run,
        });
        std::iter::from_fn(move || {
            let copy = next?;
            let (mut source, mut target) = (copy.source, copy.target as i64);
            next = None;
            for (at, dim) in at.iter_mut().zip(&self.dims).rev() {
                *at += 1;
                if *at < dim.count {
                    source += dim.source_stride;
                    target += dim.target_stride;
                    next = Some(ByteCopy {
                        source,
                        target: target as u64,
                        elements: self.run,
                    });
                    break;
                }
                *at = 0;
                source -= (dim.count - 1) * dim.source_stride;
                target -= (dim.count - 1) as i64 * dim.target_stride;
            }
            Some(copy)
        })
    }
}

impl Placement {
    /// The boxes that make up the placement. All numbers were checked when the plan was made.
    pub fn patches<'a>(&'a self, geometry: &'a Geometry) -> impl Iterator<Item = Patch> + 'a {
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
                let strides = (geometry.source_element, geometry.target[0]);
                return Some(geometry.patch([(*run, strides)].into_iter()));
            }
            let places = at.as_mut()?;
            let strides = geometry
                .source
                .iter()
                .copied()
                .zip(geometry.target.iter().copied());
            let chosen = axes
                .iter()
                .zip(&*places)
                .map(|(segments, at)| segments[*at]);
            let patch = geometry.patch(chosen.zip(strides));
            let is_last = !places.iter_mut().zip(axes).rev().any(|(at, segments)| {
                *at = (*at + 1) % segments.len();
                *at != 0
            });
            if is_last {
                at = None;
            }
            Some(patch)
        })
    }

    /// Number of boxes.
    pub fn boxes(&self) -> u64 {
        match self {
            Placement::Runs(segments) => segments.len() as u64,
            Placement::Grid(axes) => axes
                .iter()
                .fold(1, |all, segments| all.saturating_mul(segments.len() as u64)),
        }
    }

    /// Roughly the memory that it takes.
    pub fn bytes(&self) -> u64 {
        let segments = match self {
            Placement::Grid(axes) => axes.iter().map(|segments| segments.len()).sum(),
            Placement::Runs(segments) => segments.len(),
        };
        (segments * size_of::<Segment>()) as u64
    }
}

impl Geometry {
    fn patch(&self, axes: impl DoubleEndedIterator<Item = (Segment, (u64, i64))>) -> Patch {
        let mut source = 0;
        let mut target = self.base as i64;
        let mut run = 1;
        // Innermost first while they are collected.
        let mut dims: Vec<PatchDim> = Vec::new();
        for (segment, (source_stride, target_stride)) in axes.rev() {
            source += segment.source * source_stride;
            target += segment.target as i64 * target_stride;
            if segment.count == 1 {
                continue;
            }
            let dim = PatchDim {
                count: segment.count,
                source_stride: segment.source_step * source_stride,
                target_stride: segment.target_step as i64 * target_stride,
            };
            let continues = |count: u64, source: u64, target: i64| {
                dim.source_stride == count * source && dim.target_stride == count as i64 * target
            };
            match dims.last_mut() {
                None if continues(run, self.source_element, self.target_element as i64) => {
                    run *= dim.count;
                }
                Some(inner) if continues(inner.count, inner.source_stride, inner.target_stride) => {
                    inner.count *= dim.count;
                }
                _ => dims.push(dim),
            }
        }
        dims.reverse();
        Patch {
            source,
            target: target as u64,
            run,
            dims,
        }
    }
}
