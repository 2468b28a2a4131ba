//! GPU memory for calls that only HDF5 can carry out: memory on the host in its place.

use std::ffi::c_void;
use std::ops::Range;

use penstock_engine::copy::copy;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::hid_t;

use super::host::Host;
use penstock_hdf5::dataset::pointers;

/// Host memory that stands in for buffers, and those for which it does.
pub struct Staging {
    buffers: Vec<Stage>,
}

struct Stage {
    given: usize,
    /// `None` if the buffer is in host memory itself.
    instead: Option<Stand>,
}

/// What stands for a part of a buffer.
struct Stand {
    /// Where in the buffer the part begins.
    start: usize,
    bytes: Vec<u8>,
}

impl Staging {
    /// Buffers of GPU memory of which the call touches these bytes, and others, which stay as they
    /// are. GPU memory is copied: also for reading, which may leave some of it as it is.
    ///
    /// # Safety
    /// The buffers have these bytes.
    pub unsafe fn of(
        buffers: &[usize],
        touched: impl Fn(usize) -> Result<Option<Range<u64>>>,
    ) -> Result<Staging> {
        let stage = |(at, given): (usize, &usize)| {
            let given = *given;
            let instead = match touched(at)? {
                None => None,
                // SAFETY: passed on.
                Some(touched) => Some(unsafe { Stand::of(given, touched)? }),
            };
            Ok(Stage { given, instead })
        };
        let buffers = buffers.iter().enumerate().map(stage);
        Ok(Staging {
            buffers: buffers.collect::<Result<_>>()?,
        })
    }

    /// What HDF5 gets instead: where the first byte of each buffer would lie.
    pub fn addresses(&mut self) -> Vec<*mut c_void> {
        let address = |stage: &mut Stage| match &mut stage.instead {
            Some(stand) => stand.bytes.as_mut_ptr().wrapping_sub(stand.start).cast(),
            None => stage.given as *mut c_void,
        };
        self.buffers.iter_mut().map(address).collect()
    }

    /// Copies what HDF5 has read to where it belongs.
    ///
    /// # Safety
    /// As for [`Staging::of`].
    pub unsafe fn give_back(self) -> Result<()> {
        for stage in self.buffers {
            if let Some(Stand { start, bytes }) = stage.instead {
                let given = stage.given.wrapping_add(start);
                // SAFETY: passed on.
                unsafe { copy(given, bytes.as_ptr() as usize, bytes.len())? };
            }
        }
        Ok(())
    }
}

impl Stand {
    /// # Safety
    /// As for [`Staging::of`].
    unsafe fn of(given: usize, touched: Range<u64>) -> Result<Stand> {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (start, length) = (
            size(touched.start),
            size(touched.end.saturating_sub(touched.start)),
        );
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            let text = format!("no memory for {length} bytes that HDF5 is to move for the GPU");
            Error::new(Kind::Memory, text)
        })?;
        bytes.resize(length, 0);
        let from = given.wrapping_add(start);
        // SAFETY: passed on; the other end is as long.
        unsafe { copy(bytes.as_mut_ptr() as usize, from, length)? };
        Ok(Stand { start, bytes })
    }
}

/// An error if elements of this type hold pointers: see [`pointers::refuse`].
///
/// # Safety
/// The thread is inside a call of `host`, which checks the identifier.
pub unsafe fn refuse_pointers(host: Host, memory_type: hid_t) -> Result<()> {
    // SAFETY: passed on.
    host.keeping_errors(|| unsafe { pointers::refuse(host.hdf5, memory_type) })
}
