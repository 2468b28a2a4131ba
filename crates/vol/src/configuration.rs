//! The text after the connector's name in `HDF5_VOL_CONNECTOR`: the connector below, its configuration,
//! and the settings of this one.

use penstock_engine::error::{Error, Result};

/// The connector below, by its value or its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnderVol<'a> {
    Value(i32),
    Name(&'a str),
}

/// The parts of a text such as `under_vol=0;under_info={...};threads=8`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Configuration<'a> {
    pub(crate) under_vol: UnderVol<'a>,
    /// The text between the braces, which may contain semicolons and braces.
    pub(crate) under_info: &'a str,
    /// The other keys, as in the text.
    pub(crate) settings: String,
}

const DEFAULT: UnderVol<'_> = UnderVol::Value(0);

impl<'a> Configuration<'a> {
    /// Splits the text. All keys are optional. Without `under_vol` the native connector is below.
    pub(crate) fn parse(text: &'a str) -> Result<Configuration<'a>> {
        let mut parts = Configuration {
            under_vol: DEFAULT,
            under_info: "",
            settings: String::new(),
        };
        for item in items(text) {
            match item
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
            {
                Some(("under_vol", value)) => parts.under_vol = under(value)?,
                Some(("under_info", value)) => parts.under_info = within_braces(value)?,
                _ if parts.settings.is_empty() => item.clone_into(&mut parts.settings),
                _ => {
                    parts.settings.push(';');
                    parts.settings.push_str(item);
                }
            }
        }
        Ok(parts)
    }
}

/// Returns the pieces between semicolons outside of braces.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let split = text.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ';' && depth == 0
    });
    split.map(str::trim).filter(|item| !item.is_empty())
}

/// Parses the value of `under_vol`. A value that begins with a letter or `_` is a name.
fn under(value: &str) -> Result<UnderVol<'_>> {
    if value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return Ok(UnderVol::Name(value));
    }
    let number = value.parse().ok().filter(|value| *value >= 0);
    number.map(UnderVol::Value).ok_or_else(|| {
        Error::invalid(format!(
            "option under_vol must be the number or the name of a connector, not {value:?}"
        ))
        .remedy("write under_vol=0 for HDF5's native connector")
    })
}

/// Returns the text inside matching braces.
fn within_braces(value: &str) -> Result<&str> {
    let inner = value
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let balanced = |text: &str| {
        let depth = text.chars().try_fold(0usize, |depth, c| match c {
            '{' => Some(depth + 1),
            '}' => depth.checked_sub(1),
            _ => Some(depth),
        });
        depth == Some(0)
    };
    inner.filter(|inner| balanced(inner)).ok_or_else(|| {
        Error::invalid(format!(
            "option under_info must be in matching braces, not {value:?}"
        ))
        .remedy("write under_info={} if the connector below has no configuration")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (UnderVol<'_>, &str, String) {
        let parts = Configuration::parse(text).unwrap();
        (parts.under_vol, parts.under_info, parts.settings)
    }

    #[test]
    fn the_connector_below_and_the_settings_are_separated() {
        let text = "under_vol=512;under_info={under_vol=0;under_info={};};threads=4 ; block=1MiB;";
        let expected = (
            UnderVol::Value(512),
            "under_vol=0;under_info={};",
            "threads=4;block=1MiB".to_owned(),
        );
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn the_native_connector_is_the_default() {
        assert_eq!(parts(""), (DEFAULT, "", String::new()));
        assert_eq!(parts("threads=4"), (DEFAULT, "", "threads=4".to_owned()));
        let written = "under_vol=0;under_info={}";
        assert_eq!(parts(written), (DEFAULT, "", String::new()));
    }

    #[test]
    fn the_connector_below_may_be_named() {
        let expected = (UnderVol::Name("pass_through"), "under_vol=0", String::new());
        let text = "under_vol=pass_through;under_info={under_vol=0}";
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn an_error_of_parsing_names_the_key() {
        for (text, key) in [
            ("under_vol=5th;under_info={}", "under_vol"),
            ("under_vol=-1", "under_vol"),
            ("under_vol=", "under_vol"),
            ("under_vol=0;under_info={", "under_info"),
            ("under_vol=0;under_info=}", "under_info"),
            ("under_vol=0;under_info={}}{", "under_info"),
            ("under_vol=0;under_info=path", "under_info"),
        ] {
            let error = Configuration::parse(text).unwrap_err();
            assert!(error.cause().contains(key), "{text}: {error}");
        }
    }
}
