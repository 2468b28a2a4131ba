//! Growth of lists that are as long as a selection. Running out of memory is an error and does not
//! abort the process.

use std::collections::TryReserveError;

use penstock_engine::error::{Error, Kind, Result};

/// Reserves room for `more` further pieces of a selection.
pub fn make_room<T>(pieces: &mut Vec<T>, more: usize) -> Result<()> {
    pieces
        .try_reserve(more)
        .map_err(|error| lack(pieces.len(), &error))
}

/// Appends a piece of a selection.
pub fn push<T>(pieces: &mut Vec<T>, piece: T) -> Result<()> {
    if pieces.len() == pieces.capacity() {
        make_room(pieces, 1)?;
    }
    pieces.push(piece);
    Ok(())
}

/// Returns the error for a selection that ran out of memory at this many pieces.
pub(crate) fn lack(pieces: usize, error: &TryReserveError) -> Error {
    Error::new(
        Kind::Memory,
        format!("no memory for a selection of more than {pieces} pieces: {error}"),
    )
    .remedy("select fewer pieces at a time, or longer ones")
}
