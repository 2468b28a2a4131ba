//! Parts that reads and writes of GPU memory share.

pub(super) mod placing;
pub(super) mod scratch;

/// Alignment of every chunk and table; the kernels perform no wider access.
pub(super) const ALIGNMENT: usize = 32;
