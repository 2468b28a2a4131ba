//! Starting what is planned, at once or later, from the memory of the application or from a copy.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use penstock_engine::Stream;
use penstock_engine::error::{Kind, Result};
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::reach;
use penstock_engine::request::{Request, StreamOrder};
use penstock_engine::snapshot::{Snapshot, Taken};

use super::budget::{Answer, Budget, Share};
use super::finish_oldest;
use super::journal::Manner;
use super::operation::{Begun, Moving, Queued, Work};
use super::planned::Part;
use super::transfer::Call;
use penstock_array::execute::{PreparedTransfer, SubmitOptions, submit};
use penstock_hdf5::transfer::conflicts::AccessSet;
use penstock_hdf5::transfer::is_done;

/// Memory that copies have taken.
static BUDGET: Budget = Budget::new();

/// What goes on, and what it touches.
pub type Going = (Vec<AccessSet>, Work);

/// Starts the planned transfers. What is to go on is given back, the rest is left in `moving`, to be
/// waited for.
///
/// # Safety
/// As for [`transfer`](super::transfer::transfer).
pub unsafe fn start(
    call: &Call<'_>,
    parts: Vec<(Part, AccessSet)>,
    stream: Option<Stream>,
    moving: &mut Moving,
) -> Result<Option<Going>> {
    let goes_on = call.goes_on();
    let waits = goes_on && call.policy().waits();
    let (mut sets, mut bytes) = (Vec::new(), 0);
    let (mut loans, mut starts) = (Vec::new(), Vec::new());
    for (part, set) in parts {
        if is_done(&part.prepared) {
            if goes_on {
                call.tell(Manner::Sync, 0, "nothing is selected");
            }
            continue;
        }
        let length = part.touched.end - part.touched.start;
        if part.is_on_host {
            let first = part.buffer.wrapping_add(part.touched.start as usize);
            reach::check(first, length as usize, call.kind.use_of_memory())?;
        }
        let mut after = stream.filter(|_| !part.is_on_host);
        if let (true, Some(stream)) = (waits, after) {
            // It may be gone when the operation begins.
            stream.synchronize(Memory::at(part.buffer)?.device.max(0))?;
            after = None;
        }
        let is_copied = goes_on && call.is_copied();
        // SAFETY: passed on.
        let copied = is_copied.then(|| unsafe { copy(call, &part, after) });
        let source = match copied.transpose()? {
            Some(Ok(copy)) => copy,
            Some(Err(why)) => {
                call.tell(Manner::Sync, length, &why);
                let source = Source::lent(&part, after);
                Start::of(part.options, part.prepared, source, false)
                    .run()?
                    .finish()?;
                continue;
            }
            None => Source::lent(&part, after),
        };
        let start = Start::of(part.options, part.prepared, source, goes_on);
        if !goes_on {
            moving.begun.requests.push(Arc::new(start.run()?));
            moving.loans.push(part.loan);
            continue;
        }
        bytes += length;
        sets.push(set);
        loans.push(part.loan);
        starts.push(start);
    }
    if starts.is_empty() {
        return Ok(None);
    }
    let queued = Queued {
        begin: Box::new(move || begin(starts)),
        loans,
    };
    if waits {
        let why = "begins later, as the environment asks";
        call.tell(Manner::Deferred, bytes, why);
        return Ok(Some((sets, Work::Queued(queued))));
    }
    let going = queued.begin();
    if going.begun.failed.is_some() {
        going.finish()?;
        return Ok(None);
    }
    call.tell(Manner::Async, bytes, "");
    Ok(Some((sets, Work::Moving(going))))
}

/// Begins transfers, up to the first that cannot begin.
fn begin(starts: Vec<Start>) -> Begun {
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
}

/// The memory that a transfer works with.
struct Source {
    address: usize,
    /// What work with it comes after, if it is the GPU's.
    after: Option<StreamOrder>,
    /// A copy.
    owner: Option<Box<dyn Any + Send>>,
}

impl Source {
    /// The memory of the application.
    fn lent(part: &Part, after: Option<Stream>) -> Source {
        // SAFETY: null is the default stream.
        let stream = after.unwrap_or_else(|| unsafe { Stream::from_raw(ptr::null_mut()) });
        let order = StreamOrder {
            stream,
            after: true,
            before: false,
        };
        Source {
            address: part.buffer,
            after: (!part.is_on_host).then_some(order),
            owner: None,
        }
    }

    fn copied(taken: Taken, share: Share<'static>) -> Source {
        Source {
            address: taken.snapshot.address(),
            after: taken.after,
            // The share goes last: then the memory is there again.
            owner: Some(Box::new((taken.snapshot, share))),
        }
    }
}

/// A transfer that is ready to be submitted.
struct Start {
    prepared: PreparedTransfer,
    address: usize,
    with: SubmitOptions,
}

impl Start {
    /// The memory stays as it is until the transfer is finished, as the application has promised where
    /// it is no copy.
    fn of(options: Options, prepared: PreparedTransfer, source: Source, background: bool) -> Start {
        Start {
            prepared,
            address: source.address,
            with: SubmitOptions {
                options,
                stream: source.after,
                background,
                owner: source.owner,
            },
        }
    }

    fn run(self) -> Result<Request> {
        // SAFETY: the application vouches for its memory, and turns are taken inside HDF5.
        unsafe { submit(self.prepared, self.address, None, self.with) }
    }
}

/// Copies what a write is to write; or says why that cannot be.
///
/// # Safety
/// As for [`transfer`](super::transfer::transfer).
unsafe fn copy(
    call: &Call<'_>,
    part: &Part,
    after: Option<Stream>,
) -> Result<std::result::Result<Source, String>> {
    let limit = call.policy().limit();
    let host = call.unders[0].container.below.host;
    let bytes = part.touched.end - part.touched.start;
    let share = loop {
        match BUDGET.take(bytes, limit) {
            Answer::Taken(share) => break share,
            Answer::Wait if finish_oldest(host) => {}
            Answer::Wait | Answer::TooLarge => {
                let limit = limit >> 20;
                return Ok(Err(format!(
                    "a copy would take more than max_mem_mb={limit}"
                )));
            }
        }
    };
    // SAFETY: the caller vouches for the buffer.
    match unsafe { Snapshot::take(part.buffer, part.touched.clone(), after) } {
        Ok(taken) => Ok(Ok(Source::copied(taken, share))),
        Err(error) if error.kind() == Kind::Memory => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
