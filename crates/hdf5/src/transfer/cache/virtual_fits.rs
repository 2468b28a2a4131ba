//! What is known of the sources of open virtual datasets, for small reads that HDF5 carries out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_array::Selection;
use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use crate::transfer::hdf5_state::{drop_at_close, inside};
use crate::virtual_dataset::{Fits, refuse_misfits};

/// By the copy of HDF5 and the identifier of the dataset. HDF5 gives no identifier twice until it closes.
type Known = HashMap<(usize, hid_t), Arc<Mutex<Fits>>>;

static FITS: Mutex<Option<Known>> = Mutex::new(None);

/// Largest number of datasets.
const MOST: usize = 256;

fn known() -> MutexGuard<'static, Option<Known>> {
    FITS.lock().recover()
}

/// Returns whether HDF5 alone reads these elements of a virtual dataset as Penstock does: without it, `all` of them.
/// `false` also where that is not known. Faster than [`refuse_misread`] for a dataset that is read again.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn is_read_alike(
    hdf5: &'static Hdf5,
    dataset: hid_t,
    selection: Option<Selection>,
) -> Result<bool> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let key = (hdf5.copy(), dataset);
        let found = known().as_ref().and_then(|known| known.get(&key).cloned());
        let fits = match found {
            Some(fits) => fits,
            None => {
                let info = DatasetInfo::read(&session, dataset)?;
                if !drop_at_close(hdf5, &[forget_copy]) {
                    return Ok(false);
                }
                let new = Arc::new(Mutex::new(Fits::new(Arc::new(info))));
                let mut known = known();
                let known = known.get_or_insert_default();
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(key, Arc::clone(&new));
                new
            }
        };
        let mut fits = fits.lock().recover();
        let selection = selection.unwrap_or_else(|| Selection::all(fits.shape()));
        Ok(fits.is_for_hdf5(&session, dataset, &selection))
    })
}

/// Returns an error if HDF5 alone would read some of these elements of a virtual dataset from other places than its
/// mappings say. Without a selection, all are read.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn refuse_misread(
    hdf5: &'static Hdf5,
    dataset: hid_t,
    selection: Option<Selection>,
) -> Result<()> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let info = DatasetInfo::read(&session, dataset)?;
        let selection = selection.unwrap_or_else(|| Selection::all(&info.shape));
        if !matches!(info.layout, Layout::Virtual(_)) || selection.check(&info.shape).is_err() {
            return Ok(());
        }
        refuse_misfits(&session, dataset, &Arc::new(info), &selection)
    })
}

/// Drops what is known.
pub(super) fn forget() {
    let all = known().take();
    drop(all);
}

fn forget_copy(_: usize) {
    forget();
}
