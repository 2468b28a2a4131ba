//! Reads of many datasets as one request, in two steps: the first describes the datasets, so that the
//! caller can allocate memory for the second.

mod opener;
mod read;

use std::ffi::CStr;
use std::sync::Arc;

use penstock_array::ChunkTable;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::dataset::{Common, DatasetInfo, Layout};
use crate::library::{Id, Session};
use crate::transfer::cache::ChunkTables;
use crate::transfer::conflicts;
use crate::transfer::hdf5_state::inside;

use opener::Opener;
pub use read::DatasetPart;

/// A dataset to describe.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// A dataset that stays open until the description is dropped.
    Open(hid_t),
    /// A path from a file or a group, which stays open until the description is dropped.
    Named(hid_t, &'a CStr),
}

/// Descriptions of datasets that are read together. Nothing may change the datasets before they are
/// read. The thread that drops it may call HDF5.
pub struct Many {
    hdf5: &'static Hdf5,
    datasets: Vec<DescribedDataset>,
    /// HDF5's identifiers of the distinct element types.
    types: Vec<hid_t>,
    /// HDF5's identifiers of the files, whose descriptors are used.
    files: Vec<hid_t>,
}

/// A dataset that was described.
pub struct DescribedDataset {
    /// The description.
    pub info: DatasetInfo,
    /// The number of the element type: equal for datasets of equal types.
    pub element: usize,
    stored: Stored,
}

/// What a read needs besides the description.
enum Stored {
    /// The elements lie in one range, or in these chunks, of a file that is not written. If HDF5 must read
    /// the dataset, it is opened again.
    Known(Option<Arc<ChunkTable>>, Origin),
    /// The dataset, which is planned through HDF5 when it is read.
    Dataset {
        id: hid_t,
        /// Whether it is closed with the description.
        is_own: bool,
    },
}

/// How a dataset is opened again.
enum Origin {
    Open(hid_t),
    Named(hid_t, Box<CStr>),
}

/// Describes datasets.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn describe<'a>(
    hdf5: &'static Hdf5,
    wanted: impl Iterator<Item = Wanted<'a>>,
) -> Result<Many> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5, and no other thread calls it meanwhile.
        let session = unsafe { Session::begin(hdf5) };
        let mut many = Many {
            hdf5,
            datasets: Vec::with_capacity(wanted.size_hint().0),
            types: Vec::new(),
            files: Vec::new(),
        };
        let (mut opener, mut common) = (Opener::default(), Common::default());
        let mut tables = ChunkTables::default();
        // A pending operation may allocate storage.
        let is_idle = conflicts::is_idle();
        for one in wanted {
            let known = (&mut opener, &mut common, &mut tables);
            let described = described(&session, one, is_idle, known)?;
            many.datasets.push(described);
        }
        (many.types, many.files) = common.keep();
        Ok(many)
    })
}

fn described(
    session: &Session<'_>,
    wanted: Wanted<'_>,
    is_idle: bool,
    (opener, common, tables): (&mut Opener, &mut Common, &mut ChunkTables),
) -> Result<DescribedDataset> {
    let (id, opened, name) = match wanted {
        Wanted::Open(id) => (id, None, None),
        Wanted::Named(place, path) => {
            let (opened, name) = opener.open(session, place, path)?;
            (opened.get(), Some(opened), Some(name))
        }
    };
    let (info, element) = DatasetInfo::read_among(session, id, name, common)?;
    // HDF5 may read the parts of a dataset faster than it lists a huge index.
    let is_listed = !info.has_huge_index() || tables.know(session, id);
    let is_known = is_idle && is_known(&info) && is_listed;
    let table = match info.layout {
        Layout::Chunked { .. } if is_known => Some(tables.of(session, id, &info)?),
        _ => None,
    };
    let stored = if is_known && info.only_hdf5_fills(table.as_deref()).is_none() {
        let origin = match wanted {
            Wanted::Open(id) => Origin::Open(id),
            Wanted::Named(place, path) => Origin::Named(place, path.into()),
        };
        Stored::Known(table, origin)
    } else {
        let is_own = opened.map(Id::keep).is_some();
        Stored::Dataset { id, is_own }
    };
    Ok(DescribedDataset {
        info,
        element,
        stored,
    })
}

/// Returns whether a description has all that a later read needs.
fn is_known(info: &DatasetInfo) -> bool {
    let file = &info.file;
    !file.may_end_early()
        && file.is_plain
        && file.descriptor.is_some()
        && info.layout.elsewhere().is_none()
        && info.only_hdf5_filters().is_none()
}

impl Many {
    /// Returns the descriptions, in the order in which the datasets were given.
    pub fn datasets(&self) -> &[DescribedDataset] {
        &self.datasets
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        let own = self
            .datasets
            .iter()
            .filter_map(|dataset| match dataset.stored {
                Stored::Dataset { id, is_own: true } => Some(id),
                _ => None,
            });
        let hdf5 = self.hdf5;
        inside(hdf5, || {
            // SAFETY: the thread that drops the descriptions may call HDF5; the identifiers are owned.
            unsafe {
                let _session = Session::begin(hdf5);
                own.for_each(|id| _ = (hdf5.H5Oclose)(id));
                self.types.iter().for_each(|id| _ = (hdf5.H5Tclose)(*id));
                self.files.iter().for_each(|id| _ = (hdf5.H5Fclose)(*id));
            }
        });
    }
}
