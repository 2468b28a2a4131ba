//! What the settings of a file, and the environment that other connectors of this kind know, say
//! about operations in the background.

use std::env;
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use penstock_engine::error::{Error, Result};
use penstock_engine::options::Options;

use super::budget::usual_limit;
use super::journal::{Journal, Manner};
use crate::settings::{Copies, Settings};
use penstock_hdf5::transfer::conflicts::Failures;

/// When what was submitted begins, unless it is waited for before: at once, or when its dataset, its
/// group or its file is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    Now,
    DatasetClose,
    GroupClose,
    FileClose,
}

/// Read once, when a file is opened.
pub struct Policy {
    settings: Arc<Settings>,
    pub begins: Begins,
    /// How long after its call it begins at the earliest, if at once.
    pub delay: Option<Duration>,
    /// Bytes that copies may take.
    limit: OnceLock<u64>,
    journal: Option<Journal>,
    /// Of operations without a request.
    pub failures: Arc<Failures>,
}

impl Policy {
    pub fn of(settings: &Arc<Settings>) -> Result<Policy> {
        let journal = settings.log.as_deref().map(Journal::open).transpose()?;
        let named = match settings.max_memory {
            Some(bytes) => Some(bytes),
            None => megabytes(env::var("HDF5_ASYNC_MAX_MEM_MB").ok().as_deref())?,
        };
        Ok(Policy {
            settings: Arc::clone(settings),
            begins: begins(|name| env::var(name).ok()),
            delay: delay(env::var("HDF5_ASYNC_DELAY_MICROSECOND").ok().as_deref()),
            limit: named.map_or_else(OnceLock::new, OnceLock::from),
            journal,
            failures: Arc::default(),
        })
    }

    /// Tells how a call went, where somebody wants to know.
    pub fn tell(&self, call: &CStr, manner: Manner, bytes: u64, why: &str) {
        if let Some(journal) = &self.journal {
            journal.tell(call, manner, bytes, why);
        }
    }

    /// Whether what goes on begins some time after its call.
    pub fn waits(&self) -> bool {
        self.begins != Begins::Now || self.delay.is_some()
    }

    pub fn limit(&self) -> u64 {
        *self.limit.get_or_init(usual_limit)
    }

    pub fn options(&self) -> Options {
        self.settings.options
    }

    pub fn is_implicit(&self) -> bool {
        self.settings.implicit
    }

    /// Whether writes that go on take a copy of what they write.
    pub fn copies(&self) -> bool {
        self.settings.copies != Copies::Never
    }
}

fn megabytes(text: Option<&str>) -> Result<Option<u64>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let bytes = text
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << 20));
    bytes.map(Some).ok_or_else(|| {
        Error::invalid(format!(
            "HDF5_ASYNC_MAX_MEM_MB is no number of MiB: {text:?}"
        ))
        .remedy("correct the environment variable HDF5_ASYNC_MAX_MEM_MB")
    })
}

fn delay(text: Option<&str>) -> Option<Duration> {
    let micros: u64 = text?.trim().parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn begins(variable: impl Fn(&str) -> Option<String>) -> Begins {
    let number = |text: String| text.trim().parse::<i64>().ok();
    let is_set = |name: &str| variable(name).and_then(number).is_some_and(|n| n > 0);
    if is_set("HDF5_ASYNC_EXE_FCLOSE") {
        Begins::FileClose
    } else if is_set("HDF5_ASYNC_EXE_GCLOSE") {
        Begins::GroupClose
    } else if is_set("HDF5_ASYNC_EXE_DCLOSE") {
        Begins::DatasetClose
    } else {
        Begins::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_the_environment_say_when_operations_begin() {
        let only = |set: &'static str, value: &'static str| {
            begins(move |name| (name == set).then(|| value.to_owned()))
        };
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", "1"), Begins::FileClose);
        assert_eq!(only("HDF5_ASYNC_EXE_GCLOSE", "1"), Begins::GroupClose);
        assert_eq!(only("HDF5_ASYNC_EXE_DCLOSE", "1"), Begins::DatasetClose);
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", "0"), Begins::Now);
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", ""), Begins::Now);
        assert_eq!(only("HDF5_ASYNC", "1"), Begins::Now);
    }

    #[test]
    fn a_delay_is_in_microseconds_and_may_be_left_out() {
        assert_eq!(delay(Some("1500")), Some(Duration::from_micros(1500)));
        assert_eq!(delay(Some("0")), None);
        assert_eq!(delay(Some("soon")), None);
        assert_eq!(delay(None), None);
    }

    #[test]
    fn the_memory_of_the_environment_is_in_mebibytes() {
        assert_eq!(megabytes(Some("3")).unwrap(), Some(3 << 20));
        assert_eq!(megabytes(Some("")).unwrap(), None);
        assert_eq!(megabytes(None).unwrap(), None);
        assert!(megabytes(Some("much")).is_err());
    }
}
