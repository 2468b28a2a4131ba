//! What a request did: bytes by path, time, workers. Bytes are counted where they move.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::options::{Options, RouteName};
use crate::sync::Recover;

/// Defines [`Path`] and the properties of each path.
macro_rules! paths {
    ($($(#[$about:meta])* $path:ident, $name:literal, $route:ident;)*) => {
        /// A path that bytes take between a file and memory. Each byte of a request is counted on
        /// exactly one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Path {
            $($(#[$about])* $path,)*
        }

        /// Every path, in the order of the enum and of the counters in `penstock_report`.
        pub const PATHS: [Path; [$($name),*].len()] = [$(Path::$path),*];

        impl Path {
            /// The name of the path's counter in `penstock_report`, such as `host_buffered`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Path::$path => $name,)*
                }
            }

            fn route(self) -> RouteName {
                match self {
                    $(Path::$path => RouteName::$route,)*
                }
            }
        }
    };
}

paths! {
    /// Between the page cache and host memory.
    HostBuffered, "host_buffered", Host;
    /// Between the medium and host memory, by O_DIRECT.
    HostDirect, "host_direct", Host;
    /// Between the page cache, a pinned slot and the GPU.
    StagedBuffered, "staged_buffered", Staged;
    /// Between the medium, a pinned slot and the GPU, by O_DIRECT.
    StagedDirect, "staged_direct", Staged;
    /// From pinned pages of the page cache, which the GPU pulls.
    Mapped, "mapped", Mapped;
    /// By cuFile over PCIe peer-to-peer, as its statistics prove.
    GdsP2p, "gds_p2p", Gds;
    /// By cuFile through the nvidia-fs kernel module, as its statistics prove.
    GdsNvfs, "gds_nvfs", Gds;
    /// By cuFile through host memory, as its statistics prove.
    GdsPosix, "gds_posix", Gds;
    /// By cuFile, whose statistics do not prove which way.
    GdsUnproven, "gds_unproven", Gds;
    /// Through host memory, by HDF5 itself.
    Hdf5, "hdf5", Hdf5;
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
    /// Counts bytes of the caller that took a path.
    pub fn moved(&self, path: Path, bytes: u64) {
        self.bytes[path as usize].fetch_add(bytes, Relaxed);
    }
    /// Counts one read, write, mapping or call of cuFile.
    pub(crate) fn io_call(&self) {
        self.io_calls.fetch_add(1, Relaxed);
    }
    /// Counts one DMA or copy in memory.
    pub fn copy(&self) {
        self.copies.fetch_add(1, Relaxed);
    }
    /// Counts a worker that has found work.
    pub fn joined(&self) {
        self.threads.fetch_add(1, Relaxed);
    }

    /// Takes back one [`joined`](Self::joined): another thread does the rest of this one's share.
    pub fn left(&self) {
        self.threads.fetch_sub(1, Relaxed);
    }

    /// Counts chunks of a dataset that were read or written, and their `stored` bytes in the file.
    pub fn chunks(&self, chunks: u64, stored: u64) {
        self.chunks.fetch_add(chunks, Relaxed);
        self.stored.fetch_add(stored, Relaxed);
    }
    /// Counts bytes of chunks that the CPU decoded or encoded; their size when decoded.
    pub fn decoded_cpu(&self, bytes: u64) {
        self.decoded_cpu.fetch_add(bytes, Relaxed);
    }
    /// Counts bytes of chunks that the GPU decoded or encoded; their size when decoded.
    pub fn decoded_gpu(&self, bytes: u64) {
        self.decoded_gpu.fetch_add(bytes, Relaxed);
    }
    /// Records how many reads or writes a worker has in flight.
    pub(crate) fn in_flight(&self, depth: u32) {
        self.queue_depth.fetch_max(depth, Relaxed);
    }
    /// Records the options that the request took from the tuned profile.
    pub fn tuned(&self, options: Options) {
        let _ = self.tuned.set(options);
    }
    /// Records the first note: it is the cause, and later ones are consequences.
    pub fn note(&self, text: &str) {
        let mut note = self.note.lock().recover();
        if note.is_empty() {
            note.push_str(text);
        }
    }
    /// Bytes of the caller that have moved so far.
    pub fn total(&self) -> u64 {
        self.bytes.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// The report of a request as it is now. `requested` is the route to report if nothing moved, and
    /// `device` the CUDA ordinal of the memory, -1 for host memory.
    pub fn report(&self, requested: RouteName, device: i32, block: u64, elapsed_ns: u64) -> Report {
        let bytes = PATHS.map(|path| self.bytes[path as usize].load(Relaxed));
        let route = PATHS
            .iter()
            .max_by_key(|path| bytes[**path as usize])
            .filter(|path| bytes[**path as usize] > 0)
            .map_or(requested, |path| path.route());
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
            note: self.note.lock().recover().clone(),
        }
    }
}

/// What one finished request did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The route that carried the most bytes, or the requested route if nothing moved.
    pub route: RouteName,
    /// CUDA ordinal of the memory, -1 for host memory.
    pub device: i32,
    bytes: [u64; PATHS.len()],
    /// Nanoseconds from submission to completion.
    pub elapsed_ns: u64,
    /// Reads, writes, mappings or calls of cuFile.
    pub io_calls: u64,
    /// DMAs or copies in memory.
    pub copies: u64,
    /// Bytes that a worker moved at a time; where they varied, at the end.
    pub block: u64,
    /// Workers that found work; where they varied, at the end.
    pub threads: u32,
    /// The greatest number of reads or writes that one worker had in flight.
    pub queue_depth: u32,
    /// Chunks of a dataset that were read or written.
    pub chunks: u64,
    /// Bytes of these chunks in the file.
    pub stored: u64,
    /// Bytes of chunks that the CPU decoded or encoded; their size when decoded.
    pub decoded_cpu: u64,
    /// Bytes of chunks that the GPU decoded or encoded; their size when decoded.
    pub decoded_gpu: u64,
    /// The options that the request took from the tuned profile.
    pub tuned: Options,
    /// Why the request did not follow its options, or why the tuned profile was not used; empty in
    /// the normal case.
    pub note: String,
}

impl Report {
    /// Bytes of the caller that took this path.
    pub fn bytes_by(&self, path: Path) -> u64 {
        self.bytes[path as usize]
    }
    /// Bytes of the caller that were moved.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}
