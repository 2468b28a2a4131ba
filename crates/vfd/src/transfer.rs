//! Reads and writes of the driver. One system call moves HDF5's own data; the kind of memory
//! decides how raw data moves.

use std::borrow::Cow;
use std::time::Instant;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::{self, Operation, Stop};
use penstock_engine::file::side::FileSide;
use penstock_engine::memory::{self, Memory, MemoryKind};
use penstock_engine::options::{Choice, Options, RouteName};
use penstock_engine::report::{Counters, Path};
use penstock_engine::request::{self, Order};
use penstock_engine::{Extent, copy, refuse_fork};
use penstock_sys::hdf5::driver::{H5FD_MEM_DRAW, H5FD_mem_t};

use crate::account::Way;
use crate::file::{DriverFile, MAX_ADDRESS};
use crate::modes::{Mode, Plain};
use crate::sieve::{self, SelectionId};
use crate::survey::Survey;

/// Size from which several workers move raw data in host memory.
const LARGE: u64 = 4 << 20;

/// Number of ranges from which the engine moves raw data in host memory. It merges neighbouring
/// ranges.
const MANY: usize = 8;

impl DriverFile {
    /// Moves one range. A read past the end of the file returns zeros, as in the default driver.
    ///
    /// # Safety
    /// The memory of the extent is valid (for writing, if the operation is a read) until the call
    /// returns. It may be on a GPU if `kind` is raw data.
    pub(crate) unsafe fn move_range(
        &self,
        operation: Operation,
        kind: H5FD_mem_t,
        extent: Extent,
    ) -> Result<()> {
        self.check(operation, &extent)?;
        if kind != H5FD_MEM_DRAW {
            self.sieve.before(operation, &[extent])?;
            // SAFETY: upheld by the caller; only raw data may be outside host memory.
            return unsafe { self.move_host(operation, Way::Metadata, &extent) };
        }
        if is_on_gpu(extent.memory)? {
            let allocation = Memory::at(extent.memory)?;
            // SAFETY: upheld by the caller.
            return unsafe { self.move_gpu(operation, &[extent], vec![allocation]) };
        }
        // SAFETY: upheld by the caller.
        unsafe { self.move_raw_host(operation, &[extent], &Survey::of(&[extent]), None) }
    }

    /// Moves many ranges of raw data, in any mix of host and GPU memory. `selection` identifies the
    /// selection of all ranges. If a write covers bytes twice, the last range wins, as in the
    /// default driver.
    ///
    /// # Safety
    /// As for [`move_range`](Self::move_range), for each extent.
    pub(crate) unsafe fn move_raw(
        &self,
        operation: Operation,
        extents: &[Extent],
        selection: Option<SelectionId>,
    ) -> Result<()> {
        if let [extent] = extents {
            // SAFETY: upheld by the caller.
            return unsafe { self.move_range(operation, H5FD_MEM_DRAW, *extent) };
        }
        let survey = Survey::of(extents);
        if survey.end > self.limit(operation) {
            let check = |extent| self.check(operation, extent);
            extents.iter().try_for_each(check)?;
        }
        let is_write = operation == Operation::Write;
        if is_write && !survey.is_ascending && Extent::overlap(extents).is_some() {
            let one = |extent: &Extent| {
                // SAFETY: upheld by the caller.
                unsafe { self.move_range(operation, H5FD_MEM_DRAW, *extent) }
            };
            return extents.iter().try_for_each(one);
        }
        if !survey.has_empty && are_on_host(extents)? {
            // SAFETY: upheld by the caller.
            return unsafe { self.move_raw_host(operation, extents, &survey, selection) };
        }
        let (mut on_gpu, mut on_host) = (Vec::new(), Vec::new());
        // The CUDA driver's description of each GPU allocation found so far.
        let mut allocations: Vec<Memory> = Vec::new();
        for extent in extents.iter().filter(|extent| extent.length > 0) {
            let last = allocations.last().and_then(|memory| memory.range.as_ref());
            if last.is_some_and(|range| range.contains(&extent.memory)) {
                on_gpu.push(*extent);
            } else if is_on_gpu(extent.memory)? {
                allocations.push(Memory::at(extent.memory)?);
                on_gpu.push(*extent);
            } else {
                on_host.push(*extent);
            }
        }
        // SAFETY: upheld by the caller.
        unsafe {
            if !on_gpu.is_empty() {
                self.move_gpu(operation, &on_gpu, allocations)?;
            }
            self.move_raw_host(operation, &on_host, &Survey::of(&on_host), selection)
        }
    }

    /// Returns the address that no transfer of this operation may pass: the end of the allocated
    /// space (EOA). HDF5 checks it in `H5FD_read` and `H5FD_write`, but only the start of a
    /// selection. A SWMR reader may read past it, because the writer allocates space during the
    /// read.
    fn limit(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Read if self.is_swmr_reader => MAX_ADDRESS,
            Operation::Read | Operation::Write => self.eoa().min(MAX_ADDRESS),
        }
    }

    fn check(&self, operation: Operation, extent: &Extent) -> Result<()> {
        let end = extent.offset.checked_add(extent.length);
        if extent.length == 0 || end.is_some_and(|end| end <= self.limit(operation)) {
            return Ok(());
        }
        let (offset, length, eoa) = (extent.offset, extent.length, self.eoa());
        let what = format!("addr overflow, addr = {offset}, size = {length}, eoa = {eoa}");
        let error = Error::invalid(what).at(self.path(), offset, length);
        Err(error.remedy("select only elements that the dataset has"))
    }

    /// # Safety
    /// As for [`move_range`](Self::move_range), in host memory.
    unsafe fn move_raw_host(
        &self,
        operation: Operation,
        extents: &[Extent],
        survey: &Survey,
        selection: Option<SelectionId>,
    ) -> Result<()> {
        if extents.is_empty() {
            return Ok(());
        }
        let settings = self.settings_in_force()?;
        let keeps = self.keeps(operation, &settings);
        let is_sieved = match extents {
            [extent] => keeps && extent.length <= sieve::SMALL,
            _ => settings.mode == Mode::Auto && survey.follow_each_other,
        };
        if is_sieved {
            let way = Way::By(Path::HostBuffered);
            // SAFETY: upheld by the caller; the sieve passes parts of the extents.
            let directly = |extent: &Extent| unsafe { self.move_host(operation, way, extent) };
            // SAFETY: upheld by the caller.
            let (moved, joined) = unsafe {
                self.sieve
                    .run(operation, extents, selection, keeps, &directly)
            };
            self.account.joined(operation, &joined);
            moved?;
            if operation == Operation::Write {
                self.grown_to(survey.end);
            }
            return match operation {
                Operation::Write if !keeps => self.sync(),
                Operation::Read | Operation::Write => Ok(()),
            };
        }
        self.sieve.before(operation, extents)?;
        let is_much = survey.bytes >= LARGE || extents.len() >= MANY;
        if is_much && refuse_fork().is_ok() {
            if let Mode::Plain(plain) = settings.mode
                && plain.has_threads
            {
                let options = settings.options;
                // SAFETY: upheld by the caller.
                return unsafe { self.by_buffers(plain, operation, extents, options, false) };
            }
            if settings.mode == Mode::Auto {
                let options = host_options(settings.options);
                match self.engine() {
                    // SAFETY: upheld by the caller.
                    Ok(_) => return unsafe { self.by_engine(operation, extents, None, options) },
                    // Host memory needs only the descriptor, which is already open.
                    Err(error) => self.account.note(&format!("moved by one thread: {error}")),
                }
            }
        }
        for extent in extents {
            // SAFETY: upheld by the caller.
            unsafe { self.move_host(operation, Way::By(Path::HostBuffered), extent)? };
        }
        match operation {
            Operation::Read => Ok(()),
            // Makes the data durable if requested, as the engine does for its writes.
            Operation::Write => self.sync(),
        }
    }

    /// # Safety
    /// As for [`move_range`](Self::move_range), in GPU memory.
    unsafe fn move_gpu(
        &self,
        operation: Operation,
        extents: &[Extent],
        mut allocations: Vec<Memory>,
    ) -> Result<()> {
        self.sieve.before(operation, extents)?;
        // Work that the application has queued must finish before the driver accesses its memory,
        // as for cudaMemcpy.
        for memory in &allocations {
            copy::follow_default_stream(memory)?;
        }
        let is_managed = allocations.iter().any(|m| m.kind == MemoryKind::Managed);
        let memory = match allocations.len() {
            1 => allocations.pop(),
            _ => None,
        };
        let settings = self.settings_in_force()?;
        let mut options = settings.options;
        if let Mode::Plain(plain) = settings.mode {
            // SAFETY: upheld by the caller.
            return unsafe { self.by_buffers(plain, operation, extents, options, true) };
        }
        let is_gds = settings.mode == Mode::Gds;
        if is_gds {
            options.route = Some(RouteName::Gds);
            if is_managed {
                let error = Error::new(Kind::Unavailable, "cuFile does not take managed memory");
                return Err(error
                    .remedy("use memory from cudaMalloc, or mode=auto")
                    .in_file(self.path()));
            }
        }
        // SAFETY: upheld by the caller.
        let moved = unsafe { self.by_engine(operation, extents, memory, options) };
        moved.map_err(|error| {
            if !is_gds {
                return error;
            }
            // The mode determined the route.
            let remedy = error.remedy_text().replace("route=auto", "mode=auto");
            error.remedy(remedy)
        })
    }

    /// Moves extents without the engine. `is_on_gpu` says of all extents where their memory is.
    ///
    /// # Safety
    /// As for [`move_range`](Self::move_range).
    unsafe fn by_buffers(
        &self,
        plain: Plain,
        operation: Operation,
        extents: &[Extent],
        options: Options,
        is_on_gpu: bool,
    ) -> Result<()> {
        let since = Instant::now();
        // SAFETY: upheld by the caller.
        let within = unsafe { self.within_the_file(operation, extents)? };
        if within.is_empty() {
            return Ok(());
        }
        let (file, counters) = (self.engine()?, Counters::default());
        let side = FileSide::new(file, operation, &counters);
        // SAFETY: upheld by the caller.
        unsafe { plain.run(side, options, &within, is_on_gpu)? };
        let bytes = within.iter().map(|extent| extent.length).sum();
        self.account
            .moved(operation, plain.way(is_on_gpu), bytes, since);
        if operation == Operation::Write {
            self.grown_to(end_of(extents));
            if options.durable == Some(true) {
                return file.sync();
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`move_range`](Self::move_range).
    unsafe fn by_engine(
        &self,
        operation: Operation,
        extents: &[Extent],
        memory: Option<Memory>,
        options: Options,
    ) -> Result<()> {
        let since = Instant::now();
        // SAFETY: upheld by the caller.
        let within = unsafe { self.within_the_file(operation, extents)? };
        if within.is_empty() {
            return Ok(());
        }
        let file = self.engine()?;
        let mut order = Order::new(operation, &within, options);
        order.memory = memory;
        // SAFETY: upheld by the caller.
        let report = unsafe { request::run(file, order)? };
        self.account.moved_by_engine(operation, &report, since);
        if operation == Operation::Write {
            self.grown_to(end_of(extents));
        }
        Ok(())
    }

    /// Returns the extents before the end of the file. For a read, zeroes the memory of ranges past
    /// the end; a write has none.
    ///
    /// # Safety
    /// As for [`move_range`](Self::move_range).
    unsafe fn within_the_file<'a>(
        &self,
        operation: Operation,
        extents: &'a [Extent],
    ) -> Result<Cow<'a, [Extent]>> {
        let size = match operation {
            Operation::Read => self.engine()?.size()?,
            Operation::Write => u64::MAX,
        };
        if end_of(extents) <= size {
            return Ok(Cow::Borrowed(extents));
        }
        let mut within = Vec::with_capacity(extents.len());
        for extent in extents {
            let before = size.saturating_sub(extent.offset).min(extent.length);
            if before > 0 {
                within.push(Extent {
                    length: before,
                    ..*extent
                });
            }
            if before < extent.length {
                let beyond = (extent.length - before) as usize;
                // SAFETY: the tail of an extent that the caller guarantees to be valid.
                unsafe { copy::zero(extent.memory + before as usize, beyond)? };
            }
        }
        Ok(Cow::Owned(within))
    }

    /// Moves one range by one system call, or by several if the kernel transfers less at a time.
    ///
    /// # Safety
    /// As for [`move_range`](Self::move_range), in host memory.
    pub(crate) unsafe fn move_host(
        &self,
        operation: Operation,
        way: Way,
        extent: &Extent,
    ) -> Result<()> {
        let since = Instant::now();
        let buffer = extent.memory as *mut u8;
        let (length, offset) = (extent.length, extent.offset);
        // SAFETY: upheld by the caller.
        let (done, stop) = unsafe {
            position::transfer(None, self.descriptor(), operation, buffer, length, offset)
        };
        match stop {
            None => {}
            // SAFETY: the bytes from `done` to `length` are the caller's and were not read.
            Some(Stop::End) => unsafe {
                std::ptr::write_bytes(buffer.add(done as usize), 0, (length - done) as usize);
            },
            Some(Stop::Failed(error)) => {
                let action = match operation {
                    Operation::Read => "cannot read",
                    Operation::Write => "cannot write",
                };
                return Err(Error::os(&error, action).at(
                    self.path(),
                    offset + done,
                    length - done,
                ));
            }
        }
        if operation == Operation::Write {
            self.grown_to(offset + length);
        }
        self.account.moved(operation, way, length, since);
        Ok(())
    }

    /// Copies between two memory ranges of any kind, as HDF5 requires of a driver that manages
    /// memory.
    ///
    /// # Safety
    /// Both ranges are valid for `length` bytes, and do not overlap.
    pub(crate) unsafe fn copy(
        &self,
        destination: usize,
        source: usize,
        length: usize,
    ) -> Result<()> {
        // The child of a fork has no GPU.
        if refuse_fork().is_err() || memory::are_on_host([destination, source])? {
            // SAFETY: upheld by the caller; the CPU can access both ranges.
            unsafe {
                std::ptr::copy_nonoverlapping(source as *const u8, destination as *mut u8, length)
            };
            // Not counted: HDF5 requests one copy for each row of a chunk, and counting would take
            // as long as the copy.
            return Ok(());
        }
        let since = Instant::now();
        // SAFETY: upheld by the caller.
        unsafe { copy::copy(destination, source, length)? };
        self.account.copied(length as u64, since);
        Ok(())
    }
}

/// Returns the options for raw data in host memory. The default is the page cache, because programs
/// read the data again and HDF5's metadata is there.
fn host_options(options: Options) -> Options {
    Options {
        direct: options.direct.or(Some(Choice::No)),
        ..options
    }
}

/// Returns the largest end of an extent in the file.
fn end_of(extents: &[Extent]) -> u64 {
    let ends = extents.iter().map(|extent| extent.offset + extent.length);
    ends.max().unwrap_or(0)
}

/// Returns whether the memory is device or managed memory, which the CPU cannot or should not
/// access.
fn is_on_gpu(address: usize) -> Result<bool> {
    // The CUDA driver does not work in the child of a fork.
    Ok(refuse_fork().is_ok() && !memory::is_on_host(address)?)
}

/// Granularity of GPU memory: a page is completely on a GPU, or not at all.
const PAGE: usize = 4 << 10;

/// Returns whether no range is on a GPU. Does not query a range that begins in the same page as the
/// previous one: the memory is the caller's until the call returns.
fn are_on_host(extents: &[Extent]) -> Result<bool> {
    let mut last = usize::MAX;
    for extent in extents {
        let page = extent.memory / PAGE;
        if page != last && extent.length > 0 {
            if is_on_gpu(extent.memory)? {
                return Ok(false);
            }
            last = page;
        }
    }
    Ok(true)
}
