//! Parses the argument of `dataset[...]`: the elements that it selects, in NumPy's order.
//!
//! What h5py accepts means here what it means there; several lists mean what they mean to NumPy.

use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyException, PyIndexError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyEllipsis, PyInt, PyList, PyRange, PySlice, PyTuple, PyType};

use crate::structs::{CAxis, CSelection};

/// HDF5's limit.
const MOST_DIMENSIONS: usize = 32;

/// The most single elements of a selection, each of which takes 8 bytes a dimension.
const MOST_POINTS: u64 = 1 << 28;

/// Elements of a dataset: all combinations of the indices of its axes, or single elements.
///
/// Attributes:
///     shape: The shape of the result.
///     index: The same elements by an integer, slice or array for each dimension; `None` for points.
///     points: The indices of single elements, one row each, in the order of the result; or `None`.
///     lengths: The lengths of the axes that are not integers, in the order of the dataset; for points,
///         the shape of the result.
///     order: The dimension of the result to which each of these axes belongs; `None` if they are in
///         the order of the dataset.
///     is_regular: Whether only integers and slices select the elements.
///     is_grid: Whether each dimension of the result is an axis.
///     selection: The address of a `penstock_selection`, which is valid as long as this object.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Elements {
    axes: Vec<CAxis>,
    /// A bit for each axis that an integer selects.
    integers: u32,
    lists: Vec<List>,
    shape: Vec<u64>,
    order: Option<Vec<usize>>,
    points: Option<Vec<u64>>,
    /// The number of axes before the ellipsis.
    ellipsis: usize,
    /// An index outside a dimension, and the dimension's length.
    outside: Option<(i128, u64)>,
    pub(crate) selection: CSelection,
}

/// The indices of one axis.
struct List {
    axis: usize,
    indices: Vec<u64>,
    shape: Vec<usize>,
}

/// Why an index is not parsed.
enum Refusal {
    /// h5py has to interpret or refuse it.
    Fallback,
    Error(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Refusal {
        Refusal::Error(error)
    }
}

type Parsed<T> = Result<T, Refusal>;

/// Return the elements that an index selects of a dataset of this shape.
///
/// `None` for an index that h5py has to interpret or refuse.
///
/// Raises:
///     IndexError: An index of a list is outside the dataset, or lists cannot be broadcast together.
///     OutOfMemoryError: Too many single elements are selected.
#[pyfunction]
pub(crate) fn elements(shape: Vec<u64>, index: &Bound<'_, PyAny>) -> PyResult<Option<Elements>> {
    Elements::parse(index, &shape)
}

impl Elements {
    /// Parses an index of a dataset of this shape. Returns `None` for an index that h5py has to
    /// interpret or refuse.
    pub(crate) fn parse(index: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<Option<Elements>> {
        let mut made = Elements {
            axes: Vec::with_capacity(shape.len()),
            integers: 0,
            lists: Vec::new(),
            shape: Vec::with_capacity(shape.len()),
            order: None,
            points: None,
            ellipsis: 0,
            outside: None,
            selection: CSelection::default(),
        };
        let parsed = made.add_all(index, shape);
        match parsed.and_then(|()| made.combine(index.py())) {
            Ok(()) => Ok(Some(made)),
            Err(Refusal::Fallback) => Ok(None),
            Err(Refusal::Error(error)) => Err(error),
        }
    }

    /// Returns the length of each dimension of the result.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of selected elements; `None` if it is beyond 64 bits.
    pub(crate) fn count(&self) -> Option<u64> {
        self.shape.iter().copied().try_fold(1, u64::checked_mul)
    }

    /// Returns whether integers, slices and at most one list of one dimension select the elements.
    pub(crate) fn is_plain(&self) -> bool {
        self.lists.len() <= 1 && self.is_grid()
    }

    fn add_all(&mut self, index: &Bound<'_, PyAny>, shape: &[u64]) -> Parsed<()> {
        if shape.len() > MOST_DIMENSIONS {
            return Err(Refusal::Fallback);
        }
        if let Ok(parts) = index.cast::<PyTuple>() {
            let mut has_ellipsis = false;
            for (number, part) in parts.iter_borrowed().enumerate() {
                if !part.is_instance_of::<PyEllipsis>() {
                    self.add(&part, shape)?;
                    continue;
                }
                if has_ellipsis {
                    return Err(Refusal::Fallback);
                }
                has_ellipsis = true;
                self.ellipsis = self.axes.len();
                let after = parts.iter_borrowed().skip(number + 1);
                let after = after.map(|part| dimensions(&part)).sum::<Parsed<usize>>()?;
                self.add_rest(&shape[..shape.len().saturating_sub(after)]);
            }
        } else if !index.is_instance_of::<PyEllipsis>() {
            self.add(index, shape)?;
        }
        self.add_rest(shape);
        Ok(())
    }

    /// Adds all of each further dimension.
    fn add_rest(&mut self, shape: &[u64]) {
        for length in shape.iter().skip(self.axes.len()) {
            self.axes.push(CAxis::strided(0, 1, *length));
        }
    }

    /// Adds what an index other than an ellipsis selects of the next dimensions.
    fn add(&mut self, part: &Bound<'_, PyAny>, shape: &[u64]) -> Parsed<()> {
        let at = self.axes.len();
        let length = *shape.get(at).ok_or(Refusal::Fallback)?;
        let signed = isize::try_from(length).map_err(|_| Refusal::Fallback)?;
        if part.is_exact_instance_of::<PyInt>() {
            return self.add_integer(part, signed);
        }
        if let Ok(slice) = part.cast_exact::<PySlice>() {
            return self.add_slice(slice, signed);
        }
        if let Ok(items) = part.cast_exact::<PyList>() {
            let integer = |item: Bound<'_, PyAny>| {
                let is_integer = item.is_exact_instance_of::<PyInt>();
                is_integer.then(|| item.extract::<i64>().ok()).flatten()
            };
            if let Some(values) = items.iter().map(integer).collect::<Option<Vec<_>>>() {
                self.add_list(&values, length, vec![values.len()]);
                return Ok(());
            }
        }
        let Some(array) = as_array(part)? else {
            return self.add_integer(part, signed);
        };
        let sides = array.shape().to_vec();
        if kind(&array) == b'b' {
            let is_shape =
                |part: &[u64]| part.iter().map(|n| *n as usize).eq(sides.iter().copied());
            if !shape.get(at..at + sides.len()).is_some_and(is_shape) {
                return Err(Refusal::Fallback);
            }
            let found = array.call_method0("nonzero")?;
            for (side, length) in found
                .cast::<PyTuple>()
                .map_err(PyErr::from)?
                .iter()
                .zip(&shape[at..])
            {
                let side = integers::<i64>(&side, "int64")?;
                self.add_list(&side, *length, vec![side.len()]);
            }
        } else if kind(&array) == b'u' {
            self.add_list(&integers::<u64>(&array, "uint64")?, length, sides);
        } else {
            self.add_list(&integers::<i64>(&array, "int64")?, length, sides);
        }
        Ok(())
    }

    fn add_integer(&mut self, part: &Bound<'_, PyAny>, length: isize) -> Parsed<()> {
        let index = part.extract::<isize>().map_err(|_| Refusal::Fallback)?;
        if !(-length..length).contains(&index) {
            return Err(Refusal::Fallback);
        }
        self.integers |= 1 << self.axes.len();
        let start = index.rem_euclid(length) as u64;
        self.axes.push(CAxis::strided(start, 1, 1));
        Ok(())
    }

    fn add_slice(&mut self, slice: &Bound<'_, PySlice>, length: isize) -> Parsed<()> {
        let indices = match slice.indices(length) {
            Ok(indices) if indices.step > 0 => indices,
            // The fallback path reports the error. Only KeyboardInterrupt and the like propagate.
            Err(error) if !error.is_instance_of::<PyException>(slice.py()) => {
                return Err(error.into());
            }
            _ => return Err(Refusal::Fallback),
        };
        let count = indices.slicelength as u64;
        // The step of a single index has no meaning.
        let step = if count > 1 { indices.step as u64 } else { 1 };
        self.axes
            .push(CAxis::strided(indices.start as u64, step, count));
        Ok(())
    }

    fn add_list<T: Copy + Into<i128>>(&mut self, values: &[T], length: u64, shape: Vec<usize>) {
        let values = values.iter().map(|value| (*value).into());
        let size = i128::from(length);
        let above = values.clone().max().filter(|most| *most >= size);
        let outside = above.or_else(|| values.clone().min().filter(|least| *least < -size));
        if let Some(index) = outside {
            self.outside = Some((index, length));
        }
        let from_start = |value: i128| if value < 0 { value + size } else { value };
        let indices: Vec<u64> = values.map(|value| from_start(value) as u64).collect();
        let axis = self.axes.len();
        self.axes.push(CAxis::list(&indices));
        self.lists.push(List {
            axis,
            indices,
            shape,
        });
    }

    /// Returns the list of an axis; `None` for an integer or a slice.
    fn list(&self, axis: usize) -> Option<&List> {
        self.lists.iter().find(|list| list.axis == axis)
    }

    fn is_integer(&self, axis: usize) -> bool {
        self.integers >> axis & 1 != 0
    }

    /// Returns the slices, with their numbers among the axes.
    fn slices(&self) -> impl Iterator<Item = (usize, &CAxis)> {
        let is_slice = |axis: usize| !self.is_integer(axis) && self.list(axis).is_none();
        self.axes
            .iter()
            .enumerate()
            .filter(move |(axis, _)| is_slice(*axis))
    }

    /// Combines the axes to the result.
    fn combine(&mut self, py: Python<'_>) -> Parsed<()> {
        let sides = self.lists.iter().map(|list| list.shape.as_slice());
        let is_several = self.lists.len() > 1;
        let common = is_several.then(|| broadcast(sides.clone())).flatten();
        if let Some((index, length)) = self.outside {
            if self.slices().any(|(_, axis)| axis.count == 0) {
                return Err(Refusal::Fallback); // h5py ignores a list of which nothing is read
            }
            // NumPy ignores lists that are broadcast to no index.
            let is_nothing = common.as_ref().is_some_and(|common| common.contains(&0));
            if !is_nothing {
                let text = format!("index {index} is outside a dimension of size {length}");
                return Err(PyIndexError::new_err(text).into());
            }
        }
        if is_several {
            let Some(common) = common else {
                let shapes = sides.map(|side| Ok(PyTuple::new(py, side)?.to_string()));
                let shapes = shapes.collect::<PyResult<Vec<_>>>()?.join(", ");
                let text = format!("lists of the shapes {shapes} cannot be broadcast together");
                return Err(PyIndexError::new_err(text).into());
            };
            self.combine_lists(py, &common)?;
        } else {
            for (number, axis) in self.axes.iter().enumerate() {
                match self.lists.first().filter(|list| list.axis == number) {
                    Some(list) => self.shape.extend(list.shape.iter().map(|n| *n as u64)),
                    None if self.is_integer(number) => (),
                    None => self.shape.push(axis.count),
                }
            }
        }
        self.selection = match &self.points {
            Some(points) => CSelection::points(self.axes.len(), points),
            None => CSelection::axes(&self.axes),
        };
        Ok(())
    }

    /// Combines several lists, which NumPy broadcasts to each other.
    ///
    /// Their dimensions stay where the lists are if only integers are between them, and else come
    /// first. An ellipsis separates them even if it covers no dimension.
    fn combine_lists(&mut self, py: Python<'_>, common: &[usize]) -> PyResult<()> {
        let is_advanced = |axis: &usize| self.is_integer(*axis) || self.list(*axis).is_some();
        let advanced: Vec<usize> = (0..self.axes.len()).filter(is_advanced).collect();
        let (first, last) = (advanced[0], advanced[advanced.len() - 1]);
        let is_separated = first < self.ellipsis && self.ellipsis <= last;
        let is_adjacent = last - first + 1 == advanced.len() && !is_separated;
        let before = if is_adjacent { first } else { 0 };
        let after = before + common.len();
        let mut shape: Vec<u64> = self.slices().map(|(_, axis)| axis.count).collect();
        shape.splice(before..before, common.iter().map(|n| *n as u64));
        self.shape = shape;
        let mut of_slices = (0..before).chain(after..self.shape.len());
        let is_mesh = self.lists.iter().enumerate().all(|(number, list)| {
            let mut sides = list.shape.iter().enumerate();
            list.shape.len() == self.lists.len() && sides.all(|(d, n)| *n == 1 || d == number)
        });
        if is_mesh {
            // Every combination of the lists is selected, as by `numpy.ix_`.
            let mut of_lists = before..after;
            let kept = (0..self.axes.len()).filter(|axis| !self.is_integer(*axis));
            let order: Option<Vec<usize>> = kept
                .map(|axis| match self.list(axis) {
                    Some(_) => of_lists.next(),
                    None => of_slices.next(),
                })
                .collect();
            self.order = order.filter(|order| !order.is_sorted());
            return Ok(());
        }
        // How far the position in each axis moves along each dimension of the result.
        let mut steps = vec![vec![0; self.shape.len()]; self.axes.len()];
        for (axis, dimension) in self.slices().map(|(axis, _)| axis).zip(of_slices) {
            steps[axis][dimension] = 1;
        }
        for list in &self.lists {
            let mut step = 1;
            for (dimension, length) in (0..after).rev().zip(list.shape.iter().rev()) {
                steps[list.axis][dimension] = if *length == 1 { 0 } else { step };
                step *= length;
            }
        }
        self.points = Some(self.points(py, &steps)?);
        Ok(())
    }

    fn points(&self, py: Python<'_>, steps: &[Vec<usize>]) -> PyResult<Vec<u64>> {
        let total = self.count().filter(|count| *count <= MOST_POINTS);
        let Some(total) = total else {
            let lengths = self.shape.iter().map(|n| *n as f64);
            let count = self.count().map_or_else(
                || format!("{:e}", lengths.product::<f64>()),
                |count| count.to_string(),
            );
            let keys = PyDict::new(py);
            keys.set_item(
                "remedy",
                "read the elements in parts, or as a product: numpy.ix_",
            )?;
            let class = py.import("penstock.errors")?.getattr("OutOfMemoryError")?;
            let text = format!("the lists select {count} single elements");
            return Err(PyErr::from_value(class.call((text,), Some(&keys))?));
        };
        let lists: Vec<_> = (0..self.axes.len()).map(|axis| self.list(axis)).collect();
        let mut points = Vec::new();
        points
            .try_reserve_exact(total as usize * self.axes.len())
            .map_err(|_| PyMemoryError::new_err("no memory for the selected points"))?;
        let mut at = vec![0; self.shape.len()];
        let mut positions = vec![0; self.axes.len()];
        for _ in 0..total {
            for ((axis, list), position) in self.axes.iter().zip(&lists).zip(&positions) {
                points.push(match list {
                    Some(list) => list.indices[*position],
                    None => axis.start + axis.step * *position as u64,
                });
            }
            for (dimension, length) in self.shape.iter().enumerate().rev() {
                at[dimension] += 1;
                let is_over = at[dimension] == *length;
                for (position, steps) in positions.iter_mut().zip(steps) {
                    *position += steps[dimension];
                    *position -= if is_over {
                        steps[dimension] * *length as usize
                    } else {
                        0
                    };
                }
                if !is_over {
                    break;
                }
                at[dimension] = 0;
            }
        }
        Ok(points)
    }
}

#[pymethods]
impl Elements {
    #[getter(shape)]
    fn shape_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.points.is_some() {
            return PyTuple::new(py, &self.shape);
        }
        let axes = self.axes.iter().enumerate();
        let kept = axes.filter(|(number, _)| !self.is_integer(*number));
        PyTuple::new(py, kept.map(|(_, axis)| axis.count).collect::<Vec<_>>())
    }

    #[getter]
    fn order<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let order = self.order.as_ref();
        order.map(|order| PyTuple::new(py, order)).transpose()
    }

    #[getter(points)]
    fn points_array<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let points = self.points.as_ref();
        let rows = points.map(|points| {
            let flat = PyArray1::from_slice(py, points);
            flat.call_method1("reshape", (points.len() / self.axes.len(), self.axes.len()))
        });
        rows.transpose()
    }

    #[getter]
    fn index<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.points.is_some() {
            return Ok(None);
        }
        let of_axis = |(number, axis): (usize, &CAxis)| -> PyResult<Bound<'py, PyAny>> {
            let (start, step) = (axis.start as isize, axis.step as isize);
            if let Some(list) = self.list(number) {
                Ok(PyArray1::from_slice(py, &list.indices).into_any())
            } else if self.is_integer(number) {
                Ok(axis.start.into_pyobject(py)?.into_any())
            } else {
                let last = start + step * (axis.count as isize - 1);
                let stop = if axis.count == 0 { start } else { last + 1 };
                Ok(PySlice::new(py, start, stop, step).into_any())
            }
        };
        let parts = self.axes.iter().enumerate().map(of_axis);
        PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    #[getter]
    fn is_regular(&self) -> bool {
        self.lists.is_empty()
    }

    #[getter]
    fn is_grid(&self) -> bool {
        let is_flat = self.lists.len() == 1 && self.lists[0].shape.len() != 1;
        self.points.is_none() && !is_flat
    }

    #[getter(selection)]
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.selection).expose_provenance()
    }

    /// Return the number of elements between the first and the last index of each dimension.
    fn span(&self, shape: Vec<u64>) -> u128 {
        let spans = self
            .axes
            .iter()
            .zip(&shape)
            .enumerate()
            .map(|(number, (axis, length))| {
                let is_whole =
                    self.points.is_some() || self.list(number).is_some() || axis.count == 0;
                u128::from(if is_whole {
                    *length
                } else {
                    axis.last() - axis.start + 1
                })
            });
        spans.fold(1, u128::saturating_mul)
    }

    /// Return how many chunks of this shape have elements that slices and integers select.
    fn chunks(&self, chunk: Vec<u64>) -> u128 {
        let of_axes = self.axes.iter().zip(&chunk).map(|(axis, n)| {
            let between = |axis: &CAxis| axis.last() / n - axis.start / n + 1;
            u128::from(if axis.count == 0 {
                0
            } else {
                axis.count.min(between(axis))
            })
        });
        of_axes.fold(1, u128::saturating_mul)
    }
}

impl Elements {
    /// Returns whether the selected elements are contiguous in a dataset of this shape.
    pub(crate) fn is_one_run(&self, shape: &[u64]) -> bool {
        // Dimensions from here on are whole.
        let mut is_rest_whole = true;
        self.lists.is_empty()
            && self.axes.iter().zip(shape).rev().all(|(axis, length)| {
                let follows = axis.count == 1 || is_rest_whole && axis.step == 1;
                is_rest_whole &= axis.count == *length;
                follows
            })
    }
}

/// Returns the shape to which NumPy broadcasts arrays of these shapes; `None` if it cannot.
fn broadcast<'a>(shapes: impl Iterator<Item = &'a [usize]> + Clone) -> Option<Vec<usize>> {
    let dimensions = shapes.clone().map(<[usize]>::len).max().unwrap_or(0);
    let mut common = vec![1; dimensions];
    for shape in shapes {
        for (length, n) in common.iter_mut().rev().zip(shape.iter().rev()) {
            if *length == 1 {
                *length = *n;
            } else if *n != 1 && n != length {
                return None;
            }
        }
    }
    Some(common)
}

fn kind(array: &Bound<'_, PyUntypedArray>) -> u8 {
    array.dtype().kind()
}

/// Returns how many dimensions an index is for.
fn dimensions(part: &Bound<'_, PyAny>) -> Parsed<usize> {
    if part.is_exact_instance_of::<PyInt>() || part.is_exact_instance_of::<PySlice>() {
        return Ok(1);
    }
    let array = as_array(part)?;
    let mask = array.filter(|array| kind(array) == b'b');
    Ok(mask.map_or(1, |mask| mask.ndim()))
}

/// Returns a list or an array as an array of integers or bools; `None` for a single integer.
fn as_array<'py>(part: &Bound<'py, PyAny>) -> Parsed<Option<Bound<'py, PyUntypedArray>>> {
    static INTEGER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static GENERIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = part.py();
    let is_sequence = part.is_instance_of::<PyList>()
        || part.is_instance_of::<PyTuple>()
        || part.is_instance_of::<PyRange>();
    let array = if let Ok(array) = part.cast_exact::<PyUntypedArray>() {
        array.clone()
    } else {
        let is_bool = part.is_instance_of::<PyBool>();
        let is_integer = part.is_instance_of::<PyInt>()
            || part.is_instance(INTEGER.import(py, "numpy", "integer")?)?;
        if is_integer && !is_bool {
            return Ok(None);
        }
        let is_scalar = part.is_instance(GENERIC.import(py, "numpy", "generic")?)?;
        if !is_sequence && (is_bool || is_scalar || !part.hasattr("__array__")?) {
            return Err(Refusal::Fallback);
        }
        let made = py.import("numpy")?.call_method1("asarray", (part,));
        let made = made.map_err(|error| {
            // As for lists of several lengths.
            let is_ours = error.is_instance_of::<PyTypeError>(py);
            if is_ours || error.is_instance_of::<PyValueError>(py) {
                Refusal::Fallback
            } else {
                error.into()
            }
        })?;
        made.cast_into::<PyUntypedArray>()
            .map_err(|_| Refusal::Fallback)?
    };
    match kind(&array) {
        b'i' | b'u' if array.ndim() == 0 => Ok(None),
        b'b' | b'i' | b'u' if array.ndim() > 0 => Ok(Some(array)),
        _ if is_sequence && array.len() == 0 => {
            let empty = array.call_method1("astype", ("int64",))?;
            Ok(empty.cast_into().ok())
        }
        _ => Err(Refusal::Fallback),
    }
}

/// Returns the elements of an array in C order.
fn integers<T: Element + Copy>(array: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Vec<T>> {
    // A view of another array, such as a field of packed records, may have them anywhere.
    if let Ok(array) = array.cast::<PyArray1<T>>()
        && let Ok(array) = array.try_readonly()
        && let Ok(items) = array.as_slice()
    {
        return Ok(items.to_vec());
    }
    let array = array
        .call_method1("astype", (dtype,))?
        .call_method0("ravel")?;
    let array = array.cast_into::<PyArray1<T>>().map_err(PyErr::from)?;
    Ok(array
        .try_readonly()
        .map_err(PyErr::from)?
        .as_slice()?
        .to_vec())
}
