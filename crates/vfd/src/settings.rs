//! The options of the driver: those of the engine, the mode for GPU data, and the striping of new
//! files.

use penstock_engine::error::{Error, Result};
use penstock_engine::options::{Options, name_of, parse_size, word};
use penstock_engine::options_without_engine;

use crate::modes::{MODES, Mode};

/// The contents of an option string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What moves raw data in GPU memory.
    pub(crate) mode: Mode,
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
                "mode" => settings.mode = word(key, value, &MODES)?,
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

    /// Returns the value of the option `mode` that selects the mode.
    pub fn mode_name(&self) -> &'static str {
        name_of(self.mode, &MODES)
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
    if size != 0 && size % STRIPE_UNIT == 0 && size < 4 << 30 {
        Ok(size)
    } else {
        Err(Error::invalid(format!(
            "option stripe_size must be a multiple of 64KiB below 4GiB, not {value:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_only_the_keys_it_contains() {
        let text = "mode=direct+pinned; threads=8;stripe_count=4;stripe_size=1MiB";
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.mode_name(), "direct+pinned");
        assert_eq!(settings.options.threads, Some(8));
        assert_eq!(settings.stripe_count, Some(4));
        assert_eq!(settings.stripe_size, Some(1 << 20));
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
    }

    #[test]
    fn an_error_of_parsing_names_the_key() {
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
    fn each_mode_parses_from_its_own_name() {
        for name in MODES.map(|(name, _)| name) {
            let settings = Settings::parse(&format!("mode={name}")).unwrap();
            assert_eq!(settings.mode_name(), name);
        }
    }
}
