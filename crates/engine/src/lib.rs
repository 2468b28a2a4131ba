//! The engine: moves bytes between files and GPU or host memory.
//!
//! The data's way is the order of the modules: a request is *planned* ([`plan`]), its blocks are
//! *moved* along a *route* ([`routes`]) by workers ([`workers`]) through slots ([`staging`]) and
//! copy queues ([`gpu`]), and its end is told to whoever waits ([`request`]).

pub mod allocate;
pub mod copy;
mod cufile;
pub mod describe;
mod engine;
pub mod error;
pub mod file;
mod fork;
pub mod gpu;
mod in_flight;
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
pub mod trace;
mod workers;

pub use cufile::buffer;
pub use engine::{cores, merged_options, options_without_engine, set_process_options};
pub use fork::refuse_fork;
pub use gpu::stream::Stream;
pub use memory::MemoryKind;
pub use plan::Extent;
pub use request::{StreamOrder, drain};
pub use routes::fault;
