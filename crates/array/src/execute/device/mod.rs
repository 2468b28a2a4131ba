//! What reads and writes of GPU memory share.

pub mod placing;
pub mod scratch;

/// Every chunk and table begins at a multiple of this; the kernels write nothing faster.
pub const ALIGNMENT: usize = 32;
