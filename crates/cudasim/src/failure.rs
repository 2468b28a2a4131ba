//! Failure injection.
//!
//! A specification is a comma-separated list of `KIND:WHICH[:CODE]`. `WHICH` selects calls of that
//! kind, which the process counts from 1: `3` is the third, `3+` the third and all later ones, `*`
//! all. `CODE` replaces the kind's default error: a `CUresult`, for cuFile a `CUfileOpError` (from
//! 5000) or an `errno` (below), for nvCOMP an `nvcompStatus_t`.
//!
//! Example: `alloc:3,copy:10+,hostregister:*,cufileread:5:5021`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_sys::nvcomp::{NVCOMP_ERROR_CANNOT_DECOMPRESS, NVCOMP_ERROR_CUDA};

use crate::config;
use crate::status::{self, CudaError};

/// The kinds of calls that can fail. `copy` and `kernel` fail in the call; `copyexec` and
/// `kernelexec` fail when the stream executes the work, which fails the context, as an asynchronous
/// failure does. `retain` concerns primary contexts, `context` created ones. `launch` is the launch of a
/// host function. `nvcomp` fails a call, `nvcompchunk` one chunk of a batch; `nvcompdamage` changes a byte
/// of a decoded chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Init,
    Retain,
    Context,
    Alloc,
    HostAlloc,
    HostRegister,
    Copy,
    CopyExec,
    Memset,
    Launch,
    Module,
    Kernel,
    KernelExec,
    Stream,
    Event,
    Record,
    Synchronize,
    Pointer,
    Capture,
    CufileOpen,
    CufileHandle,
    CufileBuffer,
    CufileRead,
    CufileWrite,
    Nvcomp,
    NvcompChunk,
    NvcompDamage,
}

const KINDS: [(Kind, &str, i32); 27] = [
    (Kind::Init, "init", status::NO_DEVICE.0),
    (Kind::Retain, "retain", status::OUT_OF_MEMORY.0),
    (Kind::Context, "context", status::OUT_OF_MEMORY.0),
    (Kind::Alloc, "alloc", status::OUT_OF_MEMORY.0),
    (Kind::HostAlloc, "hostalloc", status::OUT_OF_MEMORY.0),
    (Kind::HostRegister, "hostregister", status::OUT_OF_MEMORY.0),
    (Kind::Copy, "copy", status::UNKNOWN.0),
    (Kind::CopyExec, "copyexec", status::ILLEGAL_ADDRESS.0),
    (Kind::Memset, "memset", status::UNKNOWN.0),
    (Kind::Launch, "launch", status::LAUNCH_FAILED.0),
    (Kind::Module, "module", status::OUT_OF_MEMORY.0),
    (Kind::Kernel, "kernel", status::LAUNCH_FAILED.0),
    (Kind::KernelExec, "kernelexec", status::ILLEGAL_ADDRESS.0),
    (Kind::Stream, "stream", status::OUT_OF_MEMORY.0),
    (Kind::Event, "event", status::OUT_OF_MEMORY.0),
    (Kind::Record, "record", status::UNKNOWN.0),
    (Kind::Synchronize, "synchronize", status::UNKNOWN.0),
    (Kind::Pointer, "pointer", status::UNKNOWN.0),
    (Kind::Capture, "capture", status::STREAM_CAPTURE_IMPLICIT.0),
    (Kind::CufileOpen, "cufileopen", 5001),
    (Kind::CufileHandle, "cufilehandle", 5008),
    (Kind::CufileBuffer, "cufilebuffer", 5036),
    (Kind::CufileRead, "cufileread", libc::EIO),
    (Kind::CufileWrite, "cufilewrite", libc::EIO),
    (Kind::Nvcomp, "nvcomp", NVCOMP_ERROR_CUDA),
    (
        Kind::NvcompChunk,
        "nvcompchunk",
        NVCOMP_ERROR_CANNOT_DECOMPRESS,
    ),
    (Kind::NvcompDamage, "nvcompdamage", 0),
];

static CALLS: [AtomicU64; KINDS.len()] = [const { AtomicU64::new(0) }; KINDS.len()];

/// The specification of `cudasim_fail`, which overrides the environment once it was called.
static SPECIFICATION: Mutex<Option<String>> = Mutex::new(None);

/// Counts one call of a CUDA kind. Returns the error if it must fail.
pub fn check(kind: Kind) -> status::Result {
    match code(kind) {
        Some(code) => Err(CudaError(code)),
        None => Ok(()),
    }
}

/// Counts one call. Returns the code if it must fail.
pub fn code(kind: Kind) -> Option<i32> {
    let call = CALLS[kind as usize].fetch_add(1, Ordering::Relaxed) + 1;
    let wanted = {
        let specification = SPECIFICATION.lock().unwrap();
        match &*specification {
            Some(text) => matching(text, kind, call),
            None => config::variable("CUDASIM_FAIL").and_then(|text| matching(&text, kind, call)),
        }
    };
    if let Some(code) = wanted {
        config::log(format_args!(
            "call {call} of {kind:?} fails with injected error {code}"
        ));
    }
    wanted
}

/// Replaces the specification and resets the counts of calls.
pub fn set(specification: String) {
    *SPECIFICATION.lock().unwrap() = Some(specification);
    for calls in &CALLS {
        calls.store(0, Ordering::Relaxed);
    }
}

/// The calls of the kind with this name so far; `None` for an unknown name.
pub fn calls(name: &str) -> Option<u64> {
    let (kind, ..) = KINDS.iter().find(|(_, known, _)| *known == name)?;
    Some(CALLS[*kind as usize].load(Ordering::Relaxed))
}

fn matching(specification: &str, kind: Kind, call: u64) -> Option<i32> {
    let (_, name, default) = KINDS[kind as usize];
    specification.split(',').find_map(|entry| {
        let mut parts = entry.trim().split(':');
        let (entry_name, which) = (parts.next()?, parts.next()?);
        let hit = entry_name == name
            && match which.strip_suffix('+') {
                Some(first) => call >= first.parse().ok()?,
                None => which == "*" || which.parse() == Ok(call),
            };
        hit.then(|| {
            parts
                .next()
                .and_then(|code| code.parse().ok())
                .unwrap_or(default)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{KINDS, Kind, matching};

    #[test]
    fn the_index_of_a_kind_in_the_table_is_its_discriminant() {
        for (index, (kind, ..)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }

    #[test]
    fn a_specification_selects_one_call_all_later_ones_or_all() {
        let text = "alloc:3, copy:2+,launch:*,cufileread:5:5021";
        assert_eq!(matching(text, Kind::Alloc, 2), None);
        assert_eq!(matching(text, Kind::Alloc, 3), Some(2));
        assert_eq!(matching(text, Kind::Alloc, 4), None);
        assert_eq!(matching(text, Kind::Copy, 1), None);
        assert_eq!(matching(text, Kind::Copy, 9), Some(999));
        assert_eq!(matching(text, Kind::Launch, 1), Some(719));
        assert_eq!(matching(text, Kind::CufileRead, 5), Some(5021));
        assert_eq!(matching(text, Kind::CufileWrite, 5), None);
    }
}
