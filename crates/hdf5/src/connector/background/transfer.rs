//! Reading and writing datasets: what the engine carries out, and what is left to HDF5.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::memory::{Memory, is_on_host};
use penstock_engine::request::{Request, StreamOrder};
use penstock_engine::snapshot::{Snapshot, Taken};
use penstock_engine::{MemoryKind, Stream};
use penstock_sys::hdf5::connector::H5I_DATASET;
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use super::super::wrapped::{Req, Under, Wrapped};
use super::about::{bounds, ends_in_native, is_special};
use super::budget::{Answer, Budget, Share};
use super::journal::Manner;
use super::lend::Loan;
use super::operation::{Moving, Operation, Work};
use super::pending::{Access, Claim};
use super::staged::Staging;
use super::{Begins, attend, enter, finish_before, finish_oldest, is_idle};
use crate::connector::property::stream_of;
use crate::execute::{self, Manner as Submission};
use crate::read::{self, Order, Shape};
use crate::session::Session;
use crate::write;

/// Memory that copies have taken.
static BUDGET: Budget = Budget::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// The arguments of a callback. Each slice has an entry for each dataset.
pub struct Call<'a> {
    pub kind: Kind,
    pub datasets: &'a [&'a Wrapped],
    pub unders: &'a [Under],
    pub memory_types: &'a [hid_t],
    pub memory_spaces: &'a [hid_t],
    pub file_spaces: &'a [hid_t],
    pub list: hid_t,
    pub buffers: &'a [usize],
    pub req: Req,
}

/// How a call goes on.
pub enum Way {
    /// It is done, or a request.
    Done,
    /// The connector below is to do it.
    Below,
    /// As `Below`, with other buffers.
    Staged(Staging),
}

/// A transfer of one dataset that is planned.
struct Part {
    loan: Loan,
    prepared: Prepared,
    buffer: usize,
    is_on_host: bool,
    /// The bytes of the memory that it touches.
    touched: Range<u64>,
}

enum Prepared {
    Read(Box<read::Prepared>),
    Write(Box<write::Prepared>),
}

impl Prepared {
    /// Whether nothing is left to do, and why HDF5 has done it.
    fn is_done(&self) -> (bool, Option<&str>) {
        match self {
            Prepared::Read(read) => (read.readings.is_empty(), read.reason.as_deref()),
            Prepared::Write(write) => (write.is_done(), write.reason.as_deref()),
        }
    }

    fn length(&self) -> u64 {
        match self {
            Prepared::Read(read) => read.length,
            Prepared::Write(write) => write.length,
        }
    }

    /// # Safety
    /// As for [`execute::submit`] and [`execute::write::submit`].
    unsafe fn submit(self, address: usize, manner: Submission) -> Result<Request> {
        // SAFETY: passed on.
        unsafe {
            match self {
                Prepared::Read(read) => execute::submit(*read, address, manner),
                Prepared::Write(write) => execute::write::submit(*write, address, manner),
            }
        }
    }
}

/// Carries out a call, or says who is to do it. What conflicts with it is finished then.
///
/// # Safety
/// The thread is inside the callback with these arguments, which are as HDF5 gives them.
pub unsafe fn transfer(call: &Call<'_>) -> Result<Way> {
    let first = &call.unders[0];
    if first.is_lent {
        return Ok(Way::Below);
    }
    attend();
    let policy = &first.container.policy;
    let goes_on = !call.req.is_null() || (policy.is_implicit() && call.kind == Kind::Write);
    let mut on_gpu = false;
    for buffer in call.buffers {
        on_gpu |= !is_on_host(*buffer)?;
    }
    if !goes_on && !on_gpu {
        // SAFETY: passed on.
        unsafe { keep_order(call)? };
        policy.failures.take()?;
        return Ok(Way::Below);
    }
    // SAFETY: passed on.
    unsafe {
        let stream = stream_of(first.container.below.host, call.list)?;
        if let Some(why) = only_below(call, stream.is_plain) {
            keep_order(call)?;
            tell(call, Manner::Sync, 0, &why);
            return match on_gpu {
                true => Ok(Way::Staged(stage(call, stream.stream)?)),
                false => Ok(Way::Below),
            };
        }
        let mut moving = Moving::default();
        let mut parts = Vec::with_capacity(call.unders.len());
        let done: Result<()> = (0..call.unders.len()).try_for_each(|at| {
            let loan = Loan::of(&call.unders[at], H5I_DATASET)?;
            let about = call.datasets[at].about(&call.unders[at], &loan)?;
            let claim = about.claim(&call.unders[at], call.file_spaces[at], call.kind.access());
            if finish_before(&claim) > 0 && goes_on {
                tell(
                    call,
                    Manner::Async,
                    0,
                    "came after pending operations that it conflicts with",
                );
            }
            parts.push((prepare(call, at, loan)?, claim));
            Ok(())
        });
        if let (Err(error), false) = (&done, on_gpu) {
            // HDF5 has its own words for what is wrong, or can do it.
            tell(call, Manner::Sync, 0, &error.to_string());
            return Ok(Way::Below);
        }
        let started = done.and_then(|()| start(call, parts, stream.stream, goes_on, &mut moving));
        match started {
            Ok(Some(claims_and_work)) => hand_over(call, claims_and_work),
            Ok(None) => finish(moving)?,
            Err(error) => {
                let _ = finish(moving);
                return Err(error);
            }
        }
    }
    Ok(Way::Done)
}

/// What goes on, and what it touches.
type Going = (Vec<Claim>, Work);

/// Waits for the transfers of a call.
fn finish(moving: Moving) -> Result<()> {
    let ends = moving.requests.iter().map(|request| request.finish());
    ends.fold(Ok(()), Result::and)
}

impl Kind {
    fn access(self) -> Access {
        match self {
            Kind::Read => Access::Read,
            Kind::Write => Access::Write,
        }
    }

    fn name(self, has_request: bool) -> &'static CStr {
        match (self, has_request) {
            (Kind::Read, false) => c"H5Dread",
            (Kind::Read, true) => c"H5Dread_async",
            (Kind::Write, false) => c"H5Dwrite",
            (Kind::Write, true) => c"H5Dwrite_async",
        }
    }
}

impl Call<'_> {
    fn name(&self) -> &'static CStr {
        self.kind.name(!self.req.is_null())
    }
}

fn tell(call: &Call<'_>, manner: Manner, bytes: u64, why: &str) {
    if let Some(journal) = &call.unders[0].container.policy.journal {
        journal.tell(&call.name().to_string_lossy(), manner, bytes, why);
    }
}

/// Finishes what the call must come after.
///
/// # Safety
/// As for [`transfer`].
unsafe fn keep_order(call: &Call<'_>) -> Result<()> {
    if is_idle() {
        return Ok(());
    }
    for (at, under) in call.unders.iter().enumerate() {
        // SAFETY: passed on.
        unsafe {
            let loan = Loan::of(under, H5I_DATASET)?;
            let about = call.datasets[at].about(under, &loan)?;
            let claim = about.claim(under, call.file_spaces[at], call.kind.access());
            finish_before(&claim);
        }
    }
    Ok(())
}

/// Why only the connector below can carry the call out.
///
/// # Safety
/// As for [`transfer`].
unsafe fn only_below(call: &Call<'_>, is_plain: bool) -> Option<String> {
    let first = &call.unders[0].container;
    // SAFETY: passed on.
    let is_native = *first
        .is_native
        .get_or_init(|| unsafe { ends_in_native(&call.unders[0]) });
    if !is_native {
        return Some("the connector below does not store in HDF5's own files".to_owned());
    }
    if !is_plain {
        return Some("the transfer property list has properties that only HDF5 heeds".to_owned());
    }
    let spaces = call.memory_spaces.iter().chain(call.file_spaces);
    if spaces
        .clone()
        .any(|space| *space != H5S_ALL && is_special(*space))
    {
        return Some("a dataspace is given by H5S_BLOCK or H5S_PLIST".to_owned());
    }
    None
}

/// Plans the transfer of one dataset, or lets HDF5 do it.
///
/// # Safety
/// As for [`transfer`].
unsafe fn prepare(call: &Call<'_>, at: usize, loan: Loan) -> Result<Part> {
    let under = &call.unders[at];
    let buffer = call.buffers[at];
    let is_on_host = is_on_host(buffer)?;
    let order = Order {
        dataset: loan.id(),
        memory_type: call.memory_types[at],
        shape: Shape::Space(call.memory_spaces[at]),
        file_space: call.file_spaces[at],
        transfer: call.list,
        options: under.container.policy.options(),
    };
    let host = match is_on_host {
        true => buffer as *mut u8,
        false => std::ptr::null_mut(),
    };
    // SAFETY: the thread is inside a call of this HDF5, and the caller vouches for the buffer.
    let (prepared, element) = unsafe {
        let session = Session::begin(under.container.below.host.hdf5);
        let prepared = match call.kind {
            Kind::Read => Prepared::Read(Box::new(read::prepare(&session, &order, host)?)),
            Kind::Write => Prepared::Write(Box::new(write::prepare(&session, &order, host)?)),
        };
        (prepared, order.memory_size(&session)?)
    };
    let whole = 0..prepared.length();
    let touched = match is_on_host {
        // SAFETY: passed on.
        true => unsafe { touched(under, call.memory_spaces[at], element) }.unwrap_or(whole),
        // A pointer into the middle of an allocation would have to be told from others.
        false => whole,
    };
    Ok(Part {
        loan,
        prepared,
        buffer,
        is_on_host,
        touched,
    })
}

/// From the first byte to the last that a selection in memory touches.
///
/// # Safety
/// As for [`bounds`].
unsafe fn touched(under: &Under, space: hid_t, element: u64) -> Option<Range<u64>> {
    // SAFETY: passed on.
    let (low, high) = unsafe { bounds(under, space)? };
    let hdf5 = under.container.below.host.hdf5;
    let mut sizes = vec![0u64; low.len()];
    // SAFETY: there is room for as many numbers as the space has dimensions.
    let rank = unsafe {
        (hdf5.H5Sget_simple_extent_dims)(space, sizes.as_mut_ptr(), std::ptr::null_mut())
    };
    if usize::try_from(rank) != Ok(low.len()) {
        return None;
    }
    let offset = |corner: &[u64]| {
        let sides = corner.iter().zip(&sizes);
        sides.fold(0u64, |sum, (at, size)| {
            sum.wrapping_mul(*size).wrapping_add(*at)
        })
    };
    let (first, last) = (offset(&low), offset(&high));
    Some(first.checked_mul(element)?..last.checked_add(1)?.checked_mul(element)?)
}

/// Starts the planned transfers. What is to go on is given back, the rest is left in `moving`, to be
/// waited for.
///
/// # Safety
/// As for [`transfer`].
unsafe fn start(
    call: &Call<'_>,
    parts: Vec<(Part, Claim)>,
    stream: Option<Stream>,
    goes_on: bool,
    moving: &mut Moving,
) -> Result<Option<Going>> {
    let policy = &call.unders[0].container.policy;
    let copies = goes_on && call.kind == Kind::Write && policy.copies();
    let waits = goes_on && policy.begins != Begins::Now;
    let mut queue: Vec<(Loan, Start)> = Vec::new();
    let (mut claims, mut bytes) = (Vec::new(), 0);
    for (part, claim) in parts {
        if let (true, why) = part.prepared.is_done() {
            if goes_on {
                let why = why.unwrap_or("nothing is selected");
                tell(call, Manner::Sync, 0, why);
            }
            continue;
        }
        let length = part.touched.end - part.touched.start;
        let copied = match copies {
            // SAFETY: passed on.
            true => match unsafe { copy(call, &part, stream, waits)? } {
                Ok(copied) => Some(copied),
                Err(why) => {
                    tell(call, Manner::Sync, length, &why);
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
            moving.requests.push(Arc::new(begin.run()?));
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
    let begin = move || {
        let mut moving = Moving::default();
        for (loan, start) in queue {
            match start.run() {
                Ok(request) => {
                    moving.requests.push(Arc::new(request));
                    moving.loans.push(loan);
                }
                Err(error) => {
                    let _ = finish(moving);
                    return Err(error);
                }
            }
        }
        Ok(moving)
    };
    if waits {
        tell(
            call,
            Manner::Deferred,
            bytes,
            "begins when it is closed, as the environment asks",
        );
        return Ok(Some((claims, Work::Queued(Box::new(begin)))));
    }
    let going = begin()?;
    tell(call, Manner::Async, bytes, "");
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
        let options = call.unders[0].container.policy.options();
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
/// As for [`transfer`].
unsafe fn copy(
    call: &Call<'_>,
    part: &Part,
    stream: Option<Stream>,
    waits: bool,
) -> Result<std::result::Result<Copied, String>> {
    let limit = call.unders[0].container.policy.limit();
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

/// Makes a request of what goes on.
///
/// # Safety
/// As for [`transfer`].
unsafe fn hand_over(call: &Call<'_>, (claims, work): Going) {
    let container = &call.unders[0].container;
    let later = call
        .req
        .is_null()
        .then(|| Arc::clone(&container.policy.failures));
    let operation = Operation::new(call.name(), later, work);
    enter(claims, &operation);
    if !call.req.is_null() {
        // SAFETY: HDF5 gives a place for a request.
        unsafe { *call.req = Wrapped::request(&operation, container) };
    }
}

/// Host memory for the buffers of a call that the connector below is to carry out.
///
/// # Safety
/// As for [`transfer`].
unsafe fn stage(call: &Call<'_>, stream: Option<Stream>) -> Result<Staging> {
    let host = call.unders[0].container.below.host;
    if let Some(stream) = stream {
        let on_gpu = call.buffers.iter().map(|buffer| Memory::at(*buffer));
        for memory in on_gpu.collect::<Result<Vec<_>>>()? {
            if matches!(memory.kind, MemoryKind::Device | MemoryKind::Managed) {
                stream.synchronize(memory.device.max(0))?;
            }
        }
    }
    let bytes = |at: usize| {
        let space = match call.memory_spaces[at] {
            H5S_ALL => call.file_spaces[at],
            own => own,
        };
        if space != H5S_ALL && is_special(space) {
            return Err(
                Error::invalid("GPU memory cannot be described by H5S_BLOCK or H5S_PLIST")
                    .remedy("give a dataspace for the memory"),
            );
        }
        // SAFETY: passed on; HDF5 checks the identifiers.
        unsafe {
            let elements = match space {
                H5S_ALL => {
                    let loan = Loan::of(&call.unders[at], H5I_DATASET)?;
                    let space = (host.hdf5.H5Dget_space)(loan.id());
                    let elements = (host.calls.H5Sget_simple_extent_npoints)(space);
                    (host.hdf5.H5Sclose)(space);
                    elements
                }
                own => (host.calls.H5Sget_simple_extent_npoints)(own),
            };
            let size = (host.hdf5.H5Tget_size)(call.memory_types[at]) as u64;
            let elements = u64::try_from(elements).ok();
            let bytes = elements.and_then(|elements| elements.checked_mul(size));
            bytes.ok_or_else(|| Error::invalid("HDF5 does not tell how large the memory is"))
        }
    };
    // SAFETY: the caller vouches for buffers of this size.
    unsafe { Staging::of(call.buffers, bytes) }
}
