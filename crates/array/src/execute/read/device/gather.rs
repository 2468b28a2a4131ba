//! Gathers the boxes of a decoded chunk on the CPU in the order of their places, so that the fewest
//! possible copies bring them there.

use penstock_codec::convert::TypeConversion;

use crate::ElementMapping;
use crate::StridedBox;

/// An axis of a box, with its strides in the chunk and in the destination.
#[derive(Clone, Copy)]
struct GatherAxis {
    count: u64,
    source: i64,
    target: i64,
}

/// A box whose axes are in the order of the target, from the longest stride to the shortest.
pub(super) struct Gathering {
    element: ElementMapping,
    /// Offset of the first element in the chunk, and of the lowest byte in the destination.
    source: i64,
    target: u64,
    axes: Vec<GatherAxis>,
}

/// Rows for a 2-D copy: `width` bytes each, with starts `pitch` bytes apart.
pub(super) struct Rows {
    pub target: u64,
    pub width: u64,
    pub rows: u64,
    pub pitch: i64,
}

impl Gathering {
    /// Makes a gathering. `strided.chunk` counts from the chunk's first byte that is present.
    pub(super) fn new(element: ElementMapping, strided: &StridedBox) -> Gathering {
        let mut axes: Vec<GatherAxis> = strided
            .axes
            .iter()
            .map(|dim| GatherAxis {
                count: dim.count,
                source: dim.chunk_stride as i64,
                target: dim.memory_stride,
            })
            .collect();
        axes.push(GatherAxis {
            count: strided.run,
            source: element.source as i64,
            target: element.target as i64,
        });
        let (mut source, mut target) = (strided.chunk as i64, strided.memory as i64);
        for axis in &mut axes {
            if axis.target < 0 {
                // A negative axis is traversed from its other end.
                let last = axis.count as i64 - 1;
                source += last * axis.source;
                target += last * axis.target;
                (axis.source, axis.target) = (-axis.source, -axis.target);
            }
        }
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.target));
        Gathering {
            element,
            source,
            target: target as u64,
            axes,
        }
    }

    /// Returns the number of bytes of all elements.
    pub(super) fn bytes(&self) -> u64 {
        self.axes
            .iter()
            .fold(self.element.target, |all, axis| all * axis.count)
    }

    /// Gathers the elements contiguously.
    pub(super) fn gather(&self, conversion: &TypeConversion, chunk: &[u8], dense: &mut [u8]) {
        let Some((inner, outer)) = self.axes.split_last() else {
            return;
        };
        let element = &self.element;
        let is_run = element.offset == 0
            && element.length == element.source
            && inner.source == element.source as i64;
        let row_bytes = (inner.count * element.target) as usize;
        let starts = Starts::new(self.source, outer, |axis| axis.source);
        for (start, row) in starts.zip(dense.chunks_exact_mut(row_bytes)) {
            if is_run {
                let run = &chunk[start as usize..][..(inner.count * element.source) as usize];
                conversion.run(run, row);
                continue;
            }
            for (at, to) in row.chunks_exact_mut(element.target as usize).enumerate() {
                let from = start + at as i64 * inner.source + element.offset as i64;
                conversion.run(&chunk[from as usize..][..element.length as usize], to);
            }
        }
    }

    /// Returns the copies that bring the gathered elements to their places, in order.
    pub(super) fn copies(&self) -> impl Iterator<Item = Rows> + '_ {
        let (mut width, mut rest) = (self.element.target, self.axes.as_slice());
        while let Some((axis, outer)) = rest.split_last()
            && (axis.count == 1 || axis.target == width as i64)
        {
            width *= axis.count;
            rest = outer;
        }
        let (rows, pitch, outer) = match rest.split_last() {
            Some((axis, outer)) => (axis.count, axis.target, outer),
            None => (1, 0, rest),
        };
        Starts::new(self.target as i64, outer, |axis| axis.target).map(move |target| Rows {
            target: target as u64,
            width,
            rows,
            pitch,
        })
    }
}

/// The offset of each combination of the axes' indices; the last axis varies fastest.
struct Starts {
    next: Option<i64>,
    /// Index, count and stride of each axis.
    axes: Vec<(u64, u64, i64)>,
}

impl Starts {
    fn new(first: i64, axes: &[GatherAxis], stride: impl Fn(&GatherAxis) -> i64) -> Starts {
        Starts {
            next: Some(first),
            axes: axes.iter().map(|a| (0, a.count, stride(a))).collect(),
        }
    }
}

impl Iterator for Starts {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let start = self.next.take()?;
        let mut at = start;
        for (index, count, stride) in self.axes.iter_mut().rev() {
            *index += 1;
            if *index < *count {
                self.next = Some(at + *stride);
                break;
            }
            *index = 0;
            at -= (*count as i64 - 1) * *stride;
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySize;
    use crate::boxes::BoxAxis;

    /// Returns a chunk of 2 x 3 bytes whose rows become columns.
    fn transposed(row: i64, column: i64, memory: u64) -> Gathering {
        let strided = StridedBox {
            chunk: 0,
            memory,
            run: 1,
            axes: vec![
                BoxAxis {
                    count: 2,
                    chunk_stride: 3,
                    memory_stride: row,
                },
                BoxAxis {
                    count: 3,
                    chunk_stride: 1,
                    memory_stride: column,
                },
            ],
        };
        Gathering::new(ElementMapping::whole(MemorySize(1)), &strided)
    }

    fn gathered(gathering: &Gathering) -> Vec<u8> {
        let mut dense = vec![0; gathering.bytes() as usize];
        gathering.gather(&TypeConversion::Copy, &[1, 2, 3, 4, 5, 6], &mut dense);
        dense
    }

    #[test]
    fn elements_are_gathered_in_the_order_of_their_places() {
        let gathering = transposed(1, 2, 0);
        assert_eq!(gathered(&gathering), [1, 4, 2, 5, 3, 6]);
        let copies: Vec<Rows> = gathering.copies().collect();
        assert_eq!(copies.len(), 1);
        assert_eq!((copies[0].width, copies[0].rows), (6, 1));
    }

    #[test]
    fn a_place_that_runs_backwards_is_gone_through_forwards() {
        let gathering = transposed(-1, 8, 1);
        assert_eq!(gathered(&gathering), [4, 1, 5, 2, 6, 3]);
        let copy = gathering.copies().next().unwrap();
        assert_eq!((copy.target, copy.width), (0, 2));
        assert_eq!((copy.rows, copy.pitch), (3, 8));
    }
}
