//! Copies, fills, and operations on single words. Calls check them; the stream executes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::device::Context;
use crate::memory::{self, POISON};
use crate::region::{Kind, Region, Use};
use crate::status::{ILLEGAL_ADDRESS, INVALID_VALUE, Result};
use crate::stream::Stream;
use crate::{config, failure};

/// Pageable sources up to this size are staged, so that the call returns at once. As in the driver,
/// a call with a larger one waits.
const STAGED: usize = 64 << 10;

/// The sides that a call declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Determined from the addresses.
    Any,
}

/// The memory of one side of an operation.
enum Location {
    Known { region: Arc<Region>, address: usize },
    Pageable(usize),
    Staged(Vec<u8>),
}

/// Bytes that may be accessed while the region is held.
struct Bytes<'a> {
    at: *mut u8,
    poisoned: bool,
    /// Whether they may be pages of a file that is truncated. A GPU can still read pages that it has
    /// pinned, but the CPU would get SIGBUS.
    may_vanish: bool,
    _held: Option<Use<&'a Region>>,
}

impl Bytes<'_> {
    fn plain(at: *mut u8) -> Self {
        Bytes {
            at,
            poisoned: false,
            may_vanish: false,
            _held: None,
        }
    }

    /// As [`move_bytes`], from the byte `start` on.
    ///
    /// # Safety
    /// As for [`move_bytes`].
    unsafe fn copy_to(&self, start: usize, to: *mut u8, size: usize, poisoned: bool) {
        // SAFETY: by contract of this function.
        unsafe {
            let from = self.at.add(start);
            if self.may_vanish {
                move_pages(to, from, size, poisoned);
            } else {
                move_bytes(to, from, size, poisoned);
            }
        }
    }
}

impl Location {
    fn locate(context: &Context, address: usize, size: usize) -> Result<Location> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        Ok(match memory::find_range(address, size)? {
            // Memory that is pinned only for another device is pageable for this one.
            Some(region) if region.portable || region.context.device == context.device => {
                Location::Known { region, address }
            }
            _ => Location::Pageable(address),
        })
    }

    fn region(&self) -> Option<&Region> {
        match self {
            Location::Known { region, .. } => Some(region),
            _ => None,
        }
    }

    fn is_device(&self) -> bool {
        self.region()
            .is_some_and(|region| region.kind == Kind::Device)
    }

    /// Fails if the memory was freed or unregistered since the call.
    fn bytes(&mut self) -> Result<Bytes<'_>> {
        Ok(match self {
            Location::Known { region, address } => Bytes {
                at: region.access(*address),
                poisoned: region.kind == Kind::Device,
                may_vanish: region.read_only,
                _held: Some(region.enter().ok_or(ILLEGAL_ADDRESS)?),
            },
            Location::Pageable(address) => Bytes::plain(*address as *mut u8),
            Location::Staged(bytes) => Bytes::plain(bytes.as_mut_ptr()),
        })
    }
}

/// Rows of equal length, whose starts are regular distances apart on each side.
#[derive(Clone, Copy)]
pub struct Rows {
    pub width: usize,
    pub count: usize,
    pub to_pitch: usize,
    pub from_pitch: usize,
}

impl Rows {
    pub fn one(width: usize) -> Rows {
        Rows {
            width,
            count: 1,
            to_pitch: width,
            from_pitch: width,
        }
    }

    /// Bytes from the start of the first row to the end of the last one.
    fn span(&self, pitch: usize) -> usize {
        (self.count - 1) * pitch + self.width
    }
}

/// Queues a copy. The copy is complete on return if the driver guarantees it: with `wait`, unless
/// both sides are device memory, and whenever pageable memory cannot be staged.
pub fn copy(
    stream: &Arc<Stream>,
    destination: usize,
    source: usize,
    rows: Rows,
    direction: Direction,
    wait: bool,
) -> Result {
    let size = rows.width * rows.count;
    if size == 0 {
        return Ok(());
    }
    let from_span = rows.span(rows.from_pitch);
    let to = Location::locate(stream.context, destination, rows.span(rows.to_pitch))?;
    let mut from = Location::locate(stream.context, source, from_span)?;
    let fits = match direction {
        Direction::HostToDevice => to.region().is_some() && !from.is_device(),
        Direction::DeviceToHost => from.region().is_some() && !to.is_device(),
        Direction::DeviceToDevice => to.region().is_some() && from.region().is_some(),
        Direction::Any => true,
    };
    if !fits || to.region().is_some_and(|region| region.read_only) {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Copy)?;
    let mut wait = wait && !(to.is_device() && from.is_device());
    wait |= matches!(to, Location::Pageable(_));
    if let Location::Pageable(address) = from {
        if from_span <= STAGED && !wait {
            let mut staged = vec![0u8; from_span];
            for row in 0..rows.count {
                let start = row * rows.from_pitch;
                // SAFETY: by contract of the call, the rows are readable during it.
                unsafe {
                    let (from, to) = (address as *const u8, staged.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(from.add(start), to.add(start), rows.width)
                };
            }
            from = Location::Staged(staged);
        } else {
            wait = true;
        }
    }
    let ticket = stream.submit(config::copy_time(size), move |_| execute(to, from, rows))?;
    if wait {
        ticket.wait();
        stream.context.check()?;
    }
    Ok(())
}

fn execute(mut to: Location, mut from: Location, rows: Rows) -> Result {
    failure::check(failure::Kind::CopyExec)?;
    let (to, from) = (to.bytes()?, from.bytes()?);
    let poisoned = to.poisoned != from.poisoned;
    for row in 0..rows.count {
        // SAFETY: both ranges were checked against their regions, which are held until the copy is
        // done. Pageable memory stays valid because the call waits for the copy.
        unsafe {
            let to = to.at.add(row * rows.to_pitch);
            from.copy_to(row * rows.from_pitch, to, rows.width, poisoned);
        }
    }
    Ok(())
}

/// Fails, as a kernel does, if the GPU cannot access the memory.
pub fn check_access(context: &Context, address: usize, size: usize) -> Result {
    accessible(context, address, size).map(drop)
}

fn accessible(context: &Context, address: usize, size: usize) -> Result<Location> {
    let location = Location::locate(context, address, size).map_err(|_| ILLEGAL_ADDRESS)?;
    location.region().ok_or(ILLEGAL_ADDRESS)?;
    Ok(location)
}

/// Reads as a kernel does.
pub fn load(context: &Context, address: usize, size: usize) -> Result<Vec<u8>> {
    let mut location = accessible(context, address, size)?;
    let from = location.bytes()?;
    let mut to = vec![0u8; size];
    // SAFETY: the range was checked against its region, which is held until the copy is done.
    unsafe { from.copy_to(0, to.as_mut_ptr(), size, from.poisoned) };
    Ok(to)
}

/// Writes as a kernel does.
pub fn store(context: &Context, address: usize, bytes: &[u8]) -> Result {
    let mut location = accessible(context, address, bytes.len())?;
    if location.region().is_some_and(|region| region.read_only) {
        return Err(ILLEGAL_ADDRESS);
    }
    let to = location.bytes()?;
    // SAFETY: the range was checked against its region, which is held until the copy is done.
    unsafe { move_bytes(to.at, bytes.as_ptr(), bytes.len(), to.poisoned) };
    Ok(())
}

/// As [`move_bytes`], but Linux reads the source, so that missing pages read as zeros.
///
/// # Safety
/// `to` is valid for `size` bytes, and `from` is mapped.
unsafe fn move_pages(to: *mut u8, from: *const u8, size: usize, poisoned: bool) {
    let mut chunk = vec![0u8; size.min(256 << 10)];
    for start in (0..size).step_by(chunk.len().max(1)) {
        let length = chunk.len().min(size - start);
        chunk.fill(0);
        let part = |base: *mut u8| libc::iovec {
            iov_base: base.cast(),
            iov_len: length,
        };
        let (local, remote) = (
            part(chunk.as_mut_ptr()),
            part(from.wrapping_add(start).cast_mut()),
        );
        // SAFETY: the system call checks the source. The chunk has `length` bytes, and so has `to`
        // from `start` on. If the system call is not permitted, the source is read directly; it is
        // mapped by contract.
        unsafe {
            let read = libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0);
            let refused = std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
            let source = if read < 0 && refused {
                from.add(start)
            } else {
                chunk.as_ptr()
            };
            move_bytes(to.add(start), source, length, poisoned);
        }
    }
}

/// Copies bytes. If `poisoned`, converts stored device bytes to plain ones or back.
///
/// # Safety
/// Both ranges are valid for `size` bytes.
pub unsafe fn move_bytes(to: *mut u8, from: *const u8, size: usize, poisoned: bool) {
    if !poisoned {
        // SAFETY: by contract of this function; the ranges may overlap.
        unsafe { std::ptr::copy(from, to, size) };
        return;
    }
    const WORD: usize = size_of::<u64>();
    const POISON_WORD: u64 = u64::from_ne_bytes([POISON; WORD]);
    let words = size / WORD;
    for index in 0..words {
        // SAFETY: the word lies inside the ranges, which hold `words` whole ones.
        unsafe {
            let word = from.cast::<u64>().add(index).read_unaligned();
            to.cast::<u64>()
                .add(index)
                .write_unaligned(word ^ POISON_WORD);
        }
    }
    for index in words * WORD..size {
        // SAFETY: `index` is below `size`.
        unsafe { to.add(index).write(from.add(index).read() ^ POISON) };
    }
}

/// Queues a fill with one byte value.
pub fn fill(stream: &Arc<Stream>, destination: usize, value: u8, size: usize) -> Result {
    if size == 0 {
        return Ok(());
    }
    let mut to = Location::locate(stream.context, destination, size)?;
    if to.region().is_none_or(|region| region.read_only) {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Memset)?;
    stream.submit(config::copy_time(size), move |_| {
        let to = to.bytes()?;
        let stored = if to.poisoned { value ^ POISON } else { value };
        // SAFETY: the range was checked against its region, which is held until this is done.
        unsafe { to.at.write_bytes(stored, size) };
        Ok(())
    })?;
    Ok(())
}

/// A 32-bit word that streams wait for and write.
struct Word(Location);

impl Word {
    fn locate(context: &Context, address: usize) -> Result<Word> {
        let location = Location::locate(context, address, size_of::<u32>())?;
        let known = location
            .region()
            .is_some_and(|region| region.kind != Kind::Managed);
        if !known || !address.is_multiple_of(size_of::<u32>()) {
            return Err(INVALID_VALUE);
        }
        Ok(Word(location))
    }

    /// Calls `access` with the word and the mask with which its bytes are combined.
    fn with<T>(&mut self, access: impl FnOnce(&AtomicU32, u32) -> T) -> Result<T> {
        let bytes = self.0.bytes()?;
        let mask = if bytes.poisoned {
            u32::from_ne_bytes([POISON; 4])
        } else {
            0
        };
        // SAFETY: the four bytes belong to a region that is held. `locate` checked the alignment,
        // which pinned memory and stored device memory both preserve.
        Ok(access(
            unsafe { AtomicU32::from_ptr(bytes.at.cast()) },
            mask,
        ))
    }
}

/// Queues a wait until a word compares with `value` as `flags` of `cuStreamWaitValue32` specify.
pub fn wait_value(stream: &Arc<Stream>, address: usize, value: u32, flags: u32) -> Result {
    const FLUSH: u32 = 1 << 30;
    let reached: fn(u32, u32) -> bool = match flags & !FLUSH {
        0 => |word, value| word.wrapping_sub(value) as i32 >= 0,
        1 => |word, value| word == value,
        2 => |word, value| word & value != 0,
        3 => |word, value| !(word | value) != 0,
        _ => return Err(INVALID_VALUE),
    };
    let mut word = Word::locate(stream.context, address)?;
    stream.submit(config::launch_time(), move |stream| {
        while !word.with(|word, mask| reached(word.load(Ordering::Acquire) ^ mask, value))? {
            if stream.has_failed() {
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    })?;
    Ok(())
}
