//! Converts the index of a caller to axes of the C API.

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyInt, PyList, PySlice, PyTuple};

use crate::structs::Axis;

/// HDF5's limit.
const MOST_DIMENSIONS: usize = 32;

/// The elements that integers, slices and a list of integers select of a dataset.
pub(crate) struct Selected {
    axes: [Axis; MOST_DIMENSIONS],
    rank: usize,
    shape: [u64; MOST_DIMENSIONS],
    dimensions: usize,
    /// The indices of the axis of the list, which points to them.
    list: Vec<u64>,
}

impl Selected {
    /// Returns a selection without elements.
    pub(crate) fn new() -> Selected {
        Selected {
            axes: [Axis::default(); MOST_DIMENSIONS],
            rank: 0,
            shape: [0; MOST_DIMENSIONS],
            dimensions: 0,
            list: Vec::new(),
        }
    }

    /// Selects by an index of a dataset of this shape. May be called once. Returns false if the
    /// index selects no element, is malformed, or has parts other than integers, slices with a
    /// positive step and an ellipsis. A list or an array of integers may be used beside slices.
    pub(crate) fn select(&mut self, index: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<bool> {
        let is_selected = match index.cast_exact::<PyTuple>() {
            Ok(parts) => self.add_all(parts, shape)?,
            Err(_) if index.is_instance_of::<PyEllipsis>() => self.add_rest(shape, 0),
            Err(_) => self.add(index, shape)? && self.add_rest(shape, 0),
        };
        // NumPy has rules of its own for the dimensions of a list beside an integer.
        Ok(is_selected && (self.list.is_empty() || self.dimensions == self.rank))
    }

    /// Returns the length of each dimension of the selected elements.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape[..self.dimensions]
    }

    /// Returns the selected indices along each dimension of the dataset.
    pub(crate) fn axes(&self) -> &[Axis] {
        &self.axes[..self.rank]
    }

    /// Returns the number of selected elements; `None` if it is beyond 64 bits.
    pub(crate) fn count(&self) -> Option<u64> {
        let lengths = self.shape().iter();
        lengths.copied().try_fold(1, u64::checked_mul)
    }

    /// Returns whether the selected elements are contiguous in a dataset of this shape.
    pub(crate) fn is_one_run(&self, shape: &[u64]) -> bool {
        // Dimensions from here on are whole.
        let mut is_rest_whole = true;
        self.list.is_empty()
            && self.axes().iter().zip(shape).rev().all(|(axis, length)| {
                let follows = axis.count == 1 || is_rest_whole && axis.step == 1;
                is_rest_whole &= axis.count == *length;
                follows
            })
    }

    fn add_all(&mut self, parts: &Bound<'_, PyTuple>, shape: &[u64]) -> PyResult<bool> {
        let mut left = parts.len();
        let mut has_ellipsis = false;
        for part in parts.iter_borrowed() {
            left -= 1;
            if part.is_instance_of::<PyEllipsis>() {
                // NumPy and h5py disagree about the meaning of an ellipsis that covers no
                // dimension.
                let is_right = !has_ellipsis && self.rank + left < shape.len();
                if !is_right || !self.add_rest(shape, left) {
                    return Ok(false);
                }
                has_ellipsis = true;
            } else if !self.add(&part, shape)? {
                return Ok(false);
            }
        }
        Ok(self.add_rest(shape, 0))
    }

    /// Selects all of each dimension except the last `but` ones; returns false if that is no
    /// element.
    fn add_rest(&mut self, shape: &[u64], but: usize) -> bool {
        while self.rank + but < shape.len() {
            let length = shape[self.rank];
            if !self.add_slice(0, 1, length) {
                return false;
            }
        }
        true
    }

    /// Selects a part of the next dimension; returns false if the fallback path must.
    fn add(&mut self, part: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<bool> {
        let Some(&length) = shape.get(self.rank) else {
            return Ok(false);
        };
        let Ok(signed) = isize::try_from(length) else {
            return Ok(false);
        };
        // A bool is an int, too, but has another meaning as an index.
        if part.is_exact_instance_of::<PyInt>() {
            let Ok(index) = part.extract::<isize>() else {
                return Ok(false);
            };
            let is_inside = (-signed..signed).contains(&index);
            if is_inside {
                self.axes[self.rank] = Axis {
                    start: index.rem_euclid(signed) as u64,
                    step: 1,
                    count: 1,
                    ..Axis::default()
                };
                self.rank += 1;
            }
            return Ok(is_inside);
        }
        let Ok(slice) = part.cast_exact::<PySlice>() else {
            return self.add_list(part, length);
        };
        let indices = match slice.indices(signed) {
            Ok(indices) => indices,
            // The fallback path reports the error. Only KeyboardInterrupt and the like propagate.
            Err(error) if error.is_instance_of::<PyException>(part.py()) => return Ok(false),
            Err(error) => return Err(error),
        };
        if indices.step < 1 || indices.slicelength < 1 {
            return Ok(false);
        }
        // The step of a single index has no meaning.
        let count = indices.slicelength as u64;
        let step = if count > 1 { indices.step as u64 } else { 1 };
        Ok(self.add_slice(indices.start as u64, step, count))
    }

    /// Selects indices of the next dimension; returns false if the fallback path must.
    fn add_list(&mut self, part: &Bound<'_, PyAny>, length: u64) -> PyResult<bool> {
        if !self.list.is_empty() {
            return Ok(false);
        }
        let from_start = |index: i64| {
            let counted = if index < 0 {
                index.checked_add_unsigned(length)?
            } else {
                index
            };
            u64::try_from(counted).ok().filter(|at| *at < length)
        };
        let indices: Option<Vec<u64>> = if let Ok(items) = part.cast_exact::<PyList>() {
            let index = |item: Bound<'_, PyAny>| {
                if item.is_exact_instance_of::<PyInt>() {
                    from_start(item.extract().ok()?)
                } else {
                    None
                }
            };
            items.iter().map(index).collect()
        } else if part.get_type().is(PyUntypedArray::type_object(part.py()))
            && let Ok(items) = part.cast::<PyArray1<i64>>()
            && let Ok(items) = items.try_readonly()
            // Integers that are aligned and adjacent. A view of another array, such as a field of
            // packed records, may have them anywhere.
            && let Ok(items) = items.as_slice()
        {
            items.iter().map(|index| from_start(*index)).collect()
        } else {
            None
        };
        let Some(indices) = indices.filter(|indices| !indices.is_empty()) else {
            return Ok(false);
        };
        self.list = indices;
        let count = self.list.len() as u64;
        self.axes[self.rank] = Axis {
            count,
            indices: self.list.as_ptr(),
            ..Axis::default()
        };
        self.rank += 1;
        self.shape[self.dimensions] = count;
        self.dimensions += 1;
        Ok(true)
    }

    fn add_slice(&mut self, start: u64, step: u64, count: u64) -> bool {
        if count == 0 {
            return false;
        }
        self.axes[self.rank] = Axis {
            start,
            step,
            count,
            ..Axis::default()
        };
        self.rank += 1;
        self.shape[self.dimensions] = count;
        self.dimensions += 1;
        true
    }
}
