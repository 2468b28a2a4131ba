//! Tests of szip, n-bit, scale-offset, Blosc and Blosc2.

mod common;
mod fixtures;
mod hostile;
#[path = "../../../engine/tests/common/repetitions.rs"]
mod repetitions;
mod round_trip;
