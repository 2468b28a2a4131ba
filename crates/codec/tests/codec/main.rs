//! Tests of the filters and of the pipeline that applies them.

mod common;
mod fixtures;
mod hostile;
mod pipeline;
mod reference;
mod round_trip;
