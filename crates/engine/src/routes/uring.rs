//! io_uring lanes.
use super::{Lane, Route, STAGED, Work};
use crate::error::Result;
use crate::options::RouteName;
pub(crate) struct HostUring;
pub(crate) struct StagedUring;
impl Route for HostUring {
    fn name(&self) -> RouteName {
        RouteName::Host
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        static H: super::Host = super::Host;
        H.lane(work)
    }
}
impl Route for StagedUring {
    fn name(&self) -> RouteName {
        RouteName::Staged
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        STAGED.lane(work)
    }
}
