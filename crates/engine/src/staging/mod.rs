//! The ring: page-aligned slots that persist between requests, near the GPU's NUMA node and limited
//! in total. Slots for the GPU are pinned.

mod adapting;
mod controller;
mod gate;
mod ledger;
mod slot;

pub(crate) use adapting::Adapting;
pub(crate) use controller::{Controller, Limits, Setting};
pub(crate) use gate::{Gate, Gates, Length, OnSettled};
pub use slot::{Ring, Slot};
