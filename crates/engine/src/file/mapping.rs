//! Writes new data of a file through shared mappings, in which writers do not exclude each other.
//!
//! `pwrite` holds the lock of the inode, so that all writers of a file on a local file system, in
//! all processes, together reach the rate of one. Page faults of a mapping take no such lock. See
//! decisions/0023.
//!
//! 1. Only holes are mapped. A fault on data that is not cached would read it from the medium, and
//!    one on a part of a large cached page costs as much as the whole page. Rows that several
//!    processes write together are mapped with the gaps between them, where blocks are unwritten.
//! 2. The blocks of a hole are allocated first. Otherwise each fault reserves them, which takes as
//!    long as a write.
//! 3. Mappings consist of units of 2 MiB, in the file and in memory, and request pages of that
//!    size, so that one fault maps a unit. Otherwise the faults of neighbouring workers fill the
//!    page cache with smaller pages, each of which is mapped by many faults: eight workers then
//!    wrote 1 GB/s.
//! 4. The kernel copies into the mapping, by `process_vm_readv` from this process to itself. A
//!    fault that fails, because the file was truncated or the medium failed, ends the copy early
//!    instead of raising SIGBUS. Unreadable memory of the caller also ends it early.
//! 5. `pwrite` writes the rest: the ends of ranges, and the part behind a copy that ended early. It
//!    also reports the cause.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::File;
use super::marks::Mark;
use super::room::limit;

/// Bytes of the largest page of the page cache that one fault maps.
const UNIT: u64 = 2 << 20;
/// The most mappings of a request.
const MOST: usize = 64;

/// What the mappings of a write cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Its ranges, each by itself.
    Ranges,
    /// Everything from the first row to the last, in a file whose gaps between these rows other
    /// processes fill. Only the rows are written. Nothing bypasses the page cache meanwhile: see
    /// [`marks`](super::marks).
    Rows,
}

/// The mapped ranges of a write, in the order of the file.
#[derive(Default)]
pub(crate) struct Mappings {
    mapped: Vec<Mapping>,
    /// Removed after the memory is unmapped.
    _mark: Option<Mark>,
}

impl Mappings {
    /// Maps the parts of these ranges that can be written through mappings. The ranges are sorted
    /// and do not overlap.
    pub(crate) fn of(file: &File, ranges: &[(u64, u64)], coverage: Coverage) -> Mappings {
        let (covered, mark) = match (coverage, ranges) {
            (Coverage::Rows, [first, .., last]) => match file.mark_rows() {
                Some(mark) => (&[(first.0, last.1)][..], Some(mark)),
                None => return Mappings::default(),
            },
            _ => (ranges, None),
        };
        let units = covered.iter().map(|range| whole_units(*range));
        let new = units.filter(|range| is_new(file, *range, coverage));
        let mapped = new.filter_map(|(start, end)| Mapping::of_new(file, start, end));
        Mappings {
            mapped: mapped.take(MOST).collect(),
            _mark: mark,
        }
    }

    /// Whether rows from `start` to `end`, and the gaps between them, can be mapped now.
    pub(crate) fn take_rows(file: &File, start: u64, end: u64) -> bool {
        is_new(file, whole_units((start, end)), Coverage::Rows)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }

    /// Writes the first bytes of a range, as far as one mapping reaches. Returns their number: 0 if
    /// the range begins outside all mappings, or cannot be written through one.
    ///
    /// # Safety
    /// `buffer` is valid for `length` bytes, which do not change until the call returns.
    unsafe fn write(&self, buffer: *const u8, offset: u64, length: u64) -> u64 {
        match self.mapped.iter().find(|mapping| mapping.contains(offset)) {
            // SAFETY: passed on.
            Some(mapping) => unsafe { mapping.write(buffer, offset, length) },
            None => 0,
        }
    }

    /// Splits a range where mappings begin and end, and calls `other` for the parts outside them.
    ///
    /// # Safety
    /// As for `write`.
    pub(crate) unsafe fn write_or<E>(
        &self,
        buffer: *mut u8,
        offset: u64,
        length: u64,
        mut other: impl FnMut(*mut u8, u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < length {
            // SAFETY: the rest of the caller's buffer.
            let (at, mapped) = unsafe {
                let at = buffer.add(done as usize);
                (at, self.write(at, offset + done, length - done))
            };
            let step = match mapped {
                0 => {
                    let step = self.next_start(offset + done).min(offset + length) - offset - done;
                    other(at, offset + done, step)?;
                    step
                }
                step => step,
            };
            done += step;
        }
        Ok(())
    }

    fn next_start(&self, offset: u64) -> u64 {
        let mut starts = self.mapped.iter().map(|mapping| mapping.start);
        starts.find(|start| *start > offset).unwrap_or(u64::MAX)
    }
}

/// The whole units of a range.
fn whole_units((start, end): (u64, u64)) -> (u64, u64) {
    (start.next_multiple_of(UNIT), end / UNIT * UNIT)
}

/// Whether units can be mapped, and have no data that a fault would read.
fn is_new(file: &File, (start, end): (u64, u64), coverage: Coverage) -> bool {
    // A mapping as large as the request would leave other threads little of a limited address
    // space.
    let is_limited = limit(libc::RLIMIT_AS) != Some(libc::RLIM_INFINITY);
    start < end
        && !is_limited
        && !REFUSED.load(Relaxed)
        && file.can_be_mapped()
        && match coverage {
            Coverage::Ranges => file.is_hole(start, end),
            Coverage::Rows => file.is_unwritten(start, end),
        }
        && file.surely_takes(start, end)
}

/// Whether the system refused the copy, which a sandbox may do.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// This thread's number, which names its process, also after the main thread has ended.
fn this_thread() -> libc::pid_t {
    // SAFETY: gettid touches no memory.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Units of a file in memory. Only the kernel reads or writes the memory, since an access of this
/// process could raise SIGBUS.
struct Mapping {
    start: u64,
    end: u64,
    address: *mut u8,
    /// The process that made it. Forked children do not have it.
    process: u32,
}

// SAFETY: a mapping belongs to no thread, and the kernel writes to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of_new(file: &File, start: u64, end: u64) -> Option<Mapping> {
        match file.allocate(start, end - start, true) {
            Ok(true) => Mapping::new(file, start, end),
            _ => None,
        }
    }

    fn new(file: &File, start: u64, end: u64) -> Option<Mapping> {
        let bytes = usize::try_from(end - start).ok()?;
        let unit = UNIT as usize;
        // A reservation that contains an address which is a multiple of a unit.
        let (kind, reserved) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, bytes + unit);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let place = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, kind, -1, 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        let before = place.addr().next_multiple_of(unit) - place.addr();
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.buffered_fd());
        let kind = libc::MAP_SHARED | libc::MAP_FIXED;
        let (none, start_in_file) = (libc::PROT_NONE, start as libc::off_t);
        // SAFETY: all addresses are within the place, which belongs to this call.
        let (mapped, is_usable) = unsafe {
            let address = place.byte_add(before);
            let mapped = libc::mmap(address, bytes, none, kind, fd, start_in_file);
            if mapped == libc::MAP_FAILED {
                libc::munmap(place, reserved);
                return None;
            }
            if before > 0 {
                libc::munmap(place, before);
            }
            if before < unit {
                libc::munmap(mapped.byte_add(bytes), unit - before);
            }
            // A forked child does not need the mapping.
            libc::madvise(mapped, bytes, libc::MADV_DONTFORK);
            // After mlockall(2), a mapping that can be accessed would be filled and locked at once.
            let is_usable = libc::munlock(mapped, bytes) == 0
                && libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) == 0
                && libc::mprotect(mapped, bytes, access) == 0;
            (mapped, is_usable)
        };
        let mapping = Mapping {
            start,
            end,
            address: mapped.cast(),
            process: std::process::id(),
        };
        is_usable.then_some(mapping)
    }

    fn contains(&self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }

    /// # Safety
    /// As for [`Mappings::write`].
    unsafe fn write(&self, buffer: *const u8, offset: u64, length: u64) -> u64 {
        let wanted = length.min(self.end - offset);
        let mut done = 0;
        while done < wanted {
            let bytes = (wanted - done) as usize;
            // SAFETY: `done` is within the buffer and within the mapping.
            let (from, to) = unsafe {
                let to = self.address.add((offset - self.start + done) as usize);
                (buffer.add(done as usize), to)
            };
            let from = libc::iovec {
                iov_base: from.cast_mut().cast(),
                iov_len: bytes,
            };
            let to = libc::iovec {
                iov_base: to.cast(),
                iov_len: bytes,
            };
            // SAFETY: the kernel checks both ranges. The caller vouches for the buffer, and only
            // the kernel touches the mapping.
            let moved = unsafe { libc::process_vm_readv(this_thread(), &to, 1, &from, 1, 0) };
            match u64::try_from(moved) {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(_) => {
                    let error = std::io::Error::last_os_error().raw_os_error();
                    if matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
                        REFUSED.store(true, Relaxed);
                    }
                    break;
                }
            }
        }
        done
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // SAFETY: this value owns the mapping, and no copy is in progress.
        unsafe { libc::munmap(self.address.cast(), (self.end - self.start) as usize) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::file::Access;
    use crate::options::Options;

    const LENGTH: u64 = 5 * UNIT;

    fn new_file(folder: &tempfile::TempDir) -> File {
        let access = Access {
            read: true,
            write: true,
            create: true,
            ..Access::default()
        };
        File::open(&folder.path().join("file"), access, Options::default()).unwrap()
    }

    fn contents(folder: &tempfile::TempDir) -> Vec<u8> {
        std::fs::read(folder.path().join("file")).unwrap()
    }

    fn bytes(count: u64) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    /// Writes the bytes from an offset. Returns the ranges that were left to `other`.
    fn write(mappings: &Mappings, file: &File, data: &[u8], offset: u64) -> Vec<(u64, u64)> {
        let mut others = Vec::new();
        let plain = std::fs::OpenOptions::new()
            .write(true)
            .open(file.path())
            .unwrap();
        // SAFETY: the buffer is the slice.
        unsafe {
            let start = data.as_ptr().cast_mut();
            mappings.write_or::<()>(start, offset, data.len() as u64, |at, offset, length| {
                others.push((offset, length));
                let part = std::slice::from_raw_parts(at, length as usize);
                plain.write_all_at(part, offset).unwrap();
                Ok(())
            })
        }
        .unwrap();
        others
    }

    #[test]
    fn a_noted_change_moves_the_time_of_change_and_no_byte() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder);
        let data = bytes(5000);
        std::fs::write(file.path(), &data).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let plain = std::fs::OpenOptions::new().write(true).open(file.path());
        plain.unwrap().set_modified(long_ago).unwrap();
        // Another process may have cut off the byte.
        file.note_change(5000);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), long_ago);
        file.note_change(4999);
        assert!(file.metadata().unwrap().modified().unwrap() > long_ago);
        assert_eq!(contents(&folder), data);
    }

    #[test]
    fn whole_units_of_a_hole_go_through_the_mapping_and_its_ends_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder);
        let offset = UNIT - 1000;
        let mappings = Mappings::of(&file, &[(offset, offset + LENGTH)], Coverage::Ranges);
        if mappings.is_empty() {
            eprintln!(
                "SKIPPED: the file system of the tests does not report which blocks a file has"
            );
            return;
        }
        let data = bytes(LENGTH);
        let others = write(&mappings, &file, &data, offset);
        assert_eq!(others, [(offset, 1000), (5 * UNIT, UNIT - 1000)]);
        drop(mappings);
        assert_eq!(contents(&folder)[offset as usize..], data);
    }

    #[test]
    fn allocated_ranges_of_a_file_are_not_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder);
        std::fs::write(file.path(), bytes(LENGTH)).unwrap();
        assert!(Mappings::of(&file, &[(0, LENGTH)], Coverage::Ranges).is_empty());
    }

    #[test]
    fn a_file_that_is_truncated_meanwhile_is_written_without_the_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder);
        let mappings = Mappings::of(&file, &[(0, LENGTH)], Coverage::Ranges);
        let plain = std::fs::OpenOptions::new().write(true).open(file.path());
        plain.unwrap().set_len(UNIT).unwrap();
        let data = bytes(LENGTH);
        write(&mappings, &file, &data, 0);
        assert_eq!(contents(&folder), data);
    }

    #[test]
    fn unreadable_memory_is_left_to_the_other_function() {
        let folder = tempfile::tempdir().unwrap();
        let file = new_file(&folder);
        let mappings = Mappings::of(&file, &[(0, LENGTH)], Coverage::Ranges);
        // SAFETY: `other` does not touch the buffer either.
        let failed = unsafe {
            mappings.write_or(
                ptr::without_provenance_mut(4096),
                0,
                LENGTH,
                |_, offset, _| Err(offset),
            )
        };
        assert_eq!(failed, Err(0));
    }

    #[test]
    fn a_descriptor_that_is_open_for_writing_only_is_not_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let plain = std::fs::File::create(&path).unwrap();
        let access = Access {
            write: true,
            ..Access::default()
        };
        let file = File::of_opened(plain.into(), &path, access, Options::default()).unwrap();
        assert!(Mappings::of(&file, &[(0, LENGTH)], Coverage::Ranges).is_empty());
    }
}
