//! Tables of strided boxes of elements for the kernel that moves and converts them.

use std::collections::HashMap;

use penstock_sys::cuda::CUdeviceptr;

use super::{Plain, bytes_of};
use crate::convert::{DecodeRules, TypeConversion};
use crate::error::{CodecError, Result};

const NAME: &str = "placement";

/// One side of a box: a decoded chunk, an array, or one fill value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The device address of the memory.
    pub address: CUdeviceptr,
    /// The size of the memory in bytes. No box reaches beyond it.
    pub length: u64,
    /// The offset of the first byte that is moved, as if the bytes were not shuffled.
    pub offset: u64,
    /// The number of shuffled elements; 0 if the bytes are in order.
    pub shuffled: u64,
}

/// One axis of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PlaceAxis {
    /// Steps along the axis.
    pub count: u64,
    /// Bytes of a step in the source.
    pub source_stride: i64,
    /// Bytes of a step in the target.
    pub target_stride: i64,
}

/// The element sizes of the shuffle filter on both sides. Ignored for a side that is not shuffled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shuffles {
    /// Bytes of a shuffled element of the source.
    pub source: u32,
    /// Bytes of a shuffled element of the target.
    pub target: u32,
}

/// `StridedBox` of place.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct StridedBox {
    first: u64,
    pieces: u64,
    source: u64,
    target: u64,
    source_offset: u64,
    target_offset: u64,
    source_shuffled: u64,
    target_shuffled: u64,
    axes: u32,
    rank: u32,
    width: u32,
    aligned: u32,
}

/// `PlaceLaunch` of place.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PlaceLaunch {
    boxes: u64,
    axes: u64,
    pieces: u64,
    count: u32,
    conversion: u32,
    from: u32,
    to: u32,
    from_big: u32,
    to_big: u32,
    source_element: u32,
    target_element: u32,
    decode: DecodeLaunch,
}

/// `DecodeLaunch` of decode.cuh.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct DecodeLaunch {
    scale: u64,
    offset: u64,
    fills: [u64; DecodeRules::MOST_FILLS],
    arithmetic: u32,
    unused: u32,
}

impl DecodeLaunch {
    fn of(rules: &DecodeRules) -> DecodeLaunch {
        DecodeLaunch {
            scale: rules.scale,
            offset: rules.offset,
            fills: rules.fills,
            arithmetic: rules.arithmetic as u32,
            unused: 0,
        }
    }
}

const _: () = assert!(size_of::<PlaceAxis>() == 24);
const _: () = assert!(size_of::<StridedBox>() == 80);
const _: () = assert!(size_of::<DecodeLaunch>() == 56);
const _: () = assert!(size_of::<PlaceLaunch>() == 112);

// SAFETY: `repr(C)`, integers only, and as large as its members together.
unsafe impl Plain for PlaceAxis {}
// SAFETY: as above.
unsafe impl Plain for StridedBox {}
// SAFETY: as above.
unsafe impl Plain for PlaceLaunch {}

const SOURCE_ALIGNED: u32 = 1;
const TARGET_ALIGNED: u32 = 2;
/// `PLACE_TILE` of place.cuh.
const TILE: u64 = 2048;
/// The widest unit that one thread moves.
const WIDEST: u64 = 16;
/// The widest unit that one thread assembles from single bytes.
const WIDEST_SHUFFLED: u64 = 8;

/// Strided boxes of elements that one launch moves, all with the same conversion.
#[derive(Debug)]
pub struct PlaceTable {
    conversion: TypeConversion,
    /// Bytes moved of each element, at the source.
    length: u64,
    shuffles: Shuffles,
    boxes: Vec<StridedBox>,
    axes: Vec<PlaceAxis>,
    /// The index in `axes` of each sequence that a box already has.
    known: HashMap<Vec<PlaceAxis>, u32>,
    pieces: u64,
}

impl PlaceTable {
    /// An empty table. `length` is the number of bytes moved of each element, at the source: a
    /// multiple of the unit or number that `conversion` converts.
    pub fn new(conversion: TypeConversion, length: u64, shuffles: Shuffles) -> Result<PlaceTable> {
        let unit = match conversion {
            TypeConversion::Copy => 1,
            TypeConversion::Swap { unit } => unit as u64,
            TypeConversion::Convert { from, .. } => from.size() as u64,
            TypeConversion::Decode(decode) => decode.from().size() as u64,
        };
        if !matches!(unit, 1 | 2 | 4 | 8 | 16) || length == 0 || !length.is_multiple_of(unit) {
            return Err(CodecError::new(
                NAME,
                format!("an element of {length} bytes is not a whole number of units of {unit}"),
            ));
        }
        Ok(PlaceTable {
            conversion,
            length,
            shuffles,
            boxes: Vec::new(),
            axes: Vec::new(),
            known: HashMap::new(),
            pieces: 0,
        })
    }

    /// Adds a box, whose elements lie along `axes`, outermost first. Fails if the box reaches beyond
    /// the memory of a side.
    pub fn push(&mut self, source: Side, target: Side, axes: &[PlaceAxis]) -> Result<()> {
        if axes.iter().any(|axis| axis.count == 0) {
            return Ok(());
        }
        let source_strides = axes.iter().map(|axis| (axis.count, axis.source_stride));
        let target_strides = axes.iter().map(|axis| (axis.count, axis.target_stride));
        let after = self.conversion.size_after(self.length as usize) as u64;
        source.check(source_strides, self.length, self.shuffles.source)?;
        target.check(target_strides, after, self.shuffles.target)?;

        let mut axes: Vec<PlaceAxis> = axes.iter().copied().filter(|axis| axis.count > 1).collect();
        let mut length = self.length;
        if self.conversion == TypeConversion::Copy {
            // Contiguous elements are one long element.
            while let Some(axis) = axes.last()
                && axis.source_stride == length as i64
                && axis.target_stride == length as i64
            {
                length *= axis.count;
                axes.pop();
            }
        }
        let (width, width_after) = match self.conversion {
            TypeConversion::Copy => {
                let width = self.copy_width(&source, &target, &axes, length);
                (width, width)
            }
            TypeConversion::Swap { unit } => (unit as u64, unit as u64),
            TypeConversion::Convert { from, to } => (from.size() as u64, to.size() as u64),
            TypeConversion::Decode(decode) => {
                (decode.from().size() as u64, decode.to().size() as u64)
            }
        };
        axes.push(PlaceAxis {
            count: length / width,
            source_stride: width as i64,
            target_stride: width_after as i64,
        });
        let axes = merged(&axes);

        let mut pieces = 1u64;
        for axis in &axes {
            pieces = pieces.checked_mul(axis.count).ok_or_else(too_large)?;
        }
        let all = self.pieces.checked_add(pieces).ok_or_else(too_large)?;
        if self.boxes.len() >= u32::MAX as usize || self.axes.len() >= (u32::MAX >> 1) as usize {
            return Err(too_large());
        }
        let mut aligned = 0;
        if source.is_aligned(axes.iter().map(|axis| axis.source_stride), width) {
            aligned |= SOURCE_ALIGNED;
        }
        if target.is_aligned(axes.iter().map(|axis| axis.target_stride), width_after) {
            aligned |= TARGET_ALIGNED;
        }
        let rank = axes.len() as u32;
        let axes = self.index_of(axes);
        self.boxes.push(StridedBox {
            first: self.pieces,
            pieces,
            source: source.address,
            target: target.address,
            source_offset: source.offset,
            target_offset: target.offset,
            source_shuffled: source.shuffled,
            target_shuffled: target.shuffled,
            axes,
            rank,
            width: width as u32,
            aligned,
        });
        self.pieces = all;
        Ok(())
    }

    /// The number of boxes.
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// Whether there are no boxes.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// The size of the table in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.boxes) + size_of_val(&*self.axes)
    }

    /// Writes the table to `to`, of [`PlaceTable::size`] bytes or more, for its upload.
    pub fn write(&self, to: &mut [u8]) {
        let (boxes, axes) = (bytes_of(&self.boxes), bytes_of(&self.axes));
        to[..boxes.len()].copy_from_slice(boxes);
        to[boxes.len()..][..axes.len()].copy_from_slice(axes);
    }

    /// Removes all boxes, so that the table can be filled again.
    pub fn clear(&mut self) {
        self.boxes.clear();
        self.axes.clear();
        self.known.clear();
        self.pieces = 0;
    }

    pub(super) fn launch(&self, at: CUdeviceptr) -> Option<PlaceLaunch> {
        let (mut from, mut to, mut from_big, mut to_big) = (0, 0, 0, 0);
        let mut decode = DecodeLaunch::default();
        let conversion = match self.conversion {
            TypeConversion::Copy => 0,
            TypeConversion::Swap { .. } => 1,
            TypeConversion::Convert { from: f, to: t } => {
                (from, to) = (f.number as u32, t.number as u32);
                (from_big, to_big) = (u32::from(f.is_swapped()), u32::from(t.is_swapped()));
                2
            }
            TypeConversion::Decode(found) => {
                (from, to) = (found.from().number as u32, found.to() as u32);
                from_big = u32::from(found.from().is_swapped());
                decode = DecodeLaunch::of(found.rules());
                3
            }
        };
        (!self.is_empty()).then(|| PlaceLaunch {
            boxes: at,
            axes: at + size_of_val(&*self.boxes) as u64,
            pieces: self.pieces,
            count: self.boxes.len() as u32,
            conversion,
            from,
            to,
            from_big,
            to_big,
            source_element: self.shuffles.source,
            target_element: self.shuffles.target,
            decode,
        })
    }

    pub(super) fn blocks(&self) -> u64 {
        self.pieces.div_ceil(TILE)
    }

    /// The widest unit into which a copy can be divided so that each unit is aligned.
    fn copy_width(&self, source: &Side, target: &Side, axes: &[PlaceAxis], length: u64) -> u64 {
        let mut bits = length;
        let mut widest = WIDEST;
        for (side, element) in [
            (source, self.shuffles.source),
            (target, self.shuffles.target),
        ] {
            bits |= side.offset;
            if side.shuffled > 0 {
                // A unit lies inside one shuffled element.
                bits |= u64::from(element);
                widest = WIDEST_SHUFFLED;
            } else {
                bits |= side.address;
            }
        }
        for axis in axes {
            bits |= axis.source_stride as u64 | axis.target_stride as u64;
        }
        widest.min(bits & bits.wrapping_neg())
    }

    /// The index of these axes in the table of axes. Adds them if they are new.
    fn index_of(&mut self, axes: Vec<PlaceAxis>) -> u32 {
        if let Some(at) = self.known.get(&axes) {
            return *at;
        }
        let at = self.axes.len() as u32;
        self.axes.extend_from_slice(&axes);
        self.known.insert(axes, at);
        at
    }
}

impl Side {
    /// Fails unless the box lies in the memory.
    fn check(
        &self,
        axes: impl Iterator<Item = (u64, i64)>,
        length: u64,
        element: u32,
    ) -> Result<()> {
        let (mut low, mut high) = (i128::from(self.offset), i128::from(self.offset));
        for (count, stride) in axes {
            let reach = i128::from(stride)
                .checked_mul(i128::from(count - 1))
                .ok_or_else(too_large)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or_else(too_large)?;
        }
        high = high.checked_add(i128::from(length)).ok_or_else(too_large)?;
        if low < 0 || high > i128::from(self.length) {
            return Err(CodecError::new(
                NAME,
                format!(
                    "a box spans bytes {low} to {high} of a buffer of {} bytes",
                    self.length
                ),
            ));
        }
        let planes = self.shuffled.checked_mul(u64::from(element));
        if self.shuffled > 0 && (element == 0 || planes.is_none_or(|bytes| bytes > self.length)) {
            return Err(CodecError::new(
                NAME,
                format!(
                    "{} shuffled elements of {element} bytes exceed a buffer of {} bytes",
                    self.shuffled, self.length
                ),
            ));
        }
        Ok(())
    }

    /// Whether every piece of `width` bytes is aligned to `width`.
    fn is_aligned(&self, strides: impl Iterator<Item = i64>, width: u64) -> bool {
        let start = self.address.wrapping_add(self.offset);
        let bits = strides.fold(start, |bits, stride| bits | stride as u64);
        bits.is_multiple_of(width)
    }
}

fn too_large() -> CodecError {
    CodecError::new(NAME, "the boxes of elements are too large to count")
}

/// Joins axes whose steps form one sequence, and drops axes of one step.
fn merged(axes: &[PlaceAxis]) -> Vec<PlaceAxis> {
    let mut merged: Vec<PlaceAxis> = Vec::with_capacity(axes.len());
    for axis in axes.iter().rev().filter(|axis| axis.count > 1) {
        let follows = |inner: &PlaceAxis| {
            let count = i128::from(inner.count);
            i128::from(axis.source_stride) == count * i128::from(inner.source_stride)
                && i128::from(axis.target_stride) == count * i128::from(inner.target_stride)
        };
        match merged.last_mut() {
            Some(inner) if follows(inner) => match inner.count.checked_mul(axis.count) {
                Some(count) => inner.count = count,
                None => merged.push(*axis),
            },
            _ => merged.push(*axis),
        }
    }
    merged.reverse();
    merged
}
