//! Starting what is planned, at once or later, from the memory of the application or from a copy.

use std::sync::Arc;

use penstock_engine::Stream;
use penstock_engine::error::Result;
use penstock_engine::memory::Memory;
use penstock_engine::request::{Request, StreamOrder};
use penstock_engine::snapshot::{Snapshot, Taken};

use super::budget::{Answer, Budget, Share};
use super::finish_oldest;
use super::journal::Manner;
use super::lend::Loan;
use super::operation::{Begun, Moving, Queued, Work};
use super::pending::Claim;
use super::planned::{Part, Prepared};
use super::transfer::Call;
use crate::execute::Manner as Submission;

/// Memory that copies have taken.
static BUDGET: Budget = Budget::new();

/// What goes on, and what it touches.
pub type Going = (Vec<Claim>, Work);

/// Starts the planned transfers. What is to go on is given back, the rest is left in `moving`, to be
/// waited for.
///
/// # Safety
/// As for [`transfer`](super::transfer::transfer).
pub unsafe fn start(
    call: &Call<'_>,
    parts: Vec<(Part, Claim)>,
    stream: Option<Stream>,
    moving: &mut Moving,
) -> Result<Option<Going>> {
    let goes_on = call.goes_on();
    let copies = goes_on && call.is_copied();
    let waits = goes_on && call.policy().waits();
    let mut queue: Vec<(Loan, Start)> = Vec::new();
    let (mut claims, mut bytes) = (Vec::new(), 0);
    for (part, claim) in parts {
        if part.prepared.is_done() {
            if goes_on {
                call.tell(Manner::Sync, 0, "nothing is selected");
            }
            continue;
        }
        let length = part.touched.end - part.touched.start;
        let copied = match copies {
            // SAFETY: passed on.
            true => match unsafe { copy(call, &part, stream, waits)? } {
                Ok(copied) => Some(copied),
                Err(why) => {
                    call.tell(Manner::Sync, length, &why);
                    // SAFETY: passed on.
                    let request = unsafe {
                        Start::of(
                            call,
                            part.prepared,
                            None,
                            part.buffer,
                            part.is_on_host,
                            stream,
                            false,
                        )
                        .run()?
                    };
                    request.finish()?;
                    continue;
                }
            },
            false => None,
        };
        // SAFETY: passed on.
        let begin = unsafe {
            Start::of(
                call,
                part.prepared,
                copied,
                part.buffer,
                part.is_on_host,
                stream,
                goes_on,
            )
        };
        if !goes_on {
            moving.begun.requests.push(Arc::new(begin.run()?));
            moving.loans.push(part.loan);
            continue;
        }
        bytes += length;
        claims.push(claim);
        queue.push((part.loan, begin));
    }
    if queue.is_empty() {
        return Ok(None);
    }
    let (loans, starts): (Vec<Loan>, Vec<Start>) = queue.into_iter().unzip();
    let begin = move || {
        let mut begun = Begun::default();
        for start in starts {
            match start.run() {
                Ok(request) => begun.requests.push(Arc::new(request)),
                Err(error) => {
                    begun.failed = Some(error);
                    break;
                }
            }
        }
        begun
    };
    let queued = Queued {
        begin: Box::new(begin),
        loans,
    };
    if waits {
        let why = "begins later, as the environment asks";
        call.tell(Manner::Deferred, bytes, why);
        return Ok(Some((claims, Work::Queued(queued))));
    }
    let going = queued.begin();
    if going.begun.failed.is_some() {
        going.finish()?;
        return Ok(None);
    }
    call.tell(Manner::Async, bytes, "");
    Ok(Some((claims, Work::Moving(going))))
}

/// A transfer that is ready to be submitted.
struct Start {
    prepared: Prepared,
    address: usize,
    manner: Submission,
}

type Copied = (Taken, Share<'static>);

impl Start {
    /// # Safety
    /// The buffer, where there is no copy, stays as it is until the transfer is finished.
    unsafe fn of(
        call: &Call<'_>,
        prepared: Prepared,
        copied: Option<Copied>,
        buffer: usize,
        is_on_host: bool,
        stream: Option<Stream>,
        background: bool,
    ) -> Start {
        let options = call.policy().options();
        let mut manner = Submission {
            options,
            stream: None,
            background,
            owner: None,
        };
        let address = match copied {
            Some((taken, share)) => {
                let address = taken.snapshot.address();
                manner.stream = taken.after;
                // The share goes last: then the memory is there again.
                manner.owner = Some(Box::new((taken.snapshot, share)));
                address
            }
            None => {
                if !is_on_host {
                    manner.stream = Some(StreamOrder {
                        // SAFETY: null is the default stream.
                        stream: stream
                            .unwrap_or_else(|| unsafe { Stream::from_raw(std::ptr::null_mut()) }),
                        after: true,
                        before: false,
                    });
                }
                buffer
            }
        };
        Start {
            prepared,
            address,
            manner,
        }
    }

    fn run(self) -> Result<Request> {
        // SAFETY: whoever made this vouches for the memory, and turns are taken inside HDF5.
        unsafe { self.prepared.submit(self.address, self.manner) }
    }
}

/// Copies what a write is to write; or says why that cannot be.
///
/// # Safety
/// As for [`transfer`](super::transfer::transfer).
unsafe fn copy(
    call: &Call<'_>,
    part: &Part,
    stream: Option<Stream>,
    waits: bool,
) -> Result<std::result::Result<Copied, String>> {
    let limit = call.policy().limit();
    let bytes = part.touched.end - part.touched.start;
    let share = loop {
        match BUDGET.take(bytes, limit) {
            Answer::Taken(share) => break share,
            Answer::Wait if finish_oldest() => {}
            Answer::Wait | Answer::TooLarge => {
                let limit = limit >> 20;
                return Ok(Err(format!(
                    "a copy would take more than max_mem_mb={limit}"
                )));
            }
        }
    };
    let mut after = stream.filter(|_| !part.is_on_host);
    if let (true, Some(stream)) = (waits, after) {
        // It may be gone when the operation begins.
        stream.synchronize(Memory::at(part.buffer)?.device.max(0))?;
        after = None;
    }
    // SAFETY: the caller vouches for the buffer.
    match unsafe { Snapshot::take(part.buffer, part.touched.clone(), after) } {
        Ok(taken) => Ok(Ok((taken, share))),
        Err(error) if error.kind() == penstock_engine::error::Kind::Memory => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
