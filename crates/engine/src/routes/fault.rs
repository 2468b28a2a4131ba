//! Fault injection, for tests of the engine and of what uses it: a route that wraps another one and
//! makes system calls on a file's data fail or stop short.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Lane, Route, Work};
use crate::error::Result;
use crate::file::position::{Call, Gate};
use crate::options::RouteName;

/// Decides about a system call by its number, from 0, among those that the request makes.
pub type Decide = dyn Fn(u64, Call) -> Fault + Send + Sync;

/// What happens to one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is made as it is.
    None,
    /// The call fails with this errno.
    Errno(i32),
    /// The call moves at most this many bytes (at least 1).
    Short(u64),
}

pub(crate) struct Faults {
    decide: Box<Decide>,
    calls: AtomicU64,
}

impl Faults {
    pub(crate) fn new(decide: Box<Decide>) -> Self {
        Faults {
            decide,
            calls: AtomicU64::new(0),
        }
    }
}

impl Gate for Faults {
    fn before(&self, call: Call) -> io::Result<u64> {
        match (self.decide)(self.calls.fetch_add(1, Relaxed), call) {
            Fault::None => Ok(call.length),
            Fault::Errno(code) => Err(io::Error::from_raw_os_error(code)),
            Fault::Short(most) => Ok(most.clamp(1, call.length)),
        }
    }
}

/// A route whose work is that of `inner`, with the gate of `faults`.
pub(crate) struct Faulty {
    pub inner: Arc<dyn Route>,
    pub faults: Arc<Faults>,
}

impl Route for Faulty {
    fn name(&self) -> RouteName {
        self.inner.name()
    }
    fn gate(&self) -> Option<&dyn Gate> {
        Some(&*self.faults)
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        self.inner.lane(work)
    }
}
