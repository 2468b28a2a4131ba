//! Operations in flight: what they read and write, and what must wait for them.

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
