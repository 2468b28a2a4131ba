//! The layout of elements in memory.

use penstock_engine::error::{Error, Result};

use super::MemorySize;

/// The layout of a selection's elements in memory, in bytes from the lowest address of that memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Offset of the selection's first element.
    pub base: u64,
    /// Bytes of the memory; no byte outside `0..length` is ever touched.
    pub length: u64,
    /// Bytes from one element to the next along each dimension of the selection.
    pub strides: Vec<i64>,
}

impl MemoryLayout {
    /// Returns the layout of a C array of this shape.
    pub fn dense(shape: &[u64], element: MemorySize) -> Result<MemoryLayout> {
        let too_large =
            || Error::invalid(format!("an array of shape {shape:?} is too large to count"));
        let mut strides = vec![0; shape.len()];
        let mut bytes = element.0;
        for (size, stride) in shape.iter().zip(&mut strides).rev() {
            *stride = i64::try_from(bytes).map_err(|_| too_large())?;
            bytes = bytes.checked_mul((*size).max(1)).ok_or_else(too_large)?;
        }
        Ok(MemoryLayout {
            base: 0,
            length: if shape.contains(&0) { 0 } else { bytes },
            strides,
        })
    }

    /// Returns an error if elements of the selection would overlap in memory, or if they may and a
    /// comparison of their places would take long.
    pub(super) fn check_apart(&self, shape: &[u64], element: MemorySize) -> Result<()> {
        let sides = self.strides.iter().zip(shape).filter(|side| *side.1 > 1);
        let mut sides: Vec<(u64, u64)> = sides.map(|(s, n)| (s.unsigned_abs(), *n)).collect();
        sides.sort_unstable();
        if is_nested(&sides, element) || is_interleaved(&sides, element) {
            return Ok(());
        }
        Err(Error::invalid("elements of the array share memory"))
    }

    /// Returns an error if an element of the selection would lie outside the memory.
    pub fn check(&self, shape: &[u64], element: MemorySize) -> Result<()> {
        if self.strides.len() != shape.len() {
            return Err(Error::invalid(format!(
                "the selection has shape {shape:?}, but the memory has {} strides",
                self.strides.len()
            )));
        }
        let (mut low, mut high) = (i128::from(self.base), i128::from(self.base));
        for (stride, size) in self.strides.iter().zip(shape) {
            let reach = i128::from(*stride) * i128::from(size - 1);
            *(if reach < 0 { &mut low } else { &mut high }) += reach;
        }
        let end = high + i128::from(element.0);
        let most = i128::from(self.length.min(i64::MAX as u64));
        if low < 0 || end > most {
            return Err(Error::invalid(format!(
                "the selection occupies bytes {low} to {end} of a memory of {} bytes",
                self.length
            )));
        }
        Ok(())
    }
}

/// Whether each step, in ascending order, leads past all elements along the dimensions before it.
fn is_nested(sides: &[(u64, u64)], element: MemorySize) -> bool {
    let mut behind = element.0;
    sides.iter().all(|(step, size)| {
        let fits = *step >= behind;
        behind = behind.saturating_add(step.saturating_mul(size - 1));
        fits
    })
}

/// The most elements whose places are compared one by one.
const MOST_PLACES: u64 = 1 << 20;

/// Whether the elements are apart although rows are interleaved.
fn is_interleaved(sides: &[(u64, u64)], element: MemorySize) -> bool {
    let count = sides
        .iter()
        .fold(1, |all: u64, side| all.saturating_mul(side.1));
    if sides.iter().any(|side| side.0 == 0) || count > MOST_PLACES {
        return false;
    }
    let mut places = vec![0];
    for (step, size) in sides {
        let along = |place: u64| (0..*size).map(move |at| place + step * at);
        places = places.into_iter().flat_map(along).collect();
    }
    places.sort_unstable();
    places.windows(2).all(|pair| pair[1] - pair[0] >= element.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_apart(strides: &[i64], shape: &[u64]) -> bool {
        let memory = MemoryLayout {
            base: 0,
            length: u64::MAX,
            strides: strides.to_vec(),
        };
        memory.check_apart(shape, MemorySize(4)).is_ok()
    }

    #[test]
    fn elements_of_a_dense_transposed_or_reversed_array_are_apart() {
        assert!(is_apart(&[40, 4], &[5, 10]));
        assert!(is_apart(&[4, 40], &[10, 5]));
        assert!(is_apart(&[-40, 8], &[5, 5]));
        assert!(is_apart(&[], &[]));
        assert!(is_apart(&[0, 4], &[1, 10]));
    }

    #[test]
    fn elements_that_share_bytes_are_not_apart() {
        assert!(!is_apart(&[0], &[2]));
        assert!(!is_apart(&[2], &[2]));
        assert!(!is_apart(&[4, 4], &[2, 2]));
        assert!(!is_apart(&[3, -1000], &[2, 1 << 40]));
    }

    #[test]
    fn interleaved_rows_are_apart_if_no_two_elements_meet() {
        assert!(is_apart(&[4, 8], &[2, 5]));
        assert!(is_apart(&[12, 8], &[2, 2]));
        assert!(!is_apart(&[12, 8], &[3, 4]));
    }
}
