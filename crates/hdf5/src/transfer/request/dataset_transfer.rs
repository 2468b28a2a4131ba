//! A transfer as the caller describes it, and its selections in file and memory.

use std::sync::Arc;

use penstock_array::{MemoryLayout, MemorySide, MemorySize, Selection, match_selections};
use penstock_codec::convert::DecodeRules;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use crate::dataset::{DatasetInfo, dataspace};
use crate::library::Session;

/// The layout of the elements in memory.
#[derive(Clone, Copy, Debug)]
pub enum MemoryShape<'a> {
    /// An array of the selection's shape, except for dimensions of length 1.
    Array {
        /// Shape.
        shape: &'a [u64],
        /// Bytes from one element to the next along each dimension; `None` for C order.
        strides: Option<&'a [i64]>,
    },
    /// The selection of a dataspace over a C array, as in H5Dread.
    Space(hid_t),
}

/// The elements of the dataset that a transfer moves.
#[derive(Clone, Copy, Debug)]
pub enum FileSelection<'a> {
    /// `H5S_ALL`, or the selection of a dataspace of the dataset's shape.
    Space(hid_t),
    /// A selection as plain data. It becomes a dataspace only if HDF5 must carry out the transfer. If an
    /// element is written more than once, it gets the last value.
    Elements(&'a Selection),
}

/// The part of a dataset that is read, or all, and the shape and strides of the memory.
pub type ReadShape<'a> = (Option<&'a Selection>, &'a [u64], Option<&'a [i64]>);

/// For a reader, instead of a type in memory: that of the dataset, whose elements are numbers of the
/// machine.
pub const OWN_TYPE: hid_t = 0;

/// A transfer between a dataset and memory, as the caller describes it.
#[derive(Clone, Copy, Debug)]
pub struct DatasetTransfer<'a> {
    /// Direction.
    pub operation: Operation,
    /// Dataset.
    pub dataset: hid_t,
    /// Type of an element in memory.
    pub memory_type: hid_t,
    /// How a read decodes packed numbers to that type; `None` to convert them by HDF5's rules.
    pub decode: Option<DecodeRules>,
    /// Layout of the elements in memory.
    pub shape: MemoryShape<'a>,
    /// What is selected of the dataset.
    pub file_selection: FileSelection<'a>,
    /// Transfer property list; 0 for the default.
    pub transfer_list: hid_t,
    /// Options of the call.
    pub options: Options,
    /// The dataset's file, if the caller has opened it with the access that HDF5 has.
    pub file: Option<&'a Arc<File>>,
}

impl DatasetTransfer<'_> {
    /// Returns the size of an element in memory.
    pub fn memory_size(&self, session: &Session<'_>) -> Result<MemorySize> {
        // SAFETY: takes an identifier, which HDF5 checks.
        match unsafe { (session.hdf5.H5Tget_size)(self.memory_type) } {
            0 => Err(session.failed("get the size of the memory type")),
            size => Ok(MemorySize(size as u64)),
        }
    }

    /// Returns whether the file dataspace has another shape than the dataset, for instance one from before
    /// the extent changed. HDF5 and the connector apply HDF5's rules to it; all other callers refuse it.
    pub(crate) fn is_of_another_shape(
        &self,
        session: &Session<'_>,
        info: &DatasetInfo,
    ) -> Result<bool> {
        Ok(match self.file_selection {
            FileSelection::Space(H5S_ALL) | FileSelection::Elements(_) => false,
            FileSelection::Space(space) => dataspace::extent(session, space)?.0 != info.shape,
        })
    }

    /// Returns the selected elements of the dataset, and the memory for them.
    pub(crate) fn selections(
        &self,
        session: &Session<'_>,
        info: &DatasetInfo,
        element: MemorySize,
    ) -> Result<(Selection, MemorySide)> {
        let selection = self.file_selection(session, info)?;
        match self.shape {
            MemoryShape::Array { shape, strides } => {
                let memory = MemorySide::of_array(&selection, shape, strides, element)?;
                Ok((selection, memory))
            }
            MemoryShape::Space(H5S_ALL)
                if matches!(self.file_selection, FileSelection::Space(H5S_ALL)) =>
            {
                let layout = MemoryLayout::dense(&info.shape, element)?;
                Ok((selection, MemorySide::from_start(layout)))
            }
            MemoryShape::Space(space) => {
                // H5S_ALL of a null dataspace selects no element.
                let selection = if info.is_null {
                    Selection::none()
                } else {
                    selection
                };
                let (memory, shape) = memory_selection(session, space, (&selection, &info.shape))?;
                let (selection, layout) =
                    match_selections(&selection, &info.shape, &memory, &shape, element)?;
                Ok((selection, MemorySide::from_start(layout)))
            }
        }
    }

    pub(crate) fn file_selection(
        &self,
        session: &Session<'_>,
        info: &DatasetInfo,
    ) -> Result<Selection> {
        let shape = &info.shape;
        match self.file_selection {
            // All of the dataset, whatever is selected in memory.
            FileSelection::Space(H5S_ALL) => Ok(Selection::all(shape)),
            FileSelection::Elements(selection) => {
                selection.check(shape)?;
                match self.operation {
                    Operation::Read => Ok(selection.clone()),
                    Operation::Write if selection.has_common_positions() => {
                        let cause = "two runs of elements to write overlap in the array";
                        let remedy = "pass runs whose positions in the array differ";
                        Err(info.name_in(Error::invalid(cause).remedy(remedy)))
                    }
                    Operation::Write => selection.clone().without_repeats(),
                }
            }
            FileSelection::Space(space) => {
                let (of_space, _) = dataspace::extent(session, space)?;
                if of_space != *shape {
                    return Err(Error::invalid(format!(
                        "the selection is for shape {of_space:?}; the dataset has shape {shape:?}"
                    )));
                }
                // An array for a dataset without elements has its shape, that of a scalar.
                if info.is_null {
                    Ok(Selection::all(shape))
                } else {
                    dataspace::selection(session, space)
                }
            }
        }
    }
}

/// Returns the selection of a dataspace in memory, and its shape. As in H5Dread, `H5S_ALL` means the
/// dataspace of the file.
pub(crate) fn memory_selection(
    session: &Session<'_>,
    space: hid_t,
    (selection, shape): (&Selection, &[u64]),
) -> Result<(Selection, Vec<u64>)> {
    if space == H5S_ALL {
        return Ok((selection.clone(), shape.to_vec()));
    }
    let selection = dataspace::selection(session, space)?;
    Ok((selection, dataspace::extent(session, space)?.0))
}
