//! Requests: transfers in flight.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Deref;
use std::time::Duration;

use penstock_array::Holes;
use penstock_array::execute::SubmitOptions;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Order, Request, StreamOrder, Waited, submit, submit_save};
use penstock_engine::{Stream, refuse_fork};
use penstock_hdf5::transfer;

use crate::arguments::{null, path_of, place_of};
use crate::error::{OK, PENDING, TURN, guard, guard_status};
use crate::file::{CFile, file_of};
use crate::handle::{Table, release};
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};
use crate::transfer::{CRange, extents_of};

const AFTER_STREAM: c_int = 1;
const STREAM_WAITS: c_int = 2;
const CALLER_WAITS: c_int = 4;
/// Flag of the submitting functions; 8 is a flag of `penstock_reader_read` only.
const ZERO_HOLES: c_int = 16;

/// The type to which a `penstock_request *` points; see [`crate::handle`].
pub(crate) enum CRequest {}

static REQUESTS: Table<AnyRequest> = Table::new("request");

/// The request behind a handle.
pub(crate) enum AnyRequest {
    /// A transfer of the bytes of a file.
    Plain(Request),
    /// A transfer of a dataset.
    Dataset(transfer::TransferHandle),
}

impl AnyRequest {
    fn step(&self) -> bool {
        match self {
            AnyRequest::Plain(request) => request.step(),
            AnyRequest::Dataset(transfer) => transfer.step(),
        }
    }

    /// Returns the status of a wait. A request is pending if this thread cannot take its step;
    /// otherwise a program that takes steps while the status requests them would never end.
    fn status(&self, waited: Waited<Error>) -> Result<c_int> {
        match (status(waited)?, self) {
            (TURN, AnyRequest::Dataset(transfer)) if transfer.is_postponed() => Ok(PENDING),
            (status, _) => Ok(status),
        }
    }

    /// Waits until the request is finished, and leaves its outcome unreported.
    fn wait_unreported(&self) {
        match self {
            AnyRequest::Plain(request) => {
                request.watch(None);
            }
            AnyRequest::Dataset(transfer) => {
                transfer.wait_at_most(&|| None);
            }
        }
    }
}

impl Deref for AnyRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        match self {
            AnyRequest::Plain(request) => request,
            AnyRequest::Dataset(transfer) => transfer,
        }
    }
}

/// # Safety
/// `stream` is a live stream if one of the first two flags is set.
unsafe fn order_of(stream: *mut c_void, flags: c_int) -> Result<Option<StreamOrder>> {
    if flags & !(AFTER_STREAM | STREAM_WAITS | CALLER_WAITS) != 0 {
        return Err(Error::invalid(format!(
            "unknown submit flags in {flags:#x}"
        )));
    }
    let is_ordered = flags & (AFTER_STREAM | STREAM_WAITS) != 0;
    Ok(is_ordered.then(|| StreamOrder {
        // SAFETY: by contract of this function.
        stream: unsafe { Stream::from_raw(stream) },
        after: flags & AFTER_STREAM != 0,
        before: flags & STREAM_WAITS != 0,
    }))
}

/// Options, stream and flags of a function that transfers an array.
pub(crate) type SubmitArguments = (*const COptions, *mut c_void, c_int);

/// Returns the submit options of the functions that transfer arrays.
///
/// # Safety
/// As for [`order_of`]; `options` as for [`options::read`].
pub(crate) unsafe fn submit_options(
    (options, stream, flags): SubmitArguments,
) -> Result<SubmitOptions> {
    let caller_waits = flags & CALLER_WAITS != 0;
    // SAFETY: by contract of this function.
    let (options, stream) = unsafe {
        (
            options::read(options)?,
            order_of(stream, flags & !ZERO_HOLES)?,
        )
    };
    Ok(SubmitOptions {
        options,
        stream,
        background: !caller_waits,
        waiter_shares: caller_waits,
        holes: if flags & ZERO_HOLES != 0 {
            Holes::Zero
        } else {
            Holes::Leave
        },
        owner: None,
    })
}

pub(crate) fn operation_of(number: c_int) -> Result<Operation> {
    match number {
        0 => Ok(Operation::Read),
        1 => Ok(Operation::Write),
        other => Err(Error::invalid(format!("unknown operation {other}"))),
    }
}

/// Stores a handle of the request in `place`. The C caller frees it.
pub(crate) fn store(place: &mut *mut CRequest, request: AnyRequest) {
    *place = REQUESTS.insert(request);
}

fn status(waited: Waited<Error>) -> Result<c_int> {
    match waited {
        Waited::Pending => Ok(PENDING),
        Waited::Step => Ok(TURN),
        Waited::Finished(outcome) => outcome.map(|()| OK),
    }
}

/// Returns the time limit of a wait; `None` for a negative number.
fn limit_of(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_submit(
    file: *mut CFile,
    operation: c_int,
    ranges: *const CRange,
    count: usize,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(request, "request")?;
        let operation = operation_of(operation)?;
        let extents = extents_of(ranges, count)?;
        let mut order = Order::new(operation, extents, options::read(options)?);
        order.background = flags & CALLER_WAITS == 0;
        order.waiter_shares = !order.background;
        let file = file_of(file)?;
        let submitted = submit(&file, order, order_of(stream, flags)?, None)?;
        store(place, AnyRequest::Plain(submitted));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_save_submit(
    path: *const c_char,
    buffer: *const c_void,
    length: u64,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(request, "request")?;
        let (path, options) = (path_of(path, "path")?, options::read(options)?);
        let order = order_of(stream, flags)?;
        let (memory, waiter_shares) = ((buffer as usize, length), flags & CALLER_WAITS != 0);
        let submitted = submit_save(path, memory, options, waiter_shares, order, None)?;
        store(place, AnyRequest::Plain(submitted));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_request_wait(request: *mut CRequest, timeout_ns: i64) -> c_int {
    guard_status(|| {
        let request = REQUESTS.get(request)?;
        request.status(request.wait(limit_of(timeout_ns)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_request_watch(request: *mut CRequest, timeout_ns: i64) -> c_int {
    guard_status(|| status(REQUESTS.get(request)?.watch(limit_of(timeout_ns))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_turn(request: *mut CRequest) -> c_int {
    guard(|| {
        let request = REQUESTS.get(request)?;
        if request.step() {
            Ok(())
        } else {
            Err(request.is_for_later())
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_request_test(request: *mut CRequest) -> c_int {
    guard_status(|| {
        let request = REQUESTS.get(request)?;
        request.status(request.test())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_request_cancel(request: *mut CRequest) -> c_int {
    guard(|| {
        REQUESTS.get(request)?.cancel();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_progress(request: *mut CRequest, bytes: *mut u64) -> c_int {
    guard(|| {
        let request = REQUESTS.get(request)?;
        // SAFETY: by contract of this function.
        *unsafe { place_of(bytes, "bytes")? } = request.moved();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_arrived(request: *mut CRequest, bytes: *mut u64) -> c_int {
    guard(|| {
        let request = REQUESTS.get(request)?;
        // SAFETY: by contract of this function.
        *unsafe { place_of(bytes, "bytes")? } = request.arrived();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_report(
    request: *mut CRequest,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard_status(|| unsafe {
        if report.is_null() {
            return Err(null("report"));
        }
        check_size(report)?;
        let done = REQUESTS.get(request)?.report();
        Ok(done.map_or(PENDING, |done| {
            report::write(report, &done);
            OK
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_fd(request: *mut CRequest, fd: *mut c_int) -> c_int {
    guard(|| {
        let request = REQUESTS.get(request)?;
        // SAFETY: by contract of this function.
        *unsafe { place_of(fd, "fd")? } = request.descriptor()?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_hold_stream(
    request: *mut CRequest,
    stream: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: by contract, the stream is live.
        let stream = unsafe { Stream::from_raw(stream) };
        REQUESTS.get(request)?.hold_stream(stream)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_free(request: *mut CRequest) {
    guard(|| {
        if request.is_null() || refuse_fork().is_err() {
            return Ok(());
        }
        // penstock_hdf5_settle reports a failure that no call has returned.
        let request = REQUESTS.take(request)?;
        request.wait_unreported();
        if let AnyRequest::Dataset(transfer) = &*request {
            transfer.leave_if_ended();
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_request_release(place: *mut *mut CRequest) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |request| penstock_request_free(request)) };
}
