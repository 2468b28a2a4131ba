//! The driver information in a property list that HDF5 makes of an open file: the file's settings.
//! HDF5 opens external links and sources of virtual datasets with such a list, which has no
//! configuration string.
//!
//! HDF5 compares this information byte by byte, but the padding of `Settings` has no defined value.
//! The information is therefore an index into a table of settings.

use std::sync::Mutex;

use penstock_engine::Recover;

use crate::settings::Settings;

/// Size of the information in bytes.
pub(crate) const SIZE: usize = size_of::<usize>();

/// All settings that were put into a list; programs have few. Equal settings have the same index.
static KNOWN: Mutex<Vec<Settings>> = Mutex::new(Vec::new());

/// Returns the index of the settings in the table, and adds them if they are new.
pub(crate) fn number_of(settings: Settings) -> usize {
    let mut known = KNOWN.lock().recover();
    match known.iter().position(|other| *other == settings) {
        Some(number) => number,
        None => {
            known.push(settings);
            known.len() - 1
        }
    }
}

/// Returns the settings at an index that [`number_of`] returned.
pub(crate) fn settings_of(number: usize) -> Option<Settings> {
    let known = KNOWN.lock().recover();
    known.get(number).copied()
}
