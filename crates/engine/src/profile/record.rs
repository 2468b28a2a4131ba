//! The contents of a profile's file.

use std::path::Path;
use std::{fs, io};

use serde_json::Value;

use super::{Gpu, Machine};
use crate::file::position::Operation;
use crate::options::{Choice, Options, RouteName};

/// The format of the file that this version reads.
pub(crate) const FORMAT: u64 = 1;
/// The size in bytes up to which a request is small.
pub(crate) const SMALL_TO: u64 = 4 << 20;
/// The size in bytes from which a request is large. Sizes between are not measured.
pub(crate) const LARGE_FROM: u64 = 64 << 20;

/// The place from which a read gets its bytes, or to which a write has brought them when it
/// finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The page cache.
    Cache,
    /// The medium: reads that are not cached, and writes with durable=yes.
    Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub made: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    operation: Operation,
    size: Size,
    place: Place,
    options: Options,
}

impl Profile {
    /// Reads a profile for this machine. An error gives the reason why the profile is not used.
    pub(crate) fn parse(
        text: &str,
        machine: &Machine,
        gpu: Option<&Gpu>,
    ) -> Result<Profile, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| format!("it is damaged ({e})"))?;
        check(&value, machine, gpu)?;
        let rows = value["rows"].as_array().ok_or("it is damaged (no rows)")?;
        let rows = rows.iter().map(|row| Row::read(row, gpu.is_some()));
        Ok(Profile {
            made: value["made"].as_str().unwrap_or_default().to_owned(),
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// The options for a request of this many bytes, if such requests were measured.
    pub(crate) fn row(&self, operation: Operation, bytes: u64, place: Place) -> Option<Options> {
        let size = match bytes {
            0..=SMALL_TO => Size::Small,
            LARGE_FROM.. => Size::Large,
            _ => return None,
        };
        self.rows
            .iter()
            .find(|row| row.operation == operation && row.size == size && row.place == place)
            .map(|row| row.options)
    }
}

/// The text of a file in the folder; `None` for what is not a file or is too long, so that reading it could
/// block the caller or fill its memory.
pub(super) fn text_of(path: &Path) -> io::Result<Option<String>> {
    /// The most bytes that are read. A profile has a few thousand.
    const MOST: u64 = 1 << 20;
    let data = fs::metadata(path)?;
    let may_be_read = data.is_file() && data.len() <= MOST;
    may_be_read.then(|| fs::read_to_string(path)).transpose()
}

/// Checks that a file has the format of this version, and was made on this machine for this GPU. An
/// error gives the reason why it is not used.
pub(super) fn check(value: &Value, machine: &Machine, gpu: Option<&Gpu>) -> Result<(), String> {
    match value["format"].as_u64() {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("its format is {other}, not {FORMAT}")),
        None => return Err("it is damaged (no format)".to_owned()),
    }
    let of_gpu = || match gpu {
        Some(gpu) => gpu.difference(&value["gpu"]),
        None if value["gpu"].is_null() => None,
        None => Some("it was made for a GPU".to_owned()),
    };
    let difference = machine.difference(&value["machine"]).or_else(of_gpu);
    difference.map_or(Ok(()), Err)
}

impl Row {
    fn read(value: &Value, on_gpu: bool) -> Result<Row, String> {
        let damaged = |key: &str| format!("it is damaged (a row has no valid {key})");
        let row = Row {
            operation: match value["operation"].as_str() {
                Some("read") => Operation::Read,
                Some("write") => Operation::Write,
                _ => return Err(damaged("operation")),
            },
            size: match value["size"].as_str() {
                Some("small") => Size::Small,
                Some("large") => Size::Large,
                _ => return Err(damaged("size")),
            },
            place: match value["place"].as_str() {
                Some("cache") => Place::Cache,
                Some("storage") => Place::Storage,
                _ => return Err(damaged("place")),
            },
            options: {
                let text = value["options"]
                    .as_str()
                    .ok_or_else(|| damaged("options"))?;
                Options::parse(text).map_err(|e| format!("it is damaged ({})", e.cause()))?
            },
        };
        if !row.is_possible(on_gpu) {
            let options = row.options;
            return Err(format!("it is damaged (a row has the options {options})"));
        }
        Ok(row)
    }

    /// Whether the options are allowed in a profile. A profile selects mechanisms: it neither
    /// changes the guarantees of a write nor selects a mechanism that must fail.
    fn is_possible(&self, on_gpu: bool) -> bool {
        let Options {
            durable,
            scratch,
            decode,
            route,
            direct,
            ..
        } = self.options;
        let of_ways = durable.is_none() && scratch.is_none() && decode.is_none();
        let leads = match route {
            None | Some(RouteName::Auto) => true,
            Some(RouteName::Staged | RouteName::Gds) => on_gpu,
            Some(RouteName::Mapped) => on_gpu && self.operation == Operation::Read,
            Some(RouteName::Host | RouteName::Hdf5) => false,
        };
        of_ways && leads && (self.place == Place::Storage || direct != Some(Choice::Yes))
    }
}
