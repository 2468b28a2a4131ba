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
            || Error::invalid(format!("the size of an array of shape {shape:?} overflows"));
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

    /// Returns an error if elements of the selection would overlap in memory.
    pub(super) fn check_apart(&self, shape: &[u64]) -> Result<()> {
        if self
            .strides
            .iter()
            .zip(shape)
            .any(|(stride, size)| *stride == 0 && *size > 1)
        {
            return Err(Error::invalid(
                "a dimension of the memory has stride 0, so its elements overlap",
            ));
        }
        Ok(())
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
