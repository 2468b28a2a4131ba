//! A cache of sources that keeps none.

use std::ffi::CStr;
use std::sync::Arc;

use penstock_engine::file::unchanged::Status;
use penstock_hdf5::{CachedSource, KeptSource, SourceCache, SourceDataset};

pub struct NoCache;

impl SourceCache for NoCache {
    fn entry(&self, _: &SourceDataset<'_>) -> Option<Arc<dyn CachedSource>> {
        None
    }

    fn kept(&self, _: &Status, _: &CStr) -> Option<KeptSource> {
        None
    }
}
