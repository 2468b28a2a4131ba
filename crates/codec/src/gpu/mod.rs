//! Undoing and doing filters on the GPU.

pub mod framing;
pub mod nvcomp;
