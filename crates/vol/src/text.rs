//! The text after the connector's name in `HDF5_VOL_CONNECTOR`: which connector lies below, what it
//! is told, and the settings of this one.

use penstock_engine::error::{Error, Result};

/// The connector below: HDF5 knows it by either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under<'a> {
    Value(i32),
    Name(&'a str),
}

/// `under_vol=0;under_info={...};` and what else there is.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    pub under_vol: Under<'a>,
    /// What stands between the braces. It may hold semicolons and braces of its own.
    pub under_info: &'a str,
    /// The other keys, as they were written.
    pub settings: String,
}

const NATIVE: Under<'_> = Under::Value(0);

impl<'a> Parts<'a> {
    /// Keys may be left out; without `under_vol` the native connector lies below.
    pub fn of(text: &'a str) -> Result<Parts<'a>> {
        let mut parts = Parts {
            under_vol: NATIVE,
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

/// What stands between semicolons that are in no braces.
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

/// What does not look like a number is a name.
fn under(value: &str) -> Result<Under<'_>> {
    if value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return Ok(Under::Name(value));
    }
    let number = value.parse().ok().filter(|value| *value >= 0);
    number.map(Under::Value).ok_or_else(|| {
        Error::invalid(format!(
            "option under_vol must be the number or the name of a connector, not {value:?}"
        ))
        .remedy("write under_vol=0 for HDF5's native connector")
    })
}

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
            "option under_info must stand in braces that match, not {value:?}"
        ))
        .remedy("write under_info={} if the connector below is told nothing")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Under<'_>, &str, String) {
        let parts = Parts::of(text).unwrap();
        (parts.under_vol, parts.under_info, parts.settings)
    }

    #[test]
    fn the_connector_below_and_the_settings_are_told_apart() {
        let text = "under_vol=512;under_info={under_vol=0;under_info={};};threads=4 ; block=1MiB;";
        let expected = (
            Under::Value(512),
            "under_vol=0;under_info={};",
            "threads=4;block=1MiB".to_owned(),
        );
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn the_native_connector_lies_below_if_none_is_named() {
        assert_eq!(parts(""), (NATIVE, "", String::new()));
        assert_eq!(parts("threads=4"), (NATIVE, "", "threads=4".to_owned()));
        let written = "under_vol=0;under_info={}";
        assert_eq!(parts(written), (NATIVE, "", String::new()));
    }

    #[test]
    fn the_connector_below_may_be_named() {
        let expected = (Under::Name("pass_through"), "under_vol=0", String::new());
        let text = "under_vol=pass_through;under_info={under_vol=0}";
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn a_malformed_text_is_an_error_that_names_the_key() {
        for (text, key) in [
            ("under_vol=5th;under_info={}", "under_vol"),
            ("under_vol=-1", "under_vol"),
            ("under_vol=", "under_vol"),
            ("under_vol=0;under_info={", "under_info"),
            ("under_vol=0;under_info=}", "under_info"),
            ("under_vol=0;under_info={}}{", "under_info"),
            ("under_vol=0;under_info=path", "under_info"),
        ] {
            let error = Parts::of(text).unwrap_err();
            assert!(error.cause().contains(key), "{text}: {error}");
        }
    }
}
