//! Room for lists that are as long as what is selected: a lack of it is an error, not the end of the
//! process.

use std::collections::TryReserveError;

use penstock_engine::error::{Error, Kind, Result};

/// Makes room for `more` pieces of a selection behind those that are there.
pub fn make_room<T>(pieces: &mut Vec<T>, more: usize) -> Result<()> {
    pieces
        .try_reserve(more)
        .map_err(|error| lack(pieces.len(), &error))
}

/// Adds a piece of a selection.
pub fn push<T>(pieces: &mut Vec<T>, piece: T) -> Result<()> {
    if pieces.len() == pieces.capacity() {
        make_room(pieces, 1)?;
    }
    pieces.push(piece);
    Ok(())
}

/// No memory was left for a selection when it had so many pieces.
pub(crate) fn lack(pieces: usize, error: &TryReserveError) -> Error {
    Error::new(
        Kind::Memory,
        format!("no memory for a selection of more than {pieces} pieces: {error}"),
    )
    .remedy("select fewer pieces at a time, or longer ones")
}
