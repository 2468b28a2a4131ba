//! Encoded chunks that have no storage yet.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use penstock_array::execute::{EncodedChunks, submit};
use penstock_engine::file::position::Operation;

use crate::arguments::{list, place_of};
use crate::array::CArray;
use crate::error::guard;
use crate::file::{CFile, file_of};
use crate::handle::Table;
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};
use crate::request::{AnyRequest, CRequest, store};
use crate::selection::CSelection;
use crate::stored::{CStored, prepare};

/// The type to which a `penstock_encoded *` points; see [`crate::handle`].
pub(crate) enum CEncoded {}

/// Calls hold the outer `Arc`; writes in flight hold the inner one.
static ENCODED: Table<Arc<EncodedChunks>> = Table::new("list of encoded chunks");

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stored_encode(
    stored: *mut CStored,
    selection: *const CSelection,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
    encoded: *mut *mut CEncoded,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        check_size(report)?;
        let place = place_of(encoded, "encoded")?;
        let arguments = (stored, selection, array, (options, stream, flags));
        let ((prepared, collected), address, with) =
            prepare(Operation::Write, arguments, |transfer| transfer.encode())?;
        let request = submit(prepared, address, None, with)?;
        request.finish()?;
        report::write_of(report, &request);
        *place = ENCODED.insert(Arc::new(collected.take()));
        Ok(())
    })
}

/// Writes a value to an array of the caller, unless the array is null.
///
/// # Safety
/// `start` is null or points to more than `at` values.
unsafe fn put<T>(start: *mut T, at: usize, value: T) {
    if !start.is_null() {
        // SAFETY: by contract of this function.
        unsafe { start.add(at).write(value) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_encoded_list(
    encoded: *mut CEncoded,
    count: *mut u64,
    numbers: *mut u64,
    sizes: *mut u64,
    masks: *mut u32,
    bytes: *mut *const c_void,
) -> c_int {
    // SAFETY: by contract, each list that is not null has room for all chunks.
    guard(|| unsafe {
        let chunks = ENCODED.get(encoded)?;
        *place_of(count, "count")? = chunks.list().len() as u64;
        for (at, (number, stored, mask)) in chunks.list().enumerate() {
            put(numbers, at, number);
            put(sizes, at, stored.len() as u64);
            put(masks, at, mask);
            put(bytes, at, stored.as_ptr().cast());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_encoded_write_submit(
    encoded: *mut CEncoded,
    file: *mut CFile,
    addresses: *const u64,
    count: u64,
    options: *const COptions,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(request, "request")?;
        let chunks = ENCODED.get(encoded)?;
        let addresses = list(addresses, count, "addresses")?;
        let options = options::read(options)?;
        let started = chunks.submit(&*file_of(file)?, addresses, options)?;
        store(place, AnyRequest::Plain(started));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_encoded_close(encoded: *mut CEncoded) -> c_int {
    guard(|| ENCODED.close(encoded))
}
