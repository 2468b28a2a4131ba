//! The one engine of a process: workers, ring, and the outer levels of options.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use penstock_sys::{environment, is_copy};

use crate::error::{Error, Result};
use crate::fork::{refuse_fork, watch_forks};
use crate::options::{Options, parse_size};
use crate::profile::Profiles;
use crate::staging::Ring;
use crate::sync::Recover;
use crate::trace;
use crate::workers::Workers;

pub(crate) struct Engine {
    pub workers: Workers,
    pub ring: Ring,
    pub cores: usize,
    pub profiles: Profiles,
    /// The size of the cache of decoded chunks of a file, in bytes.
    chunk_cache: u64,
    environment: Options,
    process: Mutex<Options>,
    /// Whether process options were ever set, so that small calls avoid the lock.
    has_process_options: AtomicBool,
    /// Why the trace that the environment requests could not start. The first caller gets it.
    trace_failed: Mutex<Option<Error>>,
}

static ENGINE: OnceLock<Result<Engine>> = OnceLock::new();

/// The engine. The first call creates it.
pub(crate) fn engine() -> Result<&'static Engine> {
    refuse_fork()?;
    let engine = ENGINE
        .get_or_init(Engine::new)
        .as_ref()
        .map_err(Error::clone)?;
    let failed = engine.trace_failed.lock().recover().take();
    failed.map_or(Ok(engine), Err)
}

/// Sets the options of the process, which lie between those of a file and those of the environment.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for options out of range.
pub fn set_process_options(options: Options) -> Result<()> {
    let engine = engine()?;
    options.check()?;
    *engine.process.lock().recover() = options;
    engine.has_process_options.store(true, Ordering::Release);
    Ok(())
}

/// The default size of the ring: 64 workers with two slots of 4 MiB each.
const RING_BYTES: u64 = 512 << 20;

/// The default size of the cache of decoded chunks.
const CHUNK_CACHE_BYTES: u64 = 64 << 20;

/// The size of the cache of decoded chunks of a file, in bytes; 0 for no cache. The environment
/// variable `PENSTOCK_CHUNK_CACHE` sets it.
pub fn chunk_cache_bytes() -> Result<u64> {
    engine().map(|engine| engine.chunk_cache)
}

/// The options of a call, completed by the outer levels. The tuned profile is left out, because it
/// applies to plain transfers of a file.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for options out of range.
pub fn merged_options(call: Options) -> Result<Options> {
    let merged = call.or(engine()?.outer_options());
    merged.check()?;
    Ok(merged)
}

/// As [`merged_options`], without creating an engine, so that forked children may still create one.
/// In a child that may not, only the options of the environment apply.
pub fn options_without_engine(call: Options) -> Result<Options> {
    let engine = ENGINE.get().and_then(|made| made.as_ref().ok());
    let outer = match engine.filter(|_| refuse_fork().is_ok()) {
        Some(engine) => engine.outer_options(),
        None => environment()?,
    };
    Ok(call.or(outer))
}

/// The options of the environment, as read by the first call.
fn environment() -> Result<Options> {
    static ENVIRONMENT: OnceLock<Result<Options>> = OnceLock::new();
    let read = || match environment::setting("PENSTOCK_OPTIONS") {
        Some(text) => Options::parse(&text.to_string_lossy()).map_err(|e| {
            let remedy = "correct the environment variable PENSTOCK_OPTIONS";
            Error::invalid(format!("PENSTOCK_OPTIONS: {}", e.cause())).remedy(remedy)
        }),
        None => Ok(Options::default()),
    };
    ENVIRONMENT.get_or_init(read).clone()
}

/// The cores that this process may use.
///
/// # Errors
/// [`Kind::Forked`](crate::error::Kind::Forked) in a forked child.
pub fn cores() -> Result<usize> {
    Ok(engine()?.cores)
}

impl Engine {
    fn new() -> Result<Engine> {
        watch_forks();
        let environment = environment()?;
        let size = |name, default| match environment::text(name) {
            Some(text) => parse_size(name, &text),
            None => Ok(default),
        };
        let ring = size("PENSTOCK_RING", RING_BYTES)?;
        let chunk_cache = size("PENSTOCK_CHUNK_CACHE", CHUNK_CACHE_BYTES)?;
        let trace = environment::path("PENSTOCK_TRACE");
        let trace_failed = trace.and_then(|mut path| {
            if is_copy() {
                // The parent process writes the trace of that name.
                path.push(format!(".{}", std::process::id()));
            }
            trace::start(path.as_ref()).err()
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Engine {
            workers: Workers::new(cores),
            ring: Ring::new(ring),
            cores,
            profiles: Profiles::of_environment(),
            chunk_cache,
            environment,
            process: Mutex::default(),
            has_process_options: AtomicBool::new(false),
            trace_failed: Mutex::new(trace_failed),
        })
    }

    /// The options of the process and the environment, below those of a call and a file.
    pub(crate) fn outer_options(&self) -> Options {
        if !self.has_process_options.load(Ordering::Acquire) {
            return self.environment;
        }
        let process = *self.process.lock().recover();
        process.or(self.environment)
    }
}
