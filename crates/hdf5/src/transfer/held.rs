//! A transfer whose request a program holds.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::request::{Request, Waited};
use penstock_sys::hdf5::Hdf5;

use super::conflicts::{Effort, Left, Pending};
use super::inside::inside;

/// A turn that a thread is taking, and the one in the middle of which it takes it: HDF5, called in a
/// turn, may come back here.
struct Turn {
    request: *const Request,
    outer: *const Turn,
}

thread_local! {
    /// The innermost turn of this thread. A pointer, which can still be asked for when the process exits
    /// and what threads own is gone.
    static TURN: Cell<*const Turn> = const { Cell::new(ptr::null()) };
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.set(self.outer);
    }
}

/// A transfer of a dataset under way. Its clones are of the same request.
#[derive(Clone)]
pub struct Held {
    request: Arc<Request>,
    hdf5: &'static Hdf5,
    /// HDF5's number of the open file that it writes to, which is never that of another.
    writes_to: Option<u64>,
}

impl Held {
    pub(super) fn new(request: Request, hdf5: &'static Hdf5, writes_to: Option<u64>) -> Held {
        Held {
            request: Arc::new(request),
            hdf5,
            writes_to,
        }
    }

    /// Takes the submitter's turn, if there is one to take. Nothing comes between the calls of HDF5
    /// that it makes.
    pub fn turn(&self) {
        if self.is_in_turn() {
            return;
        }
        inside(self.hdf5, || {
            let turn = Turn {
                request: Arc::as_ptr(&self.request),
                outer: TURN.get(),
            };
            TURN.set(&turn);
            self.request.turn();
        });
    }

    /// Waits for the end, and takes all turns meanwhile. The caller is told of the outcome.
    pub fn finish(&self) -> Result<()> {
        self.settle(&|| None);
        match self.request.test() {
            Waited::Finished(outcome) => outcome,
            Waited::Turn | Waited::Pending => Err(Error::new(
                Kind::Internal,
                "a request is waited for in the middle of its turn",
            )),
        }
    }

    /// As [`finish`](Self::finish), as long as there is time, and without telling anybody. Whether it
    /// has ended, or cannot be waited for by this thread.
    pub fn settle(&self, left: Left<'_>) -> bool {
        while !self.is_in_turn() {
            match self.request.watch(left()) {
                Waited::Finished(_) => return true,
                Waited::Turn => self.turn(),
                Waited::Pending => return false,
            }
        }
        true
    }

    fn is_in_turn(&self) -> bool {
        let mut at = TURN.get();
        // SAFETY: it is null or points to a turn of this thread, which is on its stack until it is taken.
        while let Some(turn) = unsafe { at.as_ref() } {
            if ptr::eq(turn.request, Arc::as_ptr(&self.request)) {
                return true;
            }
            at = turn.outer;
        }
        false
    }
}

impl Deref for Held {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl Pending for Held {
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool {
        match effort {
            // Its turns are for those who hold it.
            Effort::Begun => false,
            Effort::Bytes | Effort::All => self.settle(left),
        }
    }

    fn finish(self: Arc<Self>) {
        self.settle(&|| None);
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
                let is_untold = |number| self.untold_failure(number).is_some();
                !self.writes_to.is_some_and(is_untold)
            }
            Waited::Turn | Waited::Pending => false,
        }
    }

    fn untold_failure(&self, file: u64) -> Option<Error> {
        let is_lost = |error: &Error| {
            self.writes_to == Some(file)
                && !self.request.is_told()
                && error.kind() != Kind::Cancelled
        };
        let ended = self.request.peek();
        ended.finished()?.err().filter(is_lost)
    }

    fn told(&self) {
        self.request.tell();
    }
}
