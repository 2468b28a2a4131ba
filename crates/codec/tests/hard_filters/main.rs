//! Tests of szip, n-bit, scale-offset, Blosc and Blosc2.

mod common;
mod fixtures;
mod hostile;
mod round_trip;
