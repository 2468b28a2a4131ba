//! The call of the application that a callback belongs to.

use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

use penstock_sys::hdf5::connector::Req;

use super::container::Container;
use super::log::Execution;
use super::wrapped::Wrapped;

/// The pointer for a request of a call without an event set.
pub(crate) const NO_REQUEST: Req = ptr::null_mut();

/// A call of the application, for the log, and the pointer for its request. The pointer is null
/// without an event set.
#[derive(Clone, Copy)]
pub(crate) struct ApiCall {
    pub(crate) call: &'static CStr,
    pub(crate) req: Req,
}

/// Reason in the log why a forwarded operation is synchronous.
pub(crate) const METADATA: &str = "HDF5 works on metadata on the thread that calls it";

impl ApiCall {
    pub(crate) const NONE: ApiCall = ApiCall::part_of_another(NO_REQUEST);

    /// An operation that HDF5 adds to another call, which has its own line in the log.
    pub(crate) const fn part_of_another(req: Req) -> ApiCall {
        ApiCall::of(c"", req)
    }

    pub(crate) const fn of(call: &'static CStr, req: Req) -> ApiCall {
        ApiCall { call, req }
    }

    /// Wraps the request that the connector below has returned, if any, and logs the call. The
    /// caller has seen the connector below succeed.
    ///
    /// # Safety
    /// `req` is null, or points to null or to a request of the connector below.
    pub(crate) unsafe fn succeeded(self, container: &Arc<Container>, why: &str) {
        if self.req.is_null() {
            return;
        }
        // SAFETY: the caller guarantees this.
        let (execution, why) = if unsafe { Wrapped::wrap_request(self.req, container) } {
            (Execution::Async, "by the connector below")
        } else {
            (Execution::Sync, why)
        };
        if !self.call.is_empty() {
            container.policy.log(self.call, execution, 0, why);
        }
    }
}
