//! The options of the driver: those of the engine, the mode for GPU data, and the striping of new
//! files.

use penstock_engine::error::{Error, Result};
use penstock_engine::options::{Options, parse_size};
use penstock_engine::options_without_engine;

/// How raw data in GPU memory is moved. All modes except `Auto` and `Gds` are what programs do
/// without Penstock, for comparison (Ravi, Byna, Koziol, "GPU Direct I/O with HDF5", PDSW 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By the engine, with the option `route`.
    #[default]
    Auto,
    /// One `pread` or `pwrite` and one copy through pageable memory.
    Sec2,
    /// As `Sec2`, with direct I/O.
    Direct,
    /// As `Sec2`, through pinned memory.
    Sec2Pinned,
    /// As `Direct`, through pinned memory.
    DirectPinned,
    /// As `Sec2`, by several threads with one block each.
    PosixMt,
    /// By cuFile, or an error.
    Gds,
}

const MODES: [(&str, Mode); 7] = [
    ("auto", Mode::Auto),
    ("sec2", Mode::Sec2),
    ("direct", Mode::Direct),
    ("sec2+pinned", Mode::Sec2Pinned),
    ("direct+pinned", Mode::DirectPinned),
    ("posix-mt", Mode::PosixMt),
    ("gds", Mode::Gds),
];

impl Mode {
    /// Returns the value of the option `mode` that selects it.
    pub fn name(self) -> &'static str {
        MODES
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("", |(name, _)| name)
    }

    fn parse(value: &str) -> Result<Mode> {
        let found = MODES.iter().find(|(name, _)| *name == value);
        found.map(|(_, mode)| *mode).ok_or_else(|| {
            let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Error::invalid(format!("option mode must be one of {names}, not {value:?}"))
        })
    }
}

/// The contents of an option string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How raw data is moved.
    pub mode: Mode,
    /// Options of the engine for each transfer.
    pub options: Options,
    /// Number of storage targets for a new file, on file systems with striping.
    pub stripe_count: Option<u32>,
    /// Stripe size of a new file, in bytes.
    pub stripe_size: Option<u64>,
}

/// Lustre requires multiples of this (`LOV_MIN_STRIPE_SIZE` of lustre_user.h).
const STRIPE_UNIT: u64 = 64 << 10;

impl Settings {
    /// Parses "threads=8;block=4MiB;route=auto;mode=auto;stripe_count=8;stripe_size=4MiB". All keys
    /// are optional.
    pub fn parse(text: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        let mut others = |key: &str, value: &str| {
            match key {
                "mode" => settings.mode = Mode::parse(value)?,
                "stripe_count" => settings.stripe_count = Some(stripe_count(value)?),
                "stripe_size" => settings.stripe_size = Some(stripe_size(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        };
        let options = Options::parse_with(text, "mode, stripe_count, stripe_size", &mut others)?;
        settings.options = options;
        Ok(settings)
    }

    /// Returns the settings, completed from those of the process and its environment.
    pub fn in_force(self) -> Result<Settings> {
        let options = options_without_engine(self.options)?;
        Ok(Settings { options, ..self })
    }
}

fn stripe_count(value: &str) -> Result<u32> {
    let count = value
        .parse()
        .ok()
        .filter(|count| (1..=2000).contains(count));
    count.ok_or_else(|| {
        Error::invalid(format!(
            "option stripe_count must be a number from 1 to 2000, not {value:?}"
        ))
    })
}

fn stripe_size(value: &str) -> Result<u64> {
    let size = parse_size("stripe_size", value)?;
    match size != 0 && size % STRIPE_UNIT == 0 && size < 4 << 30 {
        true => Ok(size),
        false => Err(Error::invalid(format!(
            "option stripe_size must be a multiple of 64KiB below 4GiB, not {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_the_keys_that_it_names() {
        let text = "mode=direct+pinned; threads=8;stripe_count=4;stripe_size=1MiB";
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.mode, Mode::DirectPinned);
        assert_eq!(settings.options.threads, Some(8));
        assert_eq!(settings.stripe_count, Some(4));
        assert_eq!(settings.stripe_size, Some(1 << 20));
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
    }

    #[test]
    fn a_malformed_text_is_an_error_that_names_the_key() {
        for (text, key) in [
            ("mode=fast", "mode"),
            ("stripe_count=0", "stripe_count"),
            ("stripe_count=many", "stripe_count"),
            ("stripe_size=1000", "stripe_size"),
            ("threads=0", "threads"),
            ("colour=red", "colour"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.cause().contains(key), "{text}: {error}");
        }
        let remedy = Settings::parse("colour=red").unwrap_err();
        assert!(remedy.remedy_text().contains("stripe_count"), "{remedy}");
    }

    #[test]
    fn each_mode_has_the_name_it_is_read_by() {
        for (name, mode) in MODES {
            assert_eq!(Mode::parse(name).unwrap(), mode);
            assert_eq!(mode.name(), name);
        }
    }
}
