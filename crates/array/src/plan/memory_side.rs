//! The memory of an array that a caller describes by shape and strides.

use penstock_engine::error::{Error, Result};

use super::{MemoryLayout, MemorySize};
use crate::selection::Selection;

/// The memory side of a transfer.
pub struct MemorySide {
    /// The layout of the selected elements.
    pub layout: MemoryLayout,
    /// Offset of the lowest byte from the address that the caller passed.
    pub low: i64,
}

impl MemorySide {
    /// Returns whether the elements form a C array of the selection's shape.
    pub fn is_dense(&self, selection: &Selection, element: MemorySize) -> Result<bool> {
        let shape = selection.shape().unwrap_or_default();
        Ok(self.low == 0 && self.layout == MemoryLayout::dense(&shape, element)?)
    }

    /// Returns whether the elements are contiguous, in the order of the selection. Unlike for
    /// [`is_dense`](Self::is_dense), the strides of dimensions of length 1 do not matter.
    pub fn has_no_gaps(&self, selection: &Selection, element: MemorySize) -> bool {
        let shape = selection.shape().unwrap_or_default();
        let mut next = element.0;
        let follows = |(size, stride): (&u64, &i64)| {
            let fits = *size == 1 || u64::try_from(*stride) == Ok(next);
            next = next.saturating_mul(*size);
            fits
        };
        let sides = shape.iter().zip(&self.layout.strides).rev();
        shape.len() == self.layout.strides.len() && sides.into_iter().all(follows)
    }

    /// Returns memory whose lowest byte is at the address that the caller passes.
    pub fn from_start(layout: MemoryLayout) -> MemorySide {
        MemorySide { layout, low: 0 }
    }

    /// Returns the memory of an array of the selection's shape, up to dimensions of length 1.
    pub fn of_array(
        selection: &Selection,
        shape: &[u64],
        strides: Option<&[i64]>,
        element: MemorySize,
    ) -> Result<MemorySide> {
        let dense = MemoryLayout::dense(shape, element)?;
        let strides = strides.unwrap_or(&dense.strides);
        if strides.len() != shape.len() {
            return Err(Error::invalid(format!(
                "an array of shape {shape:?} has strides {strides:?}"
            )));
        }
        let comes_out = selection
            .shape()
            .ok_or_else(|| Error::invalid("the number of selected elements overflows"))?;
        if comes_out.contains(&0) || shape.contains(&0) {
            if comes_out.contains(&0) != shape.contains(&0) {
                return Err(wrong_shape(&comes_out, shape));
            }
            return Ok(MemorySide {
                layout: MemoryLayout {
                    base: 0,
                    length: 0,
                    strides: vec![element.0 as i64; comes_out.len()],
                },
                low: 0,
            });
        }
        let strides = match selection {
            Selection::Grid(_) => fit(&comes_out, shape, strides),
            // Elements are contiguous for any shape of the array.
            Selection::Runs(_) => {
                let same =
                    shape.iter().try_fold(1u64, |n, s| n.checked_mul(*s)) == Some(comes_out[0]);
                let is_dense = shape
                    .iter()
                    .zip(strides.iter().zip(&dense.strides))
                    .all(|(size, (a, b))| *size == 1 || a == b);
                if same && !is_dense {
                    return Err(Error::invalid(
                        "a selection of single elements needs an array in C order",
                    ));
                }
                same.then(|| vec![element.0 as i64])
            }
        };
        let strides = strides.ok_or_else(|| wrong_shape(&comes_out, shape))?;
        let (mut low, mut high) = (0i128, 0i128);
        for (stride, size) in strides.iter().zip(&comes_out) {
            let reach = i128::from(*stride) * i128::from(size - 1);
            *(if reach < 0 { &mut low } else { &mut high }) += reach;
        }
        let length = high + i128::from(element.0) - low;
        let (Ok(low), Ok(length)) = (i64::try_from(low), i64::try_from(length)) else {
            return Err(Error::invalid("the array is larger than the address space"));
        };
        Ok(MemorySide {
            layout: MemoryLayout {
                base: low.unsigned_abs(),
                length: length as u64,
                strides,
            },
            low,
        })
    }
}

fn wrong_shape(selection: &[u64], array: &[u64]) -> Error {
    Error::invalid(format!(
        "the selection has shape {selection:?}, but the array has shape {array:?}"
    ))
}

/// Returns the strides of an array for each dimension of a selection, if both have the same shape
/// except for dimensions of length 1.
fn fit(selection: &[u64], array: &[u64], strides: &[i64]) -> Option<Vec<i64>> {
    let mut sides = array.iter().zip(strides).filter(|(size, _)| **size != 1);
    let mut fitted = Vec::with_capacity(selection.len());
    for size in selection {
        if *size == 1 {
            fitted.push(0);
            continue;
        }
        let (found, stride) = sides.next()?;
        if found != size {
            return None;
        }
        fitted.push(*stride);
    }
    sides.next().is_none().then_some(fitted)
}
