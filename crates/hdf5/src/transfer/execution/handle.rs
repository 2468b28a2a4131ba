//! The handle of a transfer in flight, by which a program waits for it.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::request::{Request, Waited};
use penstock_sys::hdf5::Hdf5;

use crate::transfer::conflicts::{
    AccessSet, Effort, Left, Pending, Shared, enter, enter_on_any_thread, leave, oldest,
};
use crate::transfer::hdf5_state::{inside, may_flush};

/// A submitter step in progress on this thread. Steps can be nested, because HDF5, called in a step, may
/// call back into Penstock.
struct Step {
    request: *const Request,
    /// The step within which this one runs, or null.
    outer: *const Step,
}

thread_local! {
    /// The innermost step of this thread. A plain pointer, because it is read while the process
    /// exits, after thread-local values have been destroyed.
    static STEP: Cell<*const Step> = const { Cell::new(ptr::null()) };
}

impl Drop for Step {
    fn drop(&mut self) {
        STEP.set(self.outer);
    }
}

/// A transfer of a dataset in flight. Clones share the request.
#[derive(Clone)]
pub struct TransferHandle {
    request: Arc<Request>,
    hdf5: &'static Hdf5,
    /// HDF5's number of the open file that a write changes, which is never that of another file.
    writes_to: Option<u64>,
    /// Whether it ends without the progress of other operations, so that any thread may wait for it.
    is_independent: bool,
    /// Number among the pending operations, if it is one of them.
    number: Option<u64>,
}

impl TransferHandle {
    pub(in crate::transfer) fn new(
        request: Request,
        hdf5: &'static Hdf5,
        writes_to: Option<u64>,
    ) -> TransferHandle {
        TransferHandle {
            request: Arc::new(request),
            hdf5,
            writes_to,
            is_independent: false,
            number: None,
        }
    }

    /// Makes a handle of a read that any thread may wait for: it follows no stream that may wait for another
    /// request.
    pub(in crate::transfer) fn without_hdf5(
        request: Request,
        hdf5: &'static Hdf5,
    ) -> TransferHandle {
        TransferHandle {
            is_independent: true,
            ..TransferHandle::new(request, hdf5, None)
        }
    }

    /// Adds the transfer to the pending operations, if it accesses anything that another may change.
    pub(in crate::transfer) fn entered(mut self, sets: Vec<AccessSet>) -> TransferHandle {
        if sets.is_empty() {
            return self;
        }
        let shared: Shared = Arc::new(self.clone());
        let enter = if self.is_independent {
            enter_on_any_thread
        } else {
            enter
        };
        self.number = Some(enter(self.hdf5, sets, &shared));
        self
    }

    /// Removes a read that has ended from the pending operations. Otherwise a later operation does that.
    pub fn leave_if_ended(&self) {
        if let Some(number) = self
            .number
            .filter(|_| self.drops_anywhere() && self.is_over())
        {
            leave(number);
        }
    }

    /// Runs the submitter step that is due, if there is one. No other thread calls HDF5
    /// meanwhile. Returns false if this thread cannot run it now.
    pub fn step(&self) -> bool {
        if self.is_in_step() {
            return true;
        }
        inside(self.hdf5, || {
            let step = Step {
                request: Arc::as_ptr(&self.request),
                outer: STEP.get(),
            };
            STEP.set(&step);
            self.request.step()
        })
    }

    /// Returns whether an earlier try has shown that this thread cannot run the due step now.
    pub fn is_postponed(&self) -> bool {
        self.request.is_postponed() && !may_flush()
    }

    /// Waits for the end and runs all steps meanwhile. Reports the outcome to the caller.
    pub fn finish(&self) -> Result<()> {
        self.wait_at_most(&|| None);
        match self.request.test() {
            Waited::Finished(outcome) => {
                self.leave_if_ended();
                outcome
            }
            Waited::Step if !self.is_in_step() => Err(self.request.is_for_later()),
            Waited::Step | Waited::Pending => Err(Error::new(
                Kind::Internal,
                "a request is waited for inside its own submitter step",
            )),
        }
    }

    /// Waits as [`finish`](Self::finish) does, but with a time limit and without reporting the
    /// outcome. Returns whether the request has ended, or cannot be waited for by this thread.
    ///
    /// The request may follow a stream that waits for other requests, so this thread runs their steps, too.
    pub fn wait_at_most(&self, left: Left<'_>) -> bool {
        const SLICE: Duration = Duration::from_millis(10);
        while !self.is_in_step() {
            let left = left().filter(|left| *left <= SLICE);
            match self.request.watch(Some(left.unwrap_or(SLICE))) {
                Waited::Finished(_) => return true,
                Waited::Step if !self.step() => return true,
                Waited::Step => {}
                Waited::Pending if left.is_some() => return false,
                Waited::Pending if self.is_independent => {}
                Waited::Pending => self.poll_others(),
            }
        }
        true
    }

    fn poll_others(&self) {
        for operation in oldest(self.hdf5, usize::MAX) {
            operation.go_on(&|| Some(Duration::ZERO), Effort::Bytes);
        }
    }

    fn is_in_step(&self) -> bool {
        let mut at = STEP.get();
        // SAFETY: null, or a step of this thread, which stays on its stack until the step ends.
        while let Some(step) = unsafe { at.as_ref() } {
            if ptr::eq(step.request, Arc::as_ptr(&self.request)) {
                return true;
            }
            at = step.outer;
        }
        false
    }
}

impl Deref for TransferHandle {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl Pending for TransferHandle {
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool {
        match effort {
            // The program runs the steps through its handle.
            Effort::Begun => false,
            Effort::Bytes | Effort::All => self.wait_at_most(left),
        }
    }

    fn finish(self: Arc<Self>) {
        self.wait_at_most(&|| None);
    }

    fn has_ended(&self) -> bool {
        self.request.peek().finished().is_some()
    }

    fn has_request(&self) -> bool {
        true
    }

    fn is_over(&self) -> bool {
        match self.request.peek() {
            Waited::Finished(Ok(())) => true,
            Waited::Finished(Err(_)) => {
                let is_unreported = |number| self.unreported_failure(number).is_some();
                !self.writes_to.is_some_and(is_unreported)
            }
            Waited::Step | Waited::Pending => false,
        }
    }

    fn unreported_failure(&self, file: u64) -> Option<Error> {
        let is_lost = |error: &Error| {
            self.writes_to == Some(file)
                && !self.request.is_reported()
                && error.kind() != Kind::Cancelled
        };
        let ended = self.request.peek();
        ended.finished()?.err().filter(is_lost)
    }

    fn mark_reported(&self) {
        self.request.mark_reported();
    }

    /// Any thread may drop a read, which owns nothing of HDF5's.
    fn drops_anywhere(&self) -> bool {
        self.writes_to.is_none()
    }

    /// A write must finish, because its steps use the identifier of its dataset.
    fn finishes_at_close(&self) -> bool {
        self.writes_to.is_some()
    }
}
