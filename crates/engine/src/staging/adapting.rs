//! Whether staged reads adapt to what is measured: the setting `PENSTOCK_STAGING`.

use penstock_sys::environment;

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapting {
    /// Workers and blocks are those of the host's default.
    Fixed,
    /// The controllers of this process find them.
    Process,
    /// As `Process`; the result is stored, and later processes begin with it.
    Kept,
}

impl Adapting {
    pub(crate) fn of_environment() -> Result<Adapting> {
        let text = environment::text("PENSTOCK_STAGING");
        Adapting::parse(text.as_deref().unwrap_or("adapt"))
    }

    fn parse(word: &str) -> Result<Adapting> {
        match word {
            "fixed" => Ok(Adapting::Fixed),
            "adapt" => Ok(Adapting::Process),
            "keep" => Ok(Adapting::Kept),
            _ => Err(Error::invalid(format!(
                "PENSTOCK_STAGING must be fixed, adapt or keep, not {word:?}"
            ))
            .remedy("correct the environment variable PENSTOCK_STAGING")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_word_is_an_error_that_names_the_variable() {
        assert_eq!(Adapting::parse("keep").unwrap(), Adapting::Kept);
        let error = Adapting::parse("off").unwrap_err();
        assert!(error.cause().contains("PENSTOCK_STAGING"), "{error}");
    }
}
