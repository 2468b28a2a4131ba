//! Starts every thread of the library, with signals blocked, so that only threads of the program
//! handle them.
//!
//! The kernel delivers a signal of the process to any thread that does not block it. A thread of
//! the library that blocks no signals would take a signal that the program has blocked in all its
//! own threads, to wait for it with sigwait(2) or signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, Scope};

/// Starts a thread that blocks signals.
///
/// # Errors
/// The system has no thread left. `body` has not run, and does not run later.
pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _blocked = Blocked::by_this_thread()?;
    Builder::new().name(name.into()).spawn(body).map(drop)
}

/// As [`start`], for a thread that ends before the scope does.
pub fn start_scoped<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    let _blocked = Blocked::by_this_thread()?;
    let thread = Builder::new().name(name.into());
    thread.spawn_scoped(scope, body).map(drop)
}

/// The signals that an instruction causes in the thread that executes it. If that thread blocks
/// them, the kernel kills the process without calling the handler, such as that of Python's
/// `faulthandler`.
const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// While this exists, its thread blocks all signals but [`FAULTS`]. A thread inherits the mask of
/// the thread that starts it, so no signal arrives before the new thread could block it.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn by_this_thread() -> io::Result<Blocked> {
        let (mut signals, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigfillset initialises the set that the other calls use, and a call that returns 0 has
        // initialised `before`.
        unsafe {
            libc::sigfillset(signals.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(signals.as_mut_ptr(), fault);
            }
            // SIG_BLOCK: a fault that the caller blocks stays blocked.
            match libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Blocked {
                    before: before.assume_init(),
                }),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that this thread had. The call fails only for an unknown first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The signals that the calling thread blocks: signal `n` is bit `n - 1`.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("SigBlk")).unwrap();
        u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap()
    }

    /// All signals but the faults, those that cannot be blocked, and the two of the C library.
    fn wanted() -> u64 {
        let kept = FAULTS
            .into_iter()
            .chain([libc::SIGKILL, libc::SIGSTOP, 32, 33]);
        kept.fold(u64::MAX, |set, signal| set & !(1 << (signal - 1)))
    }

    #[test]
    fn a_thread_blocks_signals_and_leaves_the_mask_of_its_starter_as_it_was() {
        let before = blocked();
        let (send, receive) = channel();
        start("penstock-test", move || send.send(blocked()).unwrap()).unwrap();
        assert_eq!(receive.recv().unwrap() & !before, wanted() & !before);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_thread_of_a_scope_blocks_signals_and_has_its_name() {
        let before = blocked();
        let (send, receive) = channel();
        std::thread::scope(|scope| {
            let report = || {
                let name = std::thread::current().name().map(str::to_owned);
                send.send((blocked(), name)).unwrap();
            };
            start_scoped(scope, "penstock-test", report).unwrap();
        });
        let (mask, name) = receive.recv().unwrap();
        assert_eq!(mask & wanted(), wanted());
        assert_eq!(name.as_deref(), Some("penstock-test"));
        assert_eq!(blocked(), before);
    }
}
