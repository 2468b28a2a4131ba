//! What a property list that HDF5 makes of an open file says of the driver: the file's settings. HDF5
//! opens the files of external links and of virtual datasets with such a list, which has no
//! configuration of its own.
//!
//! HDF5 compares what it is given byte by byte, which a `Settings` with its padding cannot be. So it
//! is given the settings' number.

use std::sync::Mutex;

use crate::settings::Settings;

/// How long HDF5 takes the information to be.
pub(crate) const SIZE: usize = size_of::<usize>();

/// All settings that a list was asked for; programs have few. Equal ones have one number.
static KNOWN: Mutex<Vec<Settings>> = Mutex::new(Vec::new());

/// The number of some settings.
pub(crate) fn number_of(settings: Settings) -> usize {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    match known.iter().position(|other| *other == settings) {
        Some(number) => number,
        None => {
            known.push(settings);
            known.len() - 1
        }
    }
}

/// The settings of a number that [`number_of`] gave.
pub(crate) fn settings_of(number: usize) -> Option<Settings> {
    let known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    known.get(number).copied()
}
