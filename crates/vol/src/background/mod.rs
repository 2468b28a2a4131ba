//! Operations that continue after their call has returned, without a thread that calls HDF5.
//!
//! The application's threads do what requires HDF5. They plan a transfer when they submit an
//! operation ([`dataset_io`]), and pass encoded chunks to HDF5 when they wait for it
//! ([`operation`](crate::operation)). Between these calls, the engine moves bytes. Conflicting
//! operations keep the order of the program ([`conflicts`](penstock_hdf5::transfer::conflicts)),
//! also with calls of the connector below on the same dataset or file. Small transfers do not use
//! the background ([`at_once`]).

mod at_once;
mod budget;
mod closing;
mod collective_step;
mod dataset_call;
mod dataset_io;
mod dataset_plan;
mod pending;
mod shared_io;
mod start;

pub(crate) use at_once::goes_below_at_once;
pub(crate) use closing::{
    CLOSE_DATASET, CLOSE_FILE, When, complete_after, defer, file_identity, finish_before_replacing,
    finish_deferred_close, group_closes, mounts, pending_in_shared_file, pending_on_closed,
};
pub(crate) use collective_step::in_step;
pub(crate) use dataset_call::DatasetCall;
pub(crate) use dataset_io::{Disposition, read_or_write};
pub(crate) use pending::{finish_all, finish_conflicting, finish_unreported};
pub(crate) use shared_io::{create_in_step, extend_in_step, open_in_step, took_part};
