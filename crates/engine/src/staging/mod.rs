//! The ring: page-aligned slots that persist between requests, pinned for the GPU where it needs
//! them, near the GPU's NUMA node, capped in total.

mod ledger;
mod slot;

pub use slot::{Ring, Slot};
