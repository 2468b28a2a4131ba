//! Transfers between a file and memory.

use std::ffi::c_void;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use penstock_sys::cufile::*;

use super::handle::{self, Registered};
use super::session::{self, Mode};
use super::statistics::{self, Moved};
use super::{Failure, Result, buffer};
use crate::copy::move_bytes;
use crate::region::{Kind, Region};
use crate::{config, device, failure, memory};

/// Bytes of which memory, offset and length must be multiples for a direct transfer.
const ALIGNMENT: usize = 4096;
const PIECE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
}

/// The arguments of a transfer.
#[derive(Clone, Copy)]
pub struct Request {
    pub operation: Operation,
    pub handle: *mut c_void,
    pub base: usize,
    pub size: usize,
    pub file_offset: i64,
    pub buffer_offset: i64,
}

/// The region of a range; `None` for pageable host memory.
pub fn locate(address: usize, size: usize) -> Result<Option<Arc<Region>>> {
    let range_error = |_| Failure::Operation(CU_FILE_CUDA_POINTER_RANGE_ERROR);
    let region = memory::find_range(address, size).map_err(range_error)?;
    if region.is_none() && device::is_device_address(address) {
        return Err(Failure::Operation(CU_FILE_CUDA_POINTER_INVALID));
    }
    Ok(region)
}

/// Transfers synchronously on a thread of the client, which needs a context for device memory.
pub fn transfer(request: Request) -> Result<usize> {
    if device::is_device_address(request.base) {
        let context = device::top()?.ok_or(Failure::Operation(CU_FILE_INVALID_CONTEXT_ERROR))?;
        context.check()?;
    }
    let mode = session::ensure_open()?;
    let mut moved = Moved {
        write: request.operation == Operation::Write,
        device: None,
        path: Mode::Posix,
        aligned: true,
        bytes: None,
    };
    let result = execute(&request, mode, &mut moved);
    moved.bytes = result.ok();
    statistics::count_transfer(&moved);
    if let Err(error) = result {
        config::log(format_args!(
            "cuFile {:?} failed: {error:?}",
            request.operation
        ));
    }
    result
}

fn execute(request: &Request, mode: Mode, moved: &mut Moved) -> Result<usize> {
    let kind = match request.operation {
        Operation::Read => failure::Kind::CufileRead,
        Operation::Write => failure::Kind::CufileWrite,
    };
    if let Some(code) = failure::code(kind) {
        return Err(Failure::injected(code));
    }
    let registered = handle::find(request.handle)?;
    if !registered.is_open() {
        return Err(Failure::System(libc::EBADF));
    }
    let invalid = |_| Failure::Operation(CU_FILE_INVALID_VALUE);
    let offset = usize::try_from(request.buffer_offset).map_err(invalid)?;
    let file_offset = u64::try_from(request.file_offset).map_err(invalid)?;
    if request.base == 0 {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    if request.size == 0 {
        return Ok(0);
    }
    buffer::check(request.base, offset, request.size)?;
    let address = request.base + offset;
    let region = locate(address, request.size)?;
    let on_device = region.as_ref().filter(|region| !region.is_host());
    moved.device = on_device.map(|region| region.context.device);
    moved.path = if registered.direct && on_device.is_some() {
        mode
    } else {
        Mode::Posix
    };
    moved.aligned = [address, request.size, file_offset as usize]
        .into_iter()
        .all(|number| number.is_multiple_of(ALIGNMENT));
    std::thread::sleep(config::copy_time(request.size));
    let Some(region) = &region else {
        return move_plain(&registered, request, address as *mut u8, file_offset);
    };
    let freed = Failure::Operation(CU_FILE_CUDA_POINTER_INVALID);
    let _held = region.enter().ok_or(freed)?;
    let bytes = region.access(address);
    let result = match region.kind {
        Kind::Device => move_stored(&registered, request, bytes, file_offset),
        _ => move_plain(&registered, request, bytes, file_offset),
    };
    match result {
        // The real library (1.15) reports EPERM whatever error the system call had.
        Err(Failure::System(_)) if moved.path == Mode::Posix => Err(Failure::System(libc::EPERM)),
        result => result,
    }
}

/// Transfers directly between the file and memory that holds plain bytes.
fn move_plain(
    registered: &Registered,
    request: &Request,
    bytes: *mut u8,
    file_offset: u64,
) -> Result<usize> {
    in_pieces(request.size, request.size, |done, left| {
        let at = bytes.wrapping_add(done).cast::<c_void>();
        let (file, offset) = (
            registered.file.as_raw_fd(),
            (file_offset + done as u64) as i64,
        );
        // SAFETY: the client's range has `left` more bytes; for unmapped memory the system call
        // fails with EFAULT.
        let moved = unsafe {
            match request.operation {
                Operation::Read => libc::pread(file, at, left, offset),
                Operation::Write => libc::pwrite(file, at, left, offset),
            }
        };
        usize::try_from(moved).map_err(|_| Error::last_os_error())
    })
}

/// Transfers between the file and device memory, whose bytes are stored combined with the poison.
fn move_stored(
    registered: &Registered,
    request: &Request,
    stored: *mut u8,
    file_offset: u64,
) -> Result<usize> {
    let mut plain = vec![0u8; request.size.min(PIECE)];
    in_pieces(request.size, PIECE, |done, left| {
        let (plain, at) = (&mut plain[..left], stored.wrapping_add(done));
        let offset = file_offset + done as u64;
        match request.operation {
            Operation::Read => {
                let read = registered.file.read_at(plain, offset)?;
                // SAFETY: the region has `read` bytes from `at` on, and the caller holds it.
                unsafe { move_bytes(at, plain.as_ptr(), read, true) };
                Ok(read)
            }
            Operation::Write => {
                // SAFETY: the region has `left` bytes from `at` on, and the caller holds it.
                unsafe { move_bytes(plain.as_mut_ptr(), at, left, true) };
                registered.file.write_at(plain, offset)
            }
        }
    })
}

/// Calls `step` with the bytes done and the bytes to do next, at most `piece`, until all are done or
/// `step` transfers none. Returns the bytes done.
fn in_pieces(
    size: usize,
    piece: usize,
    mut step: impl FnMut(usize, usize) -> std::io::Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    while done < size {
        match step(done, (size - done).min(piece)) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::System(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
    Ok(done)
}
