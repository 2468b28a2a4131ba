//! The settings of the connector, which include the engine's options.

use std::path::PathBuf;

use penstock_engine::error::{Error, Result};
use penstock_engine::options::{Options, parse_size, word};

/// The settings in the text after the connector's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectorSettings {
    pub(crate) options: Options,
    /// Whether a write that continues after the call uses the application's buffer instead of a
    /// copy.
    pub(crate) in_place: bool,
    /// Limit for the memory of copies, in bytes.
    pub(crate) max_memory: Option<u64>,
    /// The file that logs each call that could have continued in the background.
    pub(crate) log: Option<PathBuf>,
    /// Whether calls without an event set may continue after they have returned.
    pub(crate) implicit: bool,
    /// Size in bytes below which a transfer does not continue in the background. `None` is the
    /// default.
    pub(crate) small: Option<u64>,
    /// Implementation of collective transfers of shared files.
    pub(crate) collective: Collective,
    /// The text that contained these settings.
    pub(crate) text: String,
}

/// Implementation of collective transfers whose elements each process could transfer by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Collective {
    /// The engine, unless the processes may be on several machines and rows are short.
    #[default]
    Auto,
    Hdf5,
    Engine,
}

const KEYS: &str = "copy, max_mem_mb, log, implicit, small, collective, under_vol, under_info";

/// The values of `copy`. `auto`, the default, copies as `always` does.
const COPY: [(&str, bool); 3] = [("auto", false), ("always", false), ("never", true)];
const SWITCH: [(&str, bool); 2] = [("0", false), ("1", true)];
const COLLECTIVE: [(&str, Collective); 3] = [
    ("auto", Collective::Auto),
    ("hdf5", Collective::Hdf5),
    ("engine", Collective::Engine),
];

impl ConnectorSettings {
    /// Parses "threads=8;block=4MiB;copy=auto;max_mem_mb=1024;log=FILE;implicit=0;small=0". All
    /// keys are optional.
    pub(crate) fn parse(text: &str) -> Result<ConnectorSettings> {
        let mut settings = ConnectorSettings {
            text: text.to_owned(),
            ..ConnectorSettings::default()
        };
        let mut others = |key: &str, value: &str| {
            match key {
                "copy" => settings.in_place = word(key, value, &COPY)?,
                "max_mem_mb" => settings.max_memory = Some(megabytes(value)?),
                "log" => settings.log = Some(PathBuf::from(value)),
                "implicit" => settings.implicit = word(key, value, &SWITCH)?,
                "small" => settings.small = Some(parse_size(key, value)?),
                "collective" => settings.collective = word(key, value, &COLLECTIVE)?,
                _ => return Ok(false),
            }
            Ok(true)
        };
        settings.options = Options::parse_with(text, KEYS, &mut others)?;
        Ok(settings)
    }
}

fn megabytes(value: &str) -> Result<u64> {
    let number = value.parse::<u64>().ok();
    number.and_then(|n| n.checked_mul(1 << 20)).ok_or_else(|| {
        Error::invalid(format!(
            "option max_mem_mb must be a number of MiB, not {value:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_only_the_keys_it_contains() {
        let text = "threads=4;copy=never;max_mem_mb=64;log=/tmp/calls;implicit=1;small=8KiB;collective=hdf5";
        let settings = ConnectorSettings::parse(text).unwrap();
        assert_eq!(settings.options.threads, Some(4));
        assert!(settings.in_place);
        assert_eq!(settings.max_memory, Some(64 << 20));
        assert_eq!(settings.log, Some(PathBuf::from("/tmp/calls")));
        assert!(settings.implicit);
        assert_eq!(settings.small, Some(8 << 10));
        assert_eq!(settings.collective, Collective::Hdf5);
        assert_eq!(settings.text, text);
        assert_eq!(
            ConnectorSettings::parse("").unwrap(),
            ConnectorSettings::default()
        );
    }

    #[test]
    fn an_error_of_parsing_names_the_key() {
        for (text, key) in [
            ("copy=maybe", "copy"),
            ("max_mem_mb=lots", "max_mem_mb"),
            ("max_mem_mb=99999999999999999", "max_mem_mb"),
            ("implicit=yes", "implicit"),
            ("small=tiny", "small"),
            ("collective=both", "collective"),
            ("threads=0", "threads"),
            ("colour=red", "colour"),
        ] {
            let error = ConnectorSettings::parse(text).unwrap_err();
            assert!(error.cause().contains(key), "{text}: {error}");
        }
        let remedy = ConnectorSettings::parse("colour=red").unwrap_err();
        assert!(remedy.remedy_text().contains("max_mem_mb"), "{remedy}");
    }
}
