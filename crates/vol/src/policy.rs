//! How operations run in the background, by the settings of a file, and by environment variables
//! that other asynchronous connectors also support.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{cmp, fs};

use penstock_engine::error::{Error, Result};
use penstock_sys::environment;

use super::agreement::Alike;
use super::log::{Execution, Log};
use super::settings::ConnectorSettings;
use penstock_hdf5::transfer::conflicts::Failures;

/// The event that starts an operation. A wait starts it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartsAt {
    Now,
    DatasetClose,
    GroupClose,
    FileClose,
}

/// How operations on one file run. Created when the file is opened.
pub(crate) struct Policy {
    pub(crate) settings: Arc<ConnectorSettings>,
    pub(crate) starts_at: StartsAt,
    /// The delay before an operation begins, for [`StartsAt::Now`].
    pub(crate) delay: Option<Duration>,
    /// Limit for the memory of copies, in bytes.
    limit: OnceLock<u64>,
    log: Option<Log>,
    /// Failures of operations without a request.
    pub(crate) failures: Arc<Failures>,
}

impl Policy {
    /// # Errors
    /// The log cannot be opened, or `HDF5_ASYNC_MAX_MEM_MB` is malformed. Other variables that are
    /// malformed count as unset. Never fails for a shared file: a process with an error must still
    /// take part in the collective open.
    pub(crate) fn of(settings: &Arc<ConnectorSettings>, is_parallel: bool) -> Result<Policy> {
        let log = settings.log.as_deref().map(Log::open).transpose();
        let max_memory = match settings.max_memory {
            Some(bytes) => Ok(Some(bytes)),
            None => megabytes(environment::text("HDF5_ASYNC_MAX_MEM_MB").as_deref()),
        };
        let (log, max_memory) = if is_parallel {
            (log.unwrap_or_default(), max_memory.unwrap_or_default())
        } else {
            (log?, max_memory?)
        };
        Ok(Policy {
            settings: Arc::clone(settings),
            starts_at: starts_at(environment::text),
            delay: delay(environment::text("HDF5_ASYNC_DELAY_MICROSECOND").as_deref()),
            limit: max_memory.map_or_else(OnceLock::new, OnceLock::from),
            log,
            failures: Arc::default(),
        })
    }

    /// Returns the options that processes which share a file must have alike, because they decide which collective
    /// calls are made, and in which order.
    pub(crate) fn alike(&self) -> Vec<Alike> {
        let settings = &self.settings;
        let options = [
            (
                "option collective",
                format!("{:?}", settings.collective).to_lowercase(),
            ),
            ("option implicit", u8::from(settings.implicit).to_string()),
            (
                "option small",
                settings
                    .small
                    .map_or("the default".to_owned(), |n| n.to_string()),
            ),
        ];
        let alike = |(name, value)| Alike {
            name,
            value,
            is_required: true,
        };
        options.map(alike).into()
    }

    /// Adds a line to the log, if there is one.
    pub(crate) fn log(&self, call: &CStr, execution: Execution, bytes: u64, why: &str) {
        if let Some(log) = &self.log {
            log.add(call, execution, bytes, why);
        }
    }

    /// Returns whether an operation begins some time after its call.
    pub(crate) fn is_delayed(&self) -> bool {
        self.starts_at != StartsAt::Now || self.delay.is_some()
    }

    pub(crate) fn copy_limit(&self) -> u64 {
        *self.limit.get_or_init(default_limit)
    }

    /// Returns the size in bytes below which a transfer does not continue after the call.
    pub(crate) fn small(&self, has_event_set: bool) -> u64 {
        /// Bytes that HDF5 transfers while the background plans a transfer.
        const WITH_EVENT_SET: u64 = 64 << 10;
        /// Bytes that HDF5 transfers while the background plans a transfer and copies its data.
        const PLAIN: u64 = 512 << 10;
        let default = if has_event_set { WITH_EVENT_SET } else { PLAIN };
        self.settings.small.unwrap_or(default)
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
            "HDF5_ASYNC_MAX_MEM_MB must be a number of MiB, not {text:?}"
        ))
        .remedy("correct the environment variable HDF5_ASYNC_MAX_MEM_MB")
    })
}

/// Returns the limit without settings and environment: a quarter of the available memory, in bytes.
fn default_limit() -> u64 {
    const LEAST: u64 = 64 << 20;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    cmp::max(available(&text).unwrap_or(0) / 4, LEAST)
}

/// Returns `MemAvailable` of /proc/meminfo, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn delay(text: Option<&str>) -> Option<Duration> {
    let micros: u64 = text?.trim().parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn starts_at(variable: impl Fn(&str) -> Option<String>) -> StartsAt {
    let number = |text: String| text.trim().parse::<i64>().ok();
    let is_set = |name: &str| variable(name).and_then(number).is_some_and(|n| n > 0);
    if is_set("HDF5_ASYNC_EXE_FCLOSE") {
        StartsAt::FileClose
    } else if is_set("HDF5_ASYNC_EXE_GCLOSE") {
        StartsAt::GroupClose
    } else if is_set("HDF5_ASYNC_EXE_DCLOSE") {
        StartsAt::DatasetClose
    } else {
        StartsAt::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_set_when_operations_begin() {
        let only = |set: &'static str, value: &'static str| {
            starts_at(move |name| (name == set).then(|| value.to_owned()))
        };
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", "1"), StartsAt::FileClose);
        assert_eq!(only("HDF5_ASYNC_EXE_GCLOSE", "1"), StartsAt::GroupClose);
        assert_eq!(only("HDF5_ASYNC_EXE_DCLOSE", "1"), StartsAt::DatasetClose);
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", "0"), StartsAt::Now);
        assert_eq!(only("HDF5_ASYNC_EXE_FCLOSE", ""), StartsAt::Now);
        assert_eq!(only("HDF5_ASYNC", "1"), StartsAt::Now);
    }

    #[test]
    fn a_delay_is_in_microseconds_and_optional() {
        assert_eq!(delay(Some("1500")), Some(Duration::from_micros(1500)));
        assert_eq!(delay(Some("0")), None);
        assert_eq!(delay(Some("soon")), None);
        assert_eq!(delay(None), None);
    }

    #[test]
    fn the_environment_variable_for_memory_is_in_mebibytes() {
        assert_eq!(megabytes(Some("3")).unwrap(), Some(3 << 20));
        assert_eq!(megabytes(Some("")).unwrap(), None);
        assert_eq!(megabytes(None).unwrap(), None);
        assert!(megabytes(Some("much")).is_err());
    }

    #[test]
    fn the_available_memory_is_parsed_from_meminfo() {
        let text = "MemTotal:       100 kB\nMemFree:  7 kB\nMemAvailable:   24 kB\n";
        assert_eq!(available(text), Some(24 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(default_limit() >= 64 << 20);
    }
}
