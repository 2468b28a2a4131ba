//! Operations in flight: what they read and write, and what must wait for them.
//!
//! The result of all operations is that of their calls one after the other:
//!
//! 1. An operation describes what it accesses as access sets: boxes of elements, objects, files.
//! 2. Before it starts, it finishes the pending operations that conflict with one of its sets: at
//!    least one of both writes, and they may access a common element.
//! 3. It enters the table of pending operations with its sets, under a number that grows.
//! 4. It leaves the table after it has ended and its failure, if any, was reported.
//!
//! An operation waits only for older ones, so no two wait for each other. The access sets are upper
//! bounds: too large a set costs time, never the order.

mod access;
mod box_index;
mod file_identities;
mod pending;
mod transfer_access;
pub mod unfinished_storage;
mod unreported_failures;

pub use access::{Access, AccessSet, FileKey, Identity, ObjectKey, Region};
pub use file_identities::{
    forget_identities, identity, identity_of_file, key_of_file, key_of_object, known_identity,
    number_of_file,
};
pub use pending::{
    Copy, Effort, Left, Pending, Shared, before, before_or, enter, enter_on_any_thread,
    finish_before, forget, has_before, in_file, is_empty, is_idle, leave, oldest,
};
pub(super) use transfer_access::{access_set, by_hdf5, is_partly_read, sets_of_plan};
pub use transfer_access::{is_done, rewritten_blocks};
pub use unreported_failures::Failures;

pub use crate::open_files::identity_of;
