//! `gds`: cuFile.
use super::{Lane, Route, STAGED, Work};
use crate::error::Result;
use crate::file::File;
use crate::options::RouteName;

#[derive(Debug, Default)]
pub(crate) struct HandleCell;
pub(crate) struct Gds;
impl Route for Gds {
    fn name(&self) -> RouteName {
        RouteName::Gds
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        STAGED.lane(work)
    }
}
pub(crate) fn is_peer_to_peer(_file: &File) -> bool {
    false
}
