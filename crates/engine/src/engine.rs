//! The one engine of a process: its workers, its ring, its defaults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};

use crate::error::{Error, Kind, Result};
use crate::options::{Options, parse_size};
use crate::staging::Ring;
use crate::trace;
use crate::workers::Workers;

pub(crate) struct Engine {
    pub workers: Workers,
    pub ring: Ring,
    pub cores: usize,
    environment: Options,
    process: Mutex<Options>,
    under_way: Mutex<usize>,
    drained: Condvar,
}

/// Set in a child made by fork: none of the engine's threads exist there, and its locks may be
/// held for ever by threads of the parent.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The engine, made at the first call.
pub(crate) fn engine() -> Result<&'static Engine> {
    static ENGINE: OnceLock<Result<Engine>> = OnceLock::new();
    refuse_fork()?;
    ENGINE
        .get_or_init(Engine::new)
        .as_ref()
        .map_err(Error::clone)
}

/// An error in a forked child of a process that used the engine.
pub fn refuse_fork() -> Result<()> {
    if !FORKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Forked,
        "this process was forked from one that had used Penstock",
    )
    .remedy("start workers with spawn or forkserver instead of fork, or use Penstock first in the child"))
}

/// Waits until no request is under way in this process.
pub fn drain() -> Result<()> {
    engine()?.drain();
    Ok(())
}

/// Sets the level of options between those of a file and those of the environment.
pub fn set_process_options(options: Options) -> Result<()> {
    engine()?.set_process_options(options)
}

/// Default cap of the ring: enough for 64 workers with two slots of 4 MiB each.
const RING_BYTES: u64 = 512 << 20;

impl Engine {
    fn new() -> Result<Engine> {
        unsafe extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the handler only stores to an atomic, which is allowed after fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        let environment = match std::env::var("PENSTOCK_OPTIONS") {
            Ok(text) => Options::parse(&text).map_err(|e| {
                let remedy = "correct the environment variable PENSTOCK_OPTIONS";
                Error::invalid(format!("PENSTOCK_OPTIONS: {}", e.cause())).remedy(remedy)
            })?,
            Err(_) => Options::default(),
        };
        let ring = match std::env::var("PENSTOCK_RING") {
            Ok(text) => parse_size("PENSTOCK_RING", &text)?,
            Err(_) => RING_BYTES,
        };
        if let Some(path) = std::env::var_os("PENSTOCK_TRACE") {
            trace::start(path.as_ref())?;
        }
        Ok(Engine {
            workers: Workers::new(),
            ring: Ring::new(ring),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            environment,
            process: Mutex::default(),
            under_way: Mutex::new(0),
            drained: Condvar::new(),
        })
    }

    /// Options of the process and the environment, below those of a call and a file.
    pub fn outer_options(&self) -> Options {
        let process = *self.process.lock().unwrap_or_else(|e| e.into_inner());
        process.or(self.environment)
    }

    pub fn set_process_options(&self, options: Options) -> Result<()> {
        options.check()?;
        *self.process.lock().unwrap_or_else(|e| e.into_inner()) = options;
        Ok(())
    }

    pub fn begin(&self) {
        *self.under_way.lock().unwrap_or_else(|e| e.into_inner()) += 1;
    }

    pub fn end(&self) {
        let mut count = self.under_way.lock().unwrap_or_else(|e| e.into_inner());
        *count -= 1;
        if *count == 0 {
            self.drained.notify_all();
        }
    }

    /// Waits until no request is under way.
    pub fn drain(&self) {
        let mut count = self.under_way.lock().unwrap_or_else(|e| e.into_inner());
        while *count > 0 {
            count = self.drained.wait(count).unwrap_or_else(|e| e.into_inner());
        }
    }
}
