//! What reads and writes of GPU memory share.

pub(super) mod placing;
pub(super) mod scratch;

/// Every chunk and table begins at a multiple of this; the kernels write nothing faster.
pub(super) const ALIGNMENT: usize = 32;
