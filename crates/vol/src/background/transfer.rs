//! Reading and writing datasets: what the engine carries out, and what is left to HDF5.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::memory::{Memory, is_on_host};
use penstock_engine::reach::Use;
use penstock_engine::{Stream, refuse_fork};
use penstock_sys::cuda::cuda_is_loaded;
use penstock_sys::hdf5::connector::{H5I_DATASET, Req};
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use super::about::{ends_in_native, is_special};
use super::delay::begin_after;
use super::journal::Manner;
use super::lend::Loan;
use super::operation::{Moving, Operation};
use super::planned::{Part, prepare, touched};
use super::policy::{Begins, Policy};
use super::start::{Going, start};
use super::{attend, concerns, enter, finish_before, finish_before_exit};
use crate::property::stream_of;
use crate::staging::{Staging, refuse_pointers};
use crate::wrapped::{Under, Wrapped};
use penstock_hdf5::transfer::conflicts::{Access, AccessSet};
use penstock_hdf5::transfer::{Planned, Refused, rewritten_blocks};

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

impl Kind {
    fn access(self) -> Access {
        match self {
            Kind::Read => Access::Read,
            Kind::Write => Access::Write,
        }
    }

    /// What the CPU does with the memory of the application.
    pub fn use_of_memory(self) -> Use {
        match self {
            Kind::Read => Use::Write,
            Kind::Write => Use::Read,
        }
    }
}

impl Call<'_> {
    fn name(&self) -> &'static CStr {
        match (self.kind, self.req.is_null()) {
            (Kind::Read, true) => c"H5Dread",
            (Kind::Read, false) => c"H5Dread_async",
            (Kind::Write, true) => c"H5Dwrite",
            (Kind::Write, false) => c"H5Dwrite_async",
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.unders[0].container.policy
    }

    /// Whether it may be done after it has returned.
    pub fn goes_on(&self) -> bool {
        !self.req.is_null() || (self.policy().is_implicit() && self.kind == Kind::Write)
    }

    /// Whether what it writes is copied when it goes on. Who waits for nothing cannot know when the
    /// memory is free.
    pub fn is_copied(&self) -> bool {
        self.kind == Kind::Write && (self.policy().copies() || self.req.is_null())
    }

    /// The dataspace of the memory: that of the file stands for H5S_ALL.
    pub fn memory_space(&self, at: usize) -> hid_t {
        match self.memory_spaces[at] {
            H5S_ALL => self.file_spaces[at],
            own => own,
        }
    }

    /// Whether the elements of the dataset at this place lie in host memory. The address that is given
    /// need not: only what is selected is there.
    ///
    /// # Safety
    /// As for [`transfer`].
    pub unsafe fn is_on_host(&self, at: usize) -> Result<bool> {
        if !cuda_is_loaded() {
            return Ok(true);
        }
        let host = self.unders[at].container.below.host;
        // SAFETY: passed on; HDF5 checks the identifiers.
        let touched = unsafe {
            let element = host.keeping_errors(|| (host.hdf5.H5Tget_size)(self.memory_types[at]));
            touched(&self.unders[at], self.memory_space(at), element as u64)
        };
        let first = touched.map_or(0, |range| range.start as usize);
        is_on_host(self.buffers[at].wrapping_add(first))
    }

    pub fn tell(&self, manner: Manner, bytes: u64, why: &str) {
        self.policy().tell(self.name(), manner, bytes, why);
    }

    /// What the transfer of each dataset touches, with an identifier of it.
    ///
    /// # Safety
    /// As for [`transfer`].
    unsafe fn sets(&self) -> Result<Vec<(Loan, AccessSet)>> {
        let set = |at: usize| {
            let under = &self.unders[at];
            // SAFETY: passed on.
            unsafe {
                let loan = Loan::of(under, H5I_DATASET)?;
                let about = self.datasets[at].about(under, &loan)?;
                let set = about.touches(under, self.file_spaces[at], self.kind.access());
                Ok((loan, set))
            }
        };
        (0..self.unders.len()).map(set).collect()
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
    attend(first.container.below.host);
    let mut is_on_gpu = false;
    for at in 0..call.buffers.len() {
        // SAFETY: passed on.
        is_on_gpu |= !unsafe { call.is_on_host(at)? };
    }
    // SAFETY: passed on.
    unsafe {
        if !call.goes_on() {
            keep_order(call)?;
            call.policy().failures.take()?;
            call.tell(Manner::Sync, 0, "called without an event set");
            if !is_on_gpu {
                return Ok(Way::Below);
            }
        }
        let list = stream_of(first.container.below.host, call.list)?;
        let below = |why: &str| {
            keep_order(call)?;
            if call.goes_on() {
                call.tell(Manner::Sync, 0, why);
            }
            match is_on_gpu {
                true => Ok(Way::Staged(stage(call, list.stream)?)),
                false => Ok(Way::Below),
            }
        };
        if let Some(why) = only_below(call, list.is_plain) {
            return below(why);
        }
        let parts = match planned(call)? {
            Ok(parts) => parts,
            Err(Refused(why)) => return below(&why),
        };
        if call.kind == Kind::Read {
            // What it reads may be what was not written.
            call.policy().failures.take()?;
        }
        let mut moving = Moving::default();
        match start(call, parts, list.stream, &mut moving) {
            Ok(Some(going)) => hand_over(call, going),
            Ok(None) => moving.finish()?,
            Err(error) => {
                let _ = moving.finish();
                return Err(error);
            }
        }
    }
    Ok(Way::Done)
}

/// Plans the transfer of each dataset, after what it conflicts with; or says why only HDF5 can carry out
/// the call.
///
/// # Safety
/// As for [`transfer`].
unsafe fn planned(call: &Call<'_>) -> Result<Planned<Vec<(Part, AccessSet)>>> {
    // SAFETY: passed on.
    let sets = unsafe { call.sets()? };
    let (loans, mut sets): (Vec<Loan>, Vec<AccessSet>) = sets.into_iter().unzip();
    if meet(&sets) {
        let why = "the call touches the same elements twice";
        return Ok(Err(Refused(why.to_owned())));
    }
    let host = call.unders[0].container.below.host;
    let mut waited = 0;
    for set in &sets {
        waited += finish_before(host, set);
    }
    let mut parts = Vec::with_capacity(sets.len());
    for (at, (loan, set)) in loans.into_iter().zip(&mut sets).enumerate() {
        // SAFETY: passed on.
        let part = match unsafe { prepare(call, at, loan)? } {
            Ok(part) => part,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(block) = rewritten_blocks(&part.prepared) {
            *set = set.clone().of_blocks(block);
            waited += finish_before(host, set);
        }
        parts.push(part);
    }
    if meet(&sets) {
        let why = "the call touches the same blocks of a dataset twice";
        return Ok(Err(Refused(why.to_owned())));
    }
    if waited > 0 && call.goes_on() {
        let why = "came after pending operations that it conflicts with";
        call.tell(Manner::Async, 0, why);
    }
    Ok(Ok(parts.into_iter().zip(sets).collect()))
}

/// Whether two of the access sets are on the same elements.
fn meet(sets: &[AccessSet]) -> bool {
    let is_met = |(at, set): (usize, &AccessSet)| {
        let is_same = |other: &AccessSet| other.is_elements() && set.conflicts(other);
        set.is_elements() && sets[..at].iter().any(is_same)
    };
    sets.iter().enumerate().any(is_met)
}

/// Finishes what the call must come after when HDF5 carries it out.
///
/// # Safety
/// As for [`transfer`].
unsafe fn keep_order(call: &Call<'_>) -> Result<()> {
    if call.unders.iter().any(concerns) {
        // SAFETY: passed on.
        for (_, set) in unsafe { call.sets()? } {
            finish_before(call.unders[0].container.below.host, &set.by_hdf5());
        }
    }
    Ok(())
}

/// Why only the connector below can carry the call out.
///
/// # Safety
/// As for [`transfer`].
unsafe fn only_below(call: &Call<'_>, is_plain: bool) -> Option<&'static str> {
    let first = &call.unders[0].container;
    if refuse_fork().is_err() {
        return Some("the process was forked from one that had used Penstock");
    }
    if first.is_parallel {
        return Some("the processes of an MPI program share the file");
    }
    // SAFETY: passed on.
    let is_native = *first
        .is_native
        .get_or_init(|| unsafe { ends_in_native(&call.unders[0]) });
    if !is_native {
        return Some("the connector below does not store in HDF5's own files");
    }
    if !is_plain {
        return Some("the transfer property list has properties that only HDF5 heeds");
    }
    let spaces = call.memory_spaces.iter().chain(call.file_spaces);
    let is_named = |space: &hid_t| *space != H5S_ALL && is_special(*space);
    if spaces.copied().any(|space| is_named(&space)) {
        return Some("a dataspace is given by H5S_BLOCK or H5S_PLIST");
    }
    None
}

/// Makes an operation of what goes on.
///
/// # Safety
/// As for [`transfer`].
unsafe fn hand_over(call: &Call<'_>, (sets, work): Going) {
    let nobody_asks = call.req.is_null();
    let later = nobody_asks.then(|| Arc::clone(&call.policy().failures));
    let operation = Operation::new(call.name(), later, work);
    enter(call.unders[0].container.below.host, sets, &operation);
    if let (Begins::Now, Some(delay)) = (call.policy().begins, call.policy().delay) {
        begin_after(&operation, delay);
    }
    finish_before_exit(call.unders[0].container.below.host);
    if !call.req.is_null() {
        // SAFETY: HDF5 gives a place for a request.
        unsafe { *call.req = Wrapped::request(&operation, &call.unders[0].container) };
    }
}

/// Host memory for the buffers of a call that the connector below is to carry out.
///
/// # Safety
/// As for [`transfer`].
unsafe fn stage(call: &Call<'_>, stream: Option<Stream>) -> Result<Staging> {
    let touched = |at: usize| {
        // SAFETY: passed on.
        unsafe {
            if call.is_on_host(at)? {
                return Ok(None);
            }
            let range = touched_or_all(call, at)?;
            if let Some(stream) = stream {
                let first = call.buffers[at].wrapping_add(range.start as usize);
                stream.synchronize(Memory::at(first)?.device.max(0))?;
            }
            Ok(Some(range))
        }
    };
    // SAFETY: the caller vouches for the buffers.
    unsafe { Staging::of(call.buffers, touched) }
}

/// The bytes of GPU memory that the transfer of a dataset touches.
///
/// # Safety
/// As for [`transfer`].
unsafe fn touched_or_all(call: &Call<'_>, at: usize) -> Result<Range<u64>> {
    let (under, space) = (&call.unders[at], call.memory_space(at));
    let host = under.container.below.host;
    if space != H5S_ALL && is_special(space) {
        return Err(
            Error::invalid("GPU memory cannot be described by H5S_BLOCK or H5S_PLIST")
                .remedy("give a dataspace for the memory"),
        );
    }
    // SAFETY: passed on; HDF5 checks the identifiers.
    unsafe {
        refuse_pointers(host, call.memory_types[at])?;
        let element = (host.hdf5.H5Tget_size)(call.memory_types[at]) as u64;
        let elements = match space {
            H5S_ALL => {
                let loan = Loan::of(under, H5I_DATASET)?;
                let space = (host.hdf5.H5Dget_space)(loan.id());
                let elements = (host.calls.H5Sget_simple_extent_npoints)(space);
                (host.hdf5.H5Sclose)(space);
                elements
            }
            own => match touched(under, own, element) {
                Some(range) => return Ok(range),
                None => (host.hdf5.H5Sget_select_npoints)(own),
            },
        };
        let elements = u64::try_from(elements).ok();
        let bytes = elements.and_then(|elements| elements.checked_mul(element));
        let bytes = bytes.filter(|_| element > 0);
        let bytes =
            bytes.ok_or_else(|| Error::invalid("HDF5 does not tell how large the memory is"))?;
        Ok(0..bytes)
    }
}
