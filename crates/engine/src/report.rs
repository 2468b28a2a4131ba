//! What a request did: bytes by path, time, workers. Counted where the bytes move.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::options::{Options, RouteName};

/// A way that bytes can take. Each byte of a request is counted on exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    HostBuffered,
    HostDirect,
    StagedBuffered,
    StagedDirect,
    Mapped,
    GdsP2p,
    GdsNvfs,
    GdsPosix,
    GdsUnproven,
    /// Through host memory by HDF5 itself.
    Hdf5,
}

pub const PATHS: [Path; 10] = [
    Path::HostBuffered,
    Path::HostDirect,
    Path::StagedBuffered,
    Path::StagedDirect,
    Path::Mapped,
    Path::GdsP2p,
    Path::GdsNvfs,
    Path::GdsPosix,
    Path::GdsUnproven,
    Path::Hdf5,
];

impl Path {
    /// The name of its count in `penstock_report`.
    pub fn name(self) -> &'static str {
        match self {
            Path::HostBuffered => "host_buffered",
            Path::HostDirect => "host_direct",
            Path::StagedBuffered => "staged_buffered",
            Path::StagedDirect => "staged_direct",
            Path::Mapped => "mapped",
            Path::GdsP2p => "gds_p2p",
            Path::GdsNvfs => "gds_nvfs",
            Path::GdsPosix => "gds_posix",
            Path::GdsUnproven => "gds_unproven",
            Path::Hdf5 => "hdf5",
        }
    }

    fn route(self) -> RouteName {
        match self {
            Path::HostBuffered | Path::HostDirect => RouteName::Host,
            Path::StagedBuffered | Path::StagedDirect => RouteName::Staged,
            Path::Mapped => RouteName::Mapped,
            Path::Hdf5 => RouteName::Hdf5,
            _ => RouteName::Gds,
        }
    }
}

/// Counters of a request under way, shared by its workers.
#[derive(Debug, Default)]
pub struct Counters {
    bytes: [AtomicU64; PATHS.len()],
    io_calls: AtomicU64,
    copies: AtomicU64,
    threads: AtomicU32,
    queue_depth: AtomicU32,
    chunks: AtomicU64,
    stored: AtomicU64,
    decoded_cpu: AtomicU64,
    decoded_gpu: AtomicU64,
    tuned: OnceLock<Options>,
    note: Mutex<String>,
}

impl Counters {
    pub fn moved(&self, path: Path, bytes: u64) {
        self.bytes[path as usize].fetch_add(bytes, Relaxed);
    }
    pub fn io_call(&self) {
        self.io_calls.fetch_add(1, Relaxed);
    }
    pub fn copy(&self) {
        self.copies.fetch_add(1, Relaxed);
    }
    pub fn joined(&self) {
        self.threads.fetch_add(1, Relaxed);
    }
    /// Chunks of a dataset that were read or written, and their bytes in the file.
    pub fn chunks(&self, chunks: u64, stored: u64) {
        self.chunks.fetch_add(chunks, Relaxed);
        self.stored.fetch_add(stored, Relaxed);
    }
    /// Bytes of chunks that were decoded or encoded by the CPU.
    pub fn decoded_cpu(&self, bytes: u64) {
        self.decoded_cpu.fetch_add(bytes, Relaxed);
    }
    pub fn decoded_gpu(&self, bytes: u64) {
        self.decoded_gpu.fetch_add(bytes, Relaxed);
    }
    pub fn in_flight(&self, depth: u32) {
        self.queue_depth.fetch_max(depth, Relaxed);
    }
    /// What the request has from the tuned profile.
    pub fn tuned(&self, options: Options) {
        let _ = self.tuned.set(options);
    }
    /// Keeps the first note: it is the cause, later ones are consequences.
    pub fn note(&self, text: &str) {
        let mut note = self.note.lock().unwrap_or_else(|e| e.into_inner());
        if note.is_empty() {
            note.push_str(text);
        }
    }
    pub fn total(&self) -> u64 {
        self.bytes.iter().map(|b| b.load(Relaxed)).sum()
    }

    pub fn report(&self, asked: RouteName, device: i32, block: u64, elapsed_ns: u64) -> Report {
        let note = self.note.lock().unwrap_or_else(|e| e.into_inner()).clone();
        self.with_note(asked, device, block, elapsed_ns, note)
    }

    /// As [`report`](Self::report), of host memory and for the last time.
    pub fn into_host_report(mut self, block: u64, elapsed_ns: u64) -> Report {
        let note = std::mem::take(self.note.get_mut().unwrap_or_else(|e| e.into_inner()));
        self.with_note(RouteName::Host, -1, block, elapsed_ns, note)
    }

    fn with_note(
        &self,
        asked: RouteName,
        device: i32,
        block: u64,
        elapsed_ns: u64,
        note: String,
    ) -> Report {
        let bytes = PATHS.map(|path| self.bytes[path as usize].load(Relaxed));
        let route = PATHS
            .iter()
            .max_by_key(|path| bytes[**path as usize])
            .filter(|path| bytes[**path as usize] > 0)
            .map_or(asked, |path| path.route());
        Report {
            route,
            device,
            bytes,
            elapsed_ns,
            io_calls: self.io_calls.load(Relaxed),
            copies: self.copies.load(Relaxed),
            block,
            threads: self.threads.load(Relaxed),
            queue_depth: self.queue_depth.load(Relaxed),
            chunks: self.chunks.load(Relaxed),
            stored: self.stored.load(Relaxed),
            decoded_cpu: self.decoded_cpu.load(Relaxed),
            decoded_gpu: self.decoded_gpu.load(Relaxed),
            tuned: self.tuned.get().copied().unwrap_or_default(),
            note,
        }
    }
}

/// What one finished request did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The route that carried the most bytes; the chosen one if there were none.
    pub route: RouteName,
    /// CUDA ordinal of the memory, -1 for host memory.
    pub device: i32,
    bytes: [u64; PATHS.len()],
    /// From submission to completion.
    pub elapsed_ns: u64,
    pub io_calls: u64,
    pub copies: u64,
    pub block: u64,
    pub threads: u32,
    pub queue_depth: u32,
    /// Chunks of a dataset that were read or written, and their bytes in the file.
    pub chunks: u64,
    pub stored: u64,
    /// Bytes of chunks that the CPU, and those that the GPU, decoded or encoded.
    pub decoded_cpu: u64,
    pub decoded_gpu: u64,
    /// The options that the request has from the tuned profile.
    pub tuned: Options,
    /// Why the request took another way than asked for, or why the tuned profile did not count; else
    /// empty.
    pub note: String,
}

impl Report {
    /// The caller's bytes that took this path.
    pub fn bytes_by(&self, path: Path) -> u64 {
        self.bytes[path as usize]
    }
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}
