//! GPU memory for calls that only HDF5 can carry out: a buffer on the host in its place.

use std::ffi::c_void;

use penstock_engine::copy::copy;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::memory::is_on_host;

/// Host memory that stands in for buffers, and those for which it does.
pub struct Staging {
    buffers: Vec<Stage>,
}

struct Stage {
    given: usize,
    /// `None` if the buffer is in host memory itself.
    instead: Option<Vec<u8>>,
}

impl Staging {
    /// Buffers with so many bytes each, at the places given. GPU memory is copied: also for reading,
    /// which may leave some of it as it is.
    ///
    /// # Safety
    /// The buffers have so many bytes.
    pub unsafe fn of(buffers: &[usize], bytes: impl Fn(usize) -> Result<u64>) -> Result<Staging> {
        let stage = |(at, given): (usize, &usize)| {
            let given = *given;
            if is_on_host(given)? {
                return Ok(Stage {
                    given,
                    instead: None,
                });
            }
            let bytes = usize::try_from(bytes(at)?).unwrap_or(usize::MAX);
            let mut instead: Vec<u8> = Vec::new();
            instead.try_reserve_exact(bytes).map_err(|_| {
                let text = format!("no memory for {bytes} bytes that HDF5 is to move for the GPU");
                Error::new(Kind::Memory, text)
            })?;
            instead.resize(bytes, 0);
            // SAFETY: passed on; the other end is as long.
            unsafe { copy(instead.as_mut_ptr() as usize, given, bytes)? };
            Ok(Stage {
                given,
                instead: Some(instead),
            })
        };
        let buffers = buffers
            .iter()
            .enumerate()
            .map(stage)
            .collect::<Result<_>>()?;
        Ok(Staging { buffers })
    }

    /// What HDF5 gets instead.
    pub fn addresses(&mut self) -> Vec<*mut c_void> {
        let address = |stage: &mut Stage| match &mut stage.instead {
            Some(instead) => instead.as_mut_ptr().cast(),
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
            if let Some(instead) = stage.instead {
                // SAFETY: passed on.
                unsafe { copy(stage.given, instead.as_ptr() as usize, instead.len())? };
            }
        }
        Ok(())
    }
}
