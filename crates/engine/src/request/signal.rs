//! Who is told when a request is finished, besides those who wait for it: event loops through a
//! file descriptor, and CUDA streams.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::gpu::stream::Flag;

#[derive(Default)]
pub(crate) struct Signals {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fired: bool,
    descriptor: Option<OwnedFd>,
    flag: Option<Flag>,
}

impl Signals {
    /// Tells all who asked, once. Called after the outcome is published.
    pub fn fire(&self) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        state.fired = true;
        if let Some(fd) = &state.descriptor {
            tell(fd);
        }
        if let Some(flag) = state.flag.take() {
            flag.raise();
        }
    }

    /// An eventfd that is readable once the request is finished.
    pub fn descriptor(&self) -> Result<RawFd> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(fd) = &state.descriptor {
            return Ok(fd.as_raw_fd());
        }
        // SAFETY: eventfd touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last_os("cannot make an event descriptor"));
        }
        // SAFETY: just returned by eventfd, and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if state.fired {
            tell(&fd);
        }
        Ok(state.descriptor.insert(fd).as_raw_fd())
    }

    /// Runs `hold` with the flag that is raised when the request is finished, so that it can make
    /// a stream wait for it. Does nothing for a request that is finished already.
    pub fn with_flag(
        &self,
        make: impl FnOnce() -> Result<Flag>,
        hold: impl FnOnce(&Flag) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.fired {
            return Ok(());
        }
        let flag = match &mut state.flag {
            Some(flag) => flag,
            none => none.insert(make()?),
        };
        hold(flag)
    }
}

fn tell(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: writes the 8 bytes of `one`, as an eventfd takes them.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}
