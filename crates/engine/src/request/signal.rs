//! Signals of a finished request: a file descriptor for event loops, and a flag for CUDA streams.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::gpu::stream::{Flag, FlagTarget};
use crate::sync::Recover;

#[derive(Default)]
pub(crate) struct Signals {
    state: Mutex<Outputs>,
}

#[derive(Default)]
struct Outputs {
    fired: bool,
    descriptor: Option<OwnedFd>,
    flag: Option<Flag>,
}

impl Signals {
    /// Signals the descriptor and the streams, once, after the outcome is published.
    pub(crate) fn fire(&self) {
        let mut state = self.lock();
        state.fired = true;
        if let Some(fd) = &state.descriptor {
            raise(fd);
        }
        let flag = state.flag.take();
        drop(state);
        // Dropping the flag raises it.
        drop(flag);
    }

    /// Makes the descriptor readable before the request is finished.
    pub(crate) fn raise(&self) {
        if let Some(fd) = &self.lock().descriptor {
            raise(fd);
        }
    }

    /// Undoes [`raise`](Self::raise), unless the request is finished.
    pub(crate) fn lower(&self) {
        let state = self.lock();
        if let (Some(fd), false) = (&state.descriptor, state.fired) {
            let mut count = 0u64;
            // SAFETY: reads the 8 bytes of an eventfd's count, which does not block.
            unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outputs> {
        self.state.lock().recover()
    }

    /// The eventfd. The first call creates it.
    pub(crate) fn descriptor(&self) -> Result<RawFd> {
        let mut state = self.lock();
        if let Some(fd) = &state.descriptor {
            return Ok(fd.as_raw_fd());
        }
        // SAFETY: eventfd touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last_os("cannot create an event descriptor"));
        }
        // SAFETY: just returned by eventfd, with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if state.fired {
            raise(&fd);
        }
        Ok(state.descriptor.insert(fd).as_raw_fd())
    }

    /// The flag that is raised when the request finishes; `None` if it is finished. The flag stays
    /// raised, so a stream may begin to wait for it at any later time.
    pub(crate) fn flag(&self, make: impl FnOnce() -> Result<Flag>) -> Result<Option<FlagTarget>> {
        let state = self.lock();
        if state.fired {
            return Ok(None);
        }
        if let Some(flag) = &state.flag {
            return Ok(Some(flag.target()));
        }
        drop(state);
        // Making a flag may call the driver, so it happens without the lock.
        let made = make()?;
        let mut state = self.lock();
        if state.fired {
            return Ok(None);
        }
        Ok(Some(state.flag.get_or_insert(made).target()))
    }
}

fn raise(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: writes the 8 bytes of `one`, as an eventfd takes them.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}
