//! The decoders of a batch's pieces: Penstock's own kernel for deflate, nvCOMP for LZ4 and Zstd.

use penstock_codec::gpu::nvcomp::{self, Batch as NvBatch, Method, Nvcomp};
use penstock_codec::gpu::{InflateTable, Inflated, Kernels};
use penstock_engine::error::Result;
use penstock_engine::gpu::OwnContext;
use penstock_sys::cuda::{CUdeviceptr, CUstream};

use super::batch::Entry;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::placing;
use crate::execute::device::scratch::Scratch;

pub(super) enum Decoding {
    Inflate(InflateTable),
    Nvcomp { library: Nvcomp, method: Method },
}

/// nvCOMP's input arrays: addresses and sizes of inputs, addresses and rooms of outputs.
const COLUMNS: [Column; 4] = [|e| e.input, |e| e.input_size, |e| e.output, |e| e.room];
type Column = fn(&Entry) -> u64;

fn column(count: usize) -> usize {
    (count * size_of::<u64>()).next_multiple_of(ALIGNMENT)
}

impl Decoding {
    /// Returns the decoder; `nvcomp` must be given if the method needs it.
    pub(super) fn new(
        method: Method,
        nvcomp: Option<Nvcomp>,
        entries: &[Entry],
    ) -> Option<Decoding> {
        if method != Method::Deflate {
            let library = nvcomp?;
            return Some(Decoding::Nvcomp { library, method });
        }
        let mut table = InflateTable::new();
        for entry in entries {
            let length = u32::try_from(entry.input_size).ok()?;
            let room = u32::try_from(entry.room).ok()?;
            table.push(entry.input, length, entry.output, room);
        }
        Some(Decoding::Inflate(table))
    }

    /// Returns the size of the tables in bytes.
    pub(super) fn size(&self, entries: &[Entry]) -> usize {
        match self {
            Decoding::Inflate(table) => table.size(),
            Decoding::Nvcomp { .. } => COLUMNS.len() * column(entries.len()),
        }
    }

    pub(super) fn write(&self, entries: &[Entry], to: &mut [u8]) {
        match self {
            Decoding::Inflate(table) => table.write(to),
            Decoding::Nvcomp { .. } => {
                let columns = to.chunks_exact_mut(column(entries.len()).max(1));
                for (value, to) in COLUMNS.iter().zip(columns) {
                    for (to, entry) in to.chunks_exact_mut(size_of::<u64>()).zip(entries) {
                        to.copy_from_slice(&value(entry).to_ne_bytes());
                    }
                }
            }
        }
    }

    /// Returns the size in bytes of the results that the GPU writes.
    pub(super) fn results_size(&self, entries: &[Entry]) -> usize {
        match self {
            Decoding::Inflate(table) => table.verdicts_size(),
            Decoding::Nvcomp { .. } => column(entries.len()) + entries.len() * size_of::<i32>(),
        }
    }

    /// Returns the size of the temporary memory.
    ///
    /// # Safety
    /// `stream` belongs to the current context.
    pub(super) unsafe fn temp_bytes(&self, entries: &[Entry], stream: CUstream) -> Result<u64> {
        match self {
            Decoding::Inflate(_) => Ok(0),
            Decoding::Nvcomp { library, method } => {
                let total = entries.iter().map(|e| e.room).sum::<u64>() as usize;
                let count = entries.len().max(1);
                // SAFETY: upheld by the caller.
                let bytes = unsafe {
                    library.decode_temp_bytes(*method, count, largest(entries), total, stream)
                };
                bytes.map(|n| n as u64).map_err(placing::gpu_failed)
            }
        }
    }

    /// Queues the decoding. The tables are at `tables`, room for the results at `results`.
    ///
    /// # Safety
    /// All memory that the entries refer to stays valid until the stream has executed this;
    /// `stream` belongs to the context, which is current.
    pub(super) unsafe fn queue(
        &self,
        entries: &[Entry],
        (tables, results): (CUdeviceptr, CUdeviceptr),
        temp: &Scratch,
        kernels: &Kernels,
        (context, stream): (&OwnContext, CUstream),
    ) -> Result<()> {
        match self {
            // SAFETY: upheld by the caller.
            Decoding::Inflate(table) => unsafe { kernels.inflate(table, tables, results, stream) }
                .map_err(|e| placing::gpu_error(context, &e)),
            Decoding::Nvcomp { library, method } => {
                let count = entries.len();
                let at = |n: usize| tables + (n * column(count)) as u64;
                let order = NvBatch {
                    inputs: at(0),
                    input_sizes: at(1),
                    outputs: at(2),
                    output_rooms: at(3),
                    output_sizes: results,
                    statuses: results + column(count) as u64,
                    chunks: count,
                    max_decoded: largest(entries),
                    temp: temp.address,
                    temp_bytes: temp.bytes as usize,
                };
                // SAFETY: upheld by the caller.
                unsafe { library.decode(*method, &order, stream) }.map_err(placing::gpu_failed)
            }
        }
    }

    /// Returns whether each entry was decoded, from the bytes of the results.
    pub(super) fn outcomes(&self, entries: &[Entry], results: &[u8]) -> Vec<bool> {
        match self {
            Decoding::Inflate(_) => InflateTable::verdicts(results)
                .map(|verdict| verdict == Inflated::Done)
                .collect(),
            Decoding::Nvcomp { .. } => {
                let (sizes, statuses) = results.split_at(column(entries.len()));
                let sizes = sizes.as_chunks().0.iter().copied().map(u64::from_ne_bytes);
                let statuses = statuses
                    .as_chunks()
                    .0
                    .iter()
                    .copied()
                    .map(i32::from_ne_bytes);
                entries
                    .iter()
                    .zip(sizes.zip(statuses))
                    .map(|(e, (size, status))| status == nvcomp::SUCCESS && size == e.room)
                    .collect()
            }
        }
    }
}

fn largest(entries: &[Entry]) -> usize {
    entries.iter().map(|e| e.room).max().unwrap_or(0) as usize
}
