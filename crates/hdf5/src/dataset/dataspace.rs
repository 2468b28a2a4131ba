//! Dataspaces of HDF5 as plain data.

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{
    H5S_MAX_RANK, H5S_NULL, H5S_SEL_ALL, H5S_SEL_HYPERSLABS, H5S_SEL_NONE, H5S_UNLIMITED, Hdf5,
    hid_t,
};

use crate::library::Session;
use penstock_array::make_room;
use penstock_array::{Axis, Selection, push_run};

/// One side of a mapping. The elements of both sides correspond in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedSelection {
    /// The whole dataset, whatever its shape is when it is opened.
    All,
    /// A selection in a dataspace that is large enough; the dataset may have another shape.
    Part {
        /// The selection.
        selection: Selection,
        /// Shape of that dataspace.
        shape: Vec<u64>,
    },
    /// An unlimited selection, which only HDF5 resolves: a slab for each dimension.
    Unlimited(Vec<Slab>),
}

/// A hyperslab along one dimension, whose number of blocks or their length may be unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// First index.
    pub start: u64,
    /// Distance of the blocks.
    pub stride: u64,
    /// Number of blocks, or `H5S_UNLIMITED`.
    pub count: u64,
    /// Length of a block, or `H5S_UNLIMITED`.
    pub block: u64,
}

impl Slab {
    /// Returns whether the slab has no end.
    pub fn is_unlimited(&self) -> bool {
        [self.count, self.block].contains(&H5S_UNLIMITED)
    }

    /// Returns the index after the last one; `None` if there is no last one.
    pub fn end(&self) -> Option<u64> {
        let last = self.count.saturating_sub(1).saturating_mul(self.stride);
        let end = self.start.saturating_add(last).saturating_add(self.block);
        (!self.is_unlimited()).then_some(end)
    }
}

/// Returns the selection of a dataspace. `H5S_ALL` is not a dataspace: use [`Selection::all`] for
/// it.
pub fn selection(session: &Session<'_>, space: hid_t) -> Result<Selection> {
    bounded(session, space)?
        .ok_or_else(|| Error::invalid("the selection is unlimited: set a finite count"))
}

/// Returns the current and the maximum shape.
pub fn extent(session: &Session<'_>, space: hid_t) -> Result<(Vec<u64>, Vec<Option<u64>>)> {
    let mut shape = vec![0u64; H5S_MAX_RANK];
    let mut most = vec![0u64; H5S_MAX_RANK];
    // SAFETY: both arrays have room for the largest rank that HDF5 allows.
    let rank = unsafe {
        (session.hdf5.H5Sget_simple_extent_dims)(space, shape.as_mut_ptr(), most.as_mut_ptr())
    };
    let rank = session.check(rank, "get the shape")? as usize;
    shape.truncate(rank);
    most.truncate(rank);
    let most = most
        .into_iter()
        .map(|size| (size != H5S_UNLIMITED).then_some(size));
    Ok((shape, most.collect()))
}

/// Returns one side of a mapping of a virtual dataset. `space` is a copy that the caller owns.
pub fn mapped(session: &Session<'_>, space: hid_t) -> Result<MappedSelection> {
    // SAFETY: takes an identifier, which HDF5 checks.
    let class = unsafe { (session.hdf5.H5Sget_select_type)(space) };
    if session.check(class, "get the kind of a selection")? == H5S_SEL_ALL {
        return Ok(MappedSelection::All);
    }
    contain_selection(session, space)?;
    Ok(match bounded(session, space)? {
        None => MappedSelection::Unlimited(slabs(session, space)?),
        Some(selection) => MappedSelection::Part {
            selection,
            shape: extent(session, space)?.0,
        },
    })
}

/// Makes the extent of a dataspace contain its selection. HDF5 gives the source's dataspace of a mapping the
/// extent of the source when it opens that, and the source may have become smaller.
fn contain_selection(session: &Session<'_>, space: hid_t) -> Result<()> {
    // An unlimited selection has none.
    let Some((_, high)) = bounds(session.hdf5, space) else {
        return Ok(());
    };
    let (mut shape, _) = extent(session, space)?;
    let is_inside = shape.iter().zip(&high).all(|(size, last)| last < size);
    if is_inside {
        return Ok(());
    }
    for (size, last) in shape.iter_mut().zip(high) {
        *size = (*size).max(last.saturating_add(1));
    }
    let rank = shape.len() as i32;
    // SAFETY: takes an owned identifier and as many sizes as the rank says.
    let status = unsafe {
        (session.hdf5.H5Sset_extent_simple)(space, rank, shape.as_ptr(), std::ptr::null())
    };
    session
        .check(status, "set the extent of a dataspace")
        .map(drop)
}

/// Returns the selection; `None` if it is unlimited, as those of virtual datasets can be.
pub fn bounded(session: &Session<'_>, space: hid_t) -> Result<Option<Selection>> {
    let hdf5 = session.hdf5;
    // SAFETY: takes an identifier, which HDF5 checks.
    let class = unsafe { (hdf5.H5Sget_select_type)(space) };
    match session.check(class, "get the kind of a selection")? {
        H5S_SEL_NONE => return Ok(Some(Selection::none())),
        H5S_SEL_ALL => {
            // SAFETY: as above.
            let kind = unsafe { (hdf5.H5Sget_simple_extent_type)(space) };
            let kind = session.check(kind, "get the kind of a dataspace")?;
            // A null dataspace has the shape of a scalar one, and no element.
            return Ok(Some(match kind {
                H5S_NULL => Selection::none(),
                _ => Selection::all(&extent(session, space)?.0),
            }));
        }
        H5S_SEL_HYPERSLABS => {
            // SAFETY: as above.
            let regular = unsafe { (hdf5.H5Sis_regular_hyperslab)(space) };
            if session.check(regular, "get the kind of a hyperslab")? > 0 {
                return hyperslab(session, space);
            }
        }
        _ => {}
    }
    runs(session, space).map(Some)
}

/// Returns the slabs of a regular hyperslab.
fn slabs(session: &Session<'_>, space: hid_t) -> Result<Vec<Slab>> {
    let hdf5 = session.hdf5;
    let [mut start, mut stride, mut count, mut block] = [[0u64; H5S_MAX_RANK]; 4];
    // SAFETY: all arrays have room for the largest rank that HDF5 allows.
    let (status, rank) = unsafe {
        (
            (hdf5.H5Sget_regular_hyperslab)(
                space,
                start.as_mut_ptr(),
                stride.as_mut_ptr(),
                count.as_mut_ptr(),
                block.as_mut_ptr(),
            ),
            (hdf5.H5Sget_simple_extent_ndims)(space),
        )
    };
    session.check(status, "get a hyperslab")?;
    let rank = session.check(rank, "get the rank of a dataspace")? as usize;
    let slab = |d: usize| Slab {
        start: start[d],
        stride: stride[d],
        count: count[d],
        block: block[d],
    };
    Ok((0..rank).map(slab).collect())
}

fn hyperslab(session: &Session<'_>, space: hid_t) -> Result<Option<Selection>> {
    let slabs = slabs(session, space)?;
    if slabs.iter().any(Slab::is_unlimited) {
        return Ok(None);
    }
    let [mut low, mut high] = [[0u64; H5S_MAX_RANK]; 2];
    // H5Soffset_simple sets an offset that only the bounds include.
    // SAFETY: both arrays have room for the largest rank that HDF5 allows.
    let status =
        unsafe { (session.hdf5.H5Sget_select_bounds)(space, low.as_mut_ptr(), high.as_mut_ptr()) };
    session.check(status, "get the bounds of a selection")?;
    let axes = slabs.iter().zip(low).map(|(slab, start)| {
        Axis::Slab {
            start,
            stride: slab.stride,
            count: slab.count,
            block: slab.block,
        }
        .normal()
    });
    Ok(Some(Selection::Grid(axes.collect())))
}

/// Number of runs fetched at a time.
const BATCH: usize = 1 << 14;

fn runs(session: &Session<'_>, space: hid_t) -> Result<Selection> {
    let hdf5 = session.hdf5;
    // SAFETY: takes an identifier, which HDF5 checks. An element size of 1 makes bytes count
    // elements.
    let walk = unsafe { (hdf5.H5Ssel_iter_create)(space, 1, 0) };
    let walk = session.own(walk, hdf5.H5Ssel_iter_close, "walk through a selection")?;
    let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
    make_room(&mut offsets, BATCH)?;
    make_room(&mut lengths, BATCH)?;
    offsets.resize(BATCH, 0u64);
    lengths.resize(BATCH, 0usize);
    let mut runs = Vec::new();
    loop {
        let (mut got, mut elements) = (0, 0);
        // SAFETY: both lists have room for the number of runs requested.
        let status = unsafe {
            (hdf5.H5Ssel_iter_get_seq_list)(
                walk.get(),
                BATCH,
                usize::MAX,
                &mut got,
                &mut elements,
                offsets.as_mut_ptr(),
                lengths.as_mut_ptr(),
            )
        };
        session.check(status, "walk through a selection")?;
        if got == 0 {
            return Ok(Selection::Runs(runs));
        }
        make_room(&mut runs, got)?;
        for (offset, length) in offsets.iter().zip(&lengths).take(got) {
            push_run(&mut runs, *offset, *length as u64);
        }
    }
}

/// Returns the first and the last index of a selection along each dimension; `None` if it is empty
/// or the identifier is not a dataspace. The thread must be allowed to call HDF5, which checks the
/// identifier.
pub fn bounds(hdf5: &Hdf5, space: hid_t) -> Option<(Vec<u64>, Vec<u64>)> {
    let (mut low, mut high) = ([0u64; H5S_MAX_RANK], [0u64; H5S_MAX_RANK]);
    // SAFETY: HDF5 checks the identifier; both arrays have room for the largest rank that it
    // allows.
    unsafe {
        let rank = (hdf5.H5Sget_simple_extent_ndims)(space);
        let rank = usize::try_from(rank).ok().filter(|rank| *rank > 0)?;
        let points = (hdf5.H5Sget_select_npoints)(space);
        let status = (hdf5.H5Sget_select_bounds)(space, low.as_mut_ptr(), high.as_mut_ptr());
        (points > 0 && status >= 0).then(|| (low[..rank].to_vec(), high[..rank].to_vec()))
    }
}
