//! What the processes that open a file together agree on first.
//!
//! All of them take part in the opening, or none does: a process with an error does not keep the
//! others waiting in a collective call of HDF5. What decides which collective calls are made later
//! must be alike in all of them.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};

use penstock_engine::error::{Error, Kind, Result};

use super::mpi::Communicator;
use penstock_hdf5::transfer::{Planned, Refused};

/// Something that decides about collective calls.
pub(crate) struct Alike {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// Whether the program cannot run if the processes differ. Otherwise only HDF5 accesses the
    /// bytes of the file.
    pub(crate) is_required: bool,
}

/// Returns what this process has prepared, if no process has an error, and the reason if only HDF5 can access
/// the bytes of the file, because the processes differ in one of `alike`. A collective call, with the same
/// number of entries in all processes.
///
/// # Errors
/// The error of this process, or one that says that another process has an error, or that the
/// processes differ in what must be alike.
pub(crate) fn agree<T>(
    processes: &Communicator,
    own: Result<T>,
    alike: impl Fn(&T) -> Vec<Alike>,
) -> Result<(T, Planned<()>)> {
    let facts = own.as_ref().map(alike).unwrap_or_default();
    let all: Vec<&str> = facts.iter().map(|fact| fact.value.as_str()).collect();
    const FAILED: c_int = 0;
    let digest = if own.is_ok() {
        digest_of(&all).max(FAILED + 1)
    } else {
        FAILED
    };
    // One comparison is enough where the processes are alike, as they are in most programs.
    if processes.have_same(digest) {
        return own.map(|own| (own, Ok(())));
    }
    if !processes.have_same(c_int::from(own.is_ok())) {
        return Err(own.err().unwrap_or_else(of_another));
    }
    let own = own?;
    for fact in facts {
        if processes.have_same(digest_of(&fact.value)) {
            continue;
        }
        let Alike { name, value, .. } = fact;
        if fact.is_required {
            let cause = format!("{name} differs between the processes: it is {value} in this one");
            let remedy = format!("set {name} alike in all processes that open the file");
            return Err(Error::invalid(cause).remedy(remedy));
        }
        return Ok((
            own,
            Err(Refused(format!("{name} differs between the processes"))),
        ));
    }
    Ok((own, Ok(())))
}

/// Returns the error of a process that can go on, while another cannot.
pub(crate) fn of_another() -> Error {
    Error::new(
        Kind::Unavailable,
        "another process of the MPI program has failed in this call",
    )
    .remedy("the error of that process names the cause")
}

/// Returns a number from 0, as `MPI_Comm_split` takes it, that differs between most values.
fn digest_of(value: &impl Hash) -> c_int {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    (hasher.finish() >> 33) as c_int
}
