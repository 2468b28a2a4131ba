//! The engine: moves bytes between files and GPU or host memory.
//!
//! The data's way is the order of the modules: a request is *planned* ([`plan`]), its blocks are
//! *moved* along a *route* ([`routes`]) by workers ([`workers`]) through slots ([`staging`]) and
//! copy queues ([`gpu`]), and its end is told to whoever waits ([`request`]).

pub mod allocate;
pub mod copy;
pub mod describe;
mod engine;
pub mod error;
pub mod file;
pub mod gpu;
pub mod memory;
pub mod options;
mod plan;
mod profile;
pub mod reach;
pub mod report;
pub mod request;
mod routes;
mod save;
mod sharing;
pub mod snapshot;
pub mod staging;
mod sync;
mod tally;
pub mod trace;
mod workers;

pub use engine::{
    cores, drain, merged_options, options_without_engine, refuse_fork, set_process_options,
};
pub use gpu::stream::Stream;
pub use memory::MemoryKind;
pub use plan::Extent;
pub use request::StreamOrder;
pub use routes::fault;
pub use routes::gds::buffer;
