//! What the processes that share a file do together before and after a call: the protocol.
//!
//! 1. All processes make each collective call of HDF5, on the thread and at the time of the program's
//!    call. Elements at fixed addresses are moved by each process itself, without the others.
//! 2. [`plan`] decides for each call who carries it out, and when the processes wait for each other.
//!    It knows only what is the same in all of them: no request, memory, selection or error.
//! 3. Before the processes meet, each *finishes* its own pending transfers that the call may conflict
//!    with. After the meeting, no process has such transfers.
//! 4. MPI-IO may write bytes outside the selection of a collective write, with what it has read there
//!    before. So while HDF5 writes elements or fill values in pieces, or copies elements, no process
//!    transfers elements of the file: all finish, meet before the call, and meet after it.
//! 5. Between the last transfer to storage that is freed and the next allocation, the processes meet.
//! 6. In a collective transfer, the processes *agree*, which is a meeting: each learns whether another
//!    has failed, continues after the call, or has transfers left. If one has failed, all fail.
//! 7. A transfer of HDF5 follows the agreement. Where each process transfers its own part, the agreement
//!    is the meeting at the end, unless it continues, or the file is unfinished or only read.
//! 8. A collective transfer that continues in no process ends with a meeting, so it is complete for all.
//!    One that continues makes the file *unfinished*, until an agreement finds that no process has
//!    transfers left. In an unfinished file, a collective transfer finishes and agrees first.

use penstock_engine::file::position::Operation;

/// A call, as all processes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Reads or writes elements with an independent transfer list.
    Independent(Elements),
    /// Reads or writes elements with a collective transfer list.
    Collective(Operation, Elements),
    /// Creates a dataset or changes its extent. `fills` says whether HDF5 writes fill values of several
    /// chunks together.
    Allocate { fills: bool },
    /// Copies an object into the file.
    Copy,
    /// Deletes a link or decrements a number of references.
    Delete,
    /// Opens an object, and allocates storage that a single process has left out. The call is
    /// collective only if it allocates; the processes then meet in HDF5 before it writes fill values.
    Open,
}

/// Who can access the elements of a transfer. Of several datasets, the greatest value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Elements {
    /// Each process, at fixed addresses.
    Fixed,
    /// The same, but HDF5 joins the short rows of several processes in a collective transfer.
    Short,
    /// HDF5, which has to allocate their storage.
    Unallocated,
    /// Only HDF5.
    Hdf5s,
}

/// What all processes know of a file. They have the same values, because only collective calls change
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Whether the processes may wait for each other: not if they read metadata together, since HDF5
    /// may then wait inside a transfer of one process for the next call of the others.
    pub(crate) can_meet: bool,
    pub(crate) is_writable: bool,
    /// Whether MPI-IO may write more than a collective write selects.
    pub(crate) is_sieved: bool,
    /// Whether HDF5 may find gaps between storage, or an extent has changed.
    pub(crate) has_gaps: bool,
    /// Whether the close of a dataset may free its storage: some were deleted or never had a name.
    pub(crate) may_free: bool,
    /// Whether a collective transfer of before may be unfinished in some process.
    pub(crate) is_unfinished: bool,
}

/// The pending transfers of this process that it finishes before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Nothing,
    /// Those of the call's datasets, if one of both writes.
    Conflicting,
    /// Those of the file.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// HDF5, as the program requests.
    Hdf5,
    /// Each process for its own part: by the engine, or by HDF5 with an independent list.
    EachProcess,
}

/// Whether the processes meet after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Never,
    /// If HDF5 has allocated storage at the end of the file.
    IfAllocated,
    /// If an extent has shrunk.
    IfShrunk,
    /// Unless the transfer continues in some process. Agreeing after the transfer is a meeting.
    UnlessContinues,
    Always,
}

/// What the processes do in a call: [`finishes`](Self::finishes), then meet, then the call, then meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) finishes: Finish,
    /// Whether the processes meet before the call; in a collective transfer, they agree.
    pub(crate) meets_before: bool,
    pub(crate) by: By,
    pub(crate) after: After,
}

/// Returns what the processes do in a call.
pub(crate) fn plan(call: Call, file: FileState) -> Plan {
    let meets = file.can_meet && file.is_writable;
    let is_sieved = meets && file.is_sieved;
    let when = |is_needed, after| if is_needed { after } else { After::Never };
    let apart = Plan {
        finishes: Finish::Nothing,
        meets_before: false,
        by: By::Hdf5,
        after: After::Never,
    };
    let without_transfers = Plan {
        finishes: Finish::File,
        meets_before: meets,
        after: when(meets, After::Always),
        ..apart
    };
    match call {
        Call::Independent(Elements::Fixed | Elements::Short) => Plan {
            by: By::EachProcess,
            ..apart
        },
        Call::Independent(Elements::Unallocated | Elements::Hdf5s) => Plan {
            finishes: Finish::Conflicting,
            ..apart
        },
        Call::Collective(operation, elements) => {
            // Where the processes cannot meet, HDF5 alone can order their collective transfers.
            let is_hdf5s = elements != Elements::Fixed || file.is_writable && !file.can_meet;
            if is_hdf5s && is_sieved && operation == Operation::Write {
                return without_transfers;
            }
            let agrees_first = is_hdf5s || file.is_unfinished || !file.is_writable;
            Plan {
                finishes: if agrees_first {
                    Finish::Conflicting
                } else {
                    Finish::Nothing
                },
                meets_before: file.can_meet && agrees_first,
                by: if is_hdf5s { By::Hdf5 } else { By::EachProcess },
                after: when(meets, After::UnlessContinues),
            }
        }
        Call::Allocate { fills: true } if is_sieved => without_transfers,
        Call::Allocate { .. } => Plan {
            meets_before: meets && file.may_free,
            after: when(meets, After::IfShrunk),
            ..apart
        },
        Call::Copy => without_transfers,
        Call::Delete => Plan {
            after: After::Never,
            ..without_transfers
        },
        Call::Open if is_sieved && (file.has_gaps || file.may_free) => Plan {
            finishes: Finish::File,
            after: After::IfAllocated,
            ..apart
        },
        Call::Open => apart,
    }
}

#[cfg(test)]
mod tests;
