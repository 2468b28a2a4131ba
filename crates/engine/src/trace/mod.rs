//! Spans of requests and blocks, as Chrome trace JSON, which Perfetto reads, and as NVTX ranges if
//! that library is present.

mod chrome;

use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use penstock_sys::environment;
use penstock_sys::nvtx::{self, Nvtx};

use crate::error::Result;
use crate::file::position::Operation;
use crate::options::RouteName;

/// The work of a worker for one block.
pub(crate) struct TracedBlock {
    pub operation: Operation,
    pub route: RouteName,
    pub offset: u64,
    pub length: u64,
}

static ON: AtomicBool = AtomicBool::new(false);

/// Starts a trace that is written to `path`, and stops an earlier one first. The process stops the
/// trace at the latest when it exits.
///
/// # Errors
/// The file cannot be created, or that of the earlier trace cannot be completed.
pub fn start(path: &Path) -> Result<()> {
    chrome::open(path)?;
    ON.store(true, Relaxed);
    Ok(())
}

/// Stops the trace and completes its file.
pub fn stop() -> Result<()> {
    ON.store(false, Relaxed);
    chrome::close()
}

fn ranges() -> Option<&'static Nvtx> {
    static NVTX: OnceLock<Option<&'static Nvtx>> = OnceLock::new();
    *NVTX.get_or_init(|| {
        // Profilers set this variable to inject themselves. Without a profiler, ranges would have
        // no effect.
        environment::path("NVTX_INJECTION64_PATH")?;
        nvtx::nvtx().ok()
    })
}

/// Opens a span on this thread, which ends when the result is dropped. Costs two loads if neither a
/// trace nor a profiler is active.
pub(crate) fn span(describe: impl FnOnce() -> TracedBlock) -> Option<TraceSpan> {
    let nvtx = ranges();
    let traced = ON.load(Relaxed);
    if nvtx.is_none() && !traced {
        return None;
    }
    let block = describe();
    if let Some(nvtx) = nvtx
        && let Ok(name) = CString::new(format!("penstock {}", word(block.operation)))
    {
        // SAFETY: the name is a C string that outlives the call, which copies it.
        unsafe { (nvtx.nvtxRangePushA)(name.as_ptr()) };
    }
    Some(TraceSpan {
        block,
        start: Instant::now(),
        nvtx,
        traced,
    })
}

pub(crate) struct TraceSpan {
    block: TracedBlock,
    start: Instant,
    nvtx: Option<&'static Nvtx>,
    traced: bool,
}

impl Drop for TraceSpan {
    fn drop(&mut self) {
        if let Some(nvtx) = self.nvtx {
            // SAFETY: ends the range that `span` began on this thread.
            unsafe { (nvtx.nvtxRangePop)() };
        }
        if self.traced {
            let name = format!("{} {:?}", word(self.block.operation), self.block.route);
            chrome::event(
                &name.to_lowercase(),
                "block",
                self.start,
                &[("offset", self.block.offset), ("bytes", self.block.length)],
            );
        }
    }
}

/// Records a finished request.
pub(crate) fn request(operation: Operation, start: Instant, bytes: u64) {
    if ON.load(Relaxed) {
        let name = format!("{} request", word(operation));
        chrome::event(&name, "request", start, &[("bytes", bytes)]);
    }
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    }
}
