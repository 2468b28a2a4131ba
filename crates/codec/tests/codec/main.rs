//! Tests of the filters and of the pipeline that applies them.

mod common;
mod deflate_size;
mod fixtures;
mod hostile;
mod pipeline;
mod reference;
mod round_trip;
#[path = "../common/zlib.rs"]
mod zlib;
