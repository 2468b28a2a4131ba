//! Limits of the resolution of virtual datasets, and why it ends early.

use penstock_engine::error::{Error, Kind};

/// Largest number of pieces of a selection, and of steps of work on them. A read with more is left to
/// HDF5.
pub(super) const MOST_PIECES: usize = 1 << 22;
/// Largest number of parts of a read. A read with more is left to HDF5.
pub(super) const MOST_PARTS: usize = 1 << 17;
/// Largest nesting depth of virtual datasets.
pub(super) const DEEPEST: usize = 32;
/// Largest number of times that a dataset may be its own source, directly or indirectly.
pub(super) const MOST_RETURNS: usize = 64;

pub(super) enum Stop {
    Hdf5(String),
    Failed(Error),
    /// A mapping selects elements that its source does not have: see [`misfit`](super::fit::misfit).
    Outside,
}

impl Stop {
    pub(super) fn too_many() -> Stop {
        Stop::Hdf5("the selection consists of too many pieces".to_owned())
    }

    pub(super) fn other_rank(selected: usize, rank: usize) -> Stop {
        let cause = format!("a mapping selects {selected} dimensions, but the dataset has {rank}");
        Stop::Failed(Error::new(Kind::Io, cause))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}
