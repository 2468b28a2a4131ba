//! `host` and `staged` with io_uring: one worker keeps many reads or writes in flight.
//!
//! [`ring`] owns the kernel's rings, [`mod@transfers`] completes each read and write, and [`lane`]
//! moves blocks by them. Without io_uring, the lanes of `host` and `staged` are used instead.

mod lane;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;
mod transfers;

use std::sync::OnceLock;

use super::{HOST, Lane, Route, STAGED, Work};
use crate::error::{Error, Kind, Result};
use crate::gpu::QueueLease;
use crate::options::RouteName;
use lane::UringLane;
use ring::IoRing;
use transfers::Transfers;

pub(crate) struct HostUring;
pub(crate) struct StagedUring;

impl Route for HostUring {
    fn name(&self) -> RouteName {
        RouteName::Host
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        match transfers(work) {
            Some(io) => Ok(Box::new(UringLane::new(work, io, None))),
            None => HOST.lane(work),
        }
    }
}

impl Route for StagedUring {
    fn name(&self) -> RouteName {
        RouteName::Staged
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        match transfers(work) {
            Some(io) => {
                let gpu = QueueLease::new(work.own_context()?)?;
                Ok(Box::new(UringLane::new(work, io, Some(gpu))))
            }
            None => STAGED.lane(work),
        }
    }
}

/// Whether this process may use io_uring. The first call determines it.
pub(crate) fn availability() -> Result<()> {
    static AVAILABLE: OnceLock<Result<()>> = OnceLock::new();
    AVAILABLE
        .get_or_init(|| match IoRing::lease(1) {
            Ok(_) => Ok(()),
            Err(e) => Err(Error::new(Kind::Unavailable, e.to_string()).remedy(
                "allow io_uring: Linux 5.6 or later, sysctl kernel.io_uring_disabled=0, and a container profile that permits io_uring_setup",
            )),
        })
        .clone()
}

/// The transfers of a lane; `None`, with a note, if io_uring is not available.
fn transfers(work: Work<'_>) -> Option<Transfers<'_>> {
    let made = availability()
        .map_err(|e| e.cause().to_owned())
        .and_then(|()| Transfers::new(work).map_err(|e| e.to_string()));
    match made {
        Ok(io) => Some(io),
        Err(why) => {
            let note = format!("io_uring is not available here ({why}); threads are used instead");
            work.counters.note(&note);
            None
        }
    }
}
