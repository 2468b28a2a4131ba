//! The one door of all transfers of datasets: each is planned and starts after those under way with
//! which it conflicts, whoever has asked for them.
//!
//! So transfers have the effect of the order of their submission. What HDF5 does by itself, when the
//! program calls it, is not seen here: the program, or the connector, settles what is pending before.

pub mod conflicts;
mod held;
mod inside;
pub mod read;
pub mod request;
mod settle;
pub mod unfinished;
mod unsettled;
pub mod write;

use std::sync::Arc;

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::is_on_host;
use penstock_sys::hdf5::{H5S_ALL, Hdf5, hid_t};

use conflicts::{
    Access, AccessSet, FileKey, Region, Shared, enter, finish_before, key_of_file, key_of_object,
    number_of_file,
};
pub use held::Held;
pub use inside::{inside, is_inside};
pub use settle::{is_settled, settle_dataset, settle_file, settle_path};

use crate::dataset::dataspace::bounds;
use crate::dataset::pointers;
use crate::dataset::{DatasetInfo, Layout};
use crate::execute::{self, Manner};
use crate::library::Session;
use crate::library::numbers;
use crate::transfer::request::{Known, Order};
pub use unsettled::address as unsettled_count;

/// A prepared transfer.
enum Prepared {
    Read(read::Prepared),
    Write(Box<write::Prepared>),
}

/// Starts a transfer between a dataset and the memory at `buffer`, after what it conflicts with.
/// `host` is the buffer if it is in host memory and, for a write, holds its final contents; else null.
///
/// # Safety
/// The buffer is as the order describes it until the request is finished, and the dataset stays open
/// as long. HDF5 may be called by this thread, and by those that take turns: where it is not
/// thread-safe, they hold the lock that guards it.
pub unsafe fn start(
    hdf5: &'static Hdf5,
    operation: Operation,
    order: &Order<'_>,
    (buffer, host): (usize, *mut u8),
    manner: Manner,
) -> Result<Held> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5, and no other thread comes between.
        let session = unsafe { Session::begin(hdf5) };
        if !is_on_host(buffer)? {
            // SAFETY: as above.
            unsafe { pointers::refuse(hdf5, order.memory_type)? };
        }
        // SAFETY: passed on.
        let (prepared, sets) = unsafe { prepare(&session, operation, order, host)? };
        let writes_to = match operation {
            Operation::Write if !sets.is_empty() => Some(number_of_file(&session, order.dataset)?),
            Operation::Read | Operation::Write => None,
        };
        // SAFETY: passed on.
        let request = unsafe {
            match prepared {
                Prepared::Read(read) => execute::submit(read, buffer, manner)?,
                Prepared::Write(write) => execute::write::submit(*write, buffer, manner)?,
            }
        };
        if writes_to.is_some() {
            numbers::are_kept(hdf5);
        }
        let held = Held::new(request, hdf5, writes_to);
        if !sets.is_empty() {
            let shared: Shared = Arc::new(held.clone());
            enter(hdf5, sets, &shared);
        }
        Ok(held)
    })
}

/// Plans a transfer after what it conflicts with. What it touches is told, too: nothing if it is done.
///
/// # Safety
/// As for [`start`].
unsafe fn prepare(
    session: &Session<'static>,
    operation: Operation,
    order: &Order<'_>,
    host: *mut u8,
) -> Result<(Prepared, Vec<AccessSet>)> {
    let hdf5 = session.hdf5;
    let access = match operation {
        Operation::Read => Access::Read,
        Operation::Write => Access::Write,
    };
    let info = order.info(session)?;
    let set = access_set(session, (order.dataset, order.file_space), &info, access)?;
    // What was pending may have given it storage.
    let is_current = set.as_ref().is_none_or(|set| finish_before(hdf5, set) == 0);
    let by_hdf5 = by_hdf5(set.as_ref(), access);
    let before_hdf5 = || {
        finish_before(hdf5, &by_hdf5);
    };
    let mut known = Known {
        info: is_current.then_some(&info),
        ..order.known
    };
    loop {
        let order = Order { known, ..*order };
        // SAFETY: passed on.
        let prepared = unsafe {
            match operation {
                Operation::Read => {
                    Prepared::Read(read::prepare(session, &order, host, &before_hdf5)?)
                }
                Operation::Write => {
                    let write = write::prepare(session, &order, host, &before_hdf5)?;
                    Prepared::Write(Box::new(write))
                }
            }
        };
        let sets = match &prepared {
            Prepared::Read(read) => read.touches(set.as_ref()),
            Prepared::Write(write) => write.touches(&by_hdf5, set.as_ref()),
        };
        // What HDF5 has read while it planned is read before what is still to be read is waited for.
        let given = prepared.has_been_given().then(|| by_hdf5.clone());
        let first = given.iter().chain(&sets);
        let waited: usize = first.map(|set| finish_before(hdf5, set)).sum();
        // The sources of a virtual dataset are known only when it is planned: then they may have changed.
        if waited == 0 || set.is_some() {
            return Ok((prepared, sets));
        }
        known.info = None;
    }
}

/// What a transfer touches, as far as it can be told before it is planned: not the sources of a
/// virtual dataset that is read.
fn access_set(
    session: &Session<'_>,
    (dataset, file_space): (hid_t, hid_t),
    info: &DatasetInfo,
    access: Access,
) -> Result<Option<AccessSet>> {
    let chunk: &[u64] = match (&info.layout, access) {
        (Layout::Virtual(_), Access::Read) => return Ok(None),
        (Layout::Virtual(_) | Layout::External(_), Access::Write) => {
            return Ok(Some(AccessSet::All(access)));
        }
        (Layout::Chunked { chunk, .. }, _) => chunk,
        _ => &[],
    };
    let bounds = match file_space {
        H5S_ALL => None,
        space => bounds(session.hdf5, space),
    };
    let region = Region::between(bounds).of_chunks(chunk);
    Ok(Some(AccessSet::Elements {
        dataset: key_of_object(session, dataset, &info.file)?,
        region,
        access,
    }))
}

fn by_hdf5(set: Option<&AccessSet>, access: Access) -> AccessSet {
    match set {
        Some(set) => set.clone().by_hdf5(),
        None => AccessSet::All(access),
    }
}

impl Prepared {
    /// Whether HDF5 has read some elements.
    fn has_been_given(&self) -> bool {
        match self {
            Prepared::Read(read) => read.readings.iter().any(|r| r.given.is_some()),
            Prepared::Write(_) => false,
        }
    }
}

impl read::Prepared {
    /// What it reads that is still to be read.
    fn touches(&self, set: Option<&AccessSet>) -> Vec<AccessSet> {
        let files: Vec<FileKey> = self.files().filter_map(key_of_file).collect();
        if files.is_empty() {
            return Vec::new();
        }
        let mut sets: Vec<AccessSet> = set.cloned().into_iter().collect();
        // Other files than that of the dataset, whose elements say more.
        if set.is_none() || self.is_external() {
            sets.push(AccessSet::Sources(files));
        }
        sets
    }
}

impl write::Prepared {
    /// What it writes that is still to be written.
    fn touches(&self, by_hdf5: &AccessSet, set: Option<&AccessSet>) -> Vec<AccessSet> {
        if self.is_done() {
            return Vec::new();
        }
        let own = set.filter(|_| !self.is_through_hdf5()).unwrap_or(by_hdf5);
        vec![match self.rewritten() {
            Some(block) => own.clone().of_blocks(block),
            None => own.clone(),
        }]
    }
}
