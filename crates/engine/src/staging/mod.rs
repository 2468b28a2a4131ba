//! The ring: page-aligned slots that persist between requests, near the GPU's NUMA node and limited
//! in total. Slots for the GPU are pinned.

mod ledger;
mod slot;

pub use slot::{Ring, Slot};
