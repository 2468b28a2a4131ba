//! Where the stand-in for nvCOMP is stricter than the library, and its injected failures.

#[macro_use]
mod common;

use std::ffi::c_void;

use common::*;
use cudasim::nvcomp::api::*;
use penstock_sys::nvcomp::{
    NVCOMP_ERROR_ALIGNMENT, NVCOMP_ERROR_CANNOT_DECOMPRESS, NVCOMP_ERROR_CUDA,
    NVCOMP_ERROR_INVALID_VALUE, NVCOMP_SUCCESS, NvcompDecompressOpts,
};

const ILLEGAL_ADDRESS: i32 = 700;
const MISALIGNED_ADDRESS: i32 = 716;
/// The decoded form of each chunk of the batch.
const CHUNK: &[u8] = b"penstock penstock penstock penstock";

/// A batch of two equal blocks of LZ4 in device memory.
struct Batch {
    input: u64,
    output: u64,
    temp_bytes: usize,
    stream: *mut c_void,
}

struct Queued {
    stream: *mut c_void,
    statuses: u64,
    sizes: u64,
    outputs: [u64; 2],
}

/// The contents of device memory after a batch.
struct Done {
    statuses: [i32; 2],
    sizes: [u64; 2],
    outputs: [Vec<u8>; 2],
}

impl Batch {
    fn new() -> Batch {
        context();
        let stream = stream(NON_BLOCKING);
        let mut temp_bytes = 0;
        done!(nvcompBatchedLZ4DecompressGetTempSize(
            2,
            CHUNK.len(),
            NvcompDecompressOpts::new(0),
            &mut temp_bytes,
            2 * CHUNK.len(),
            stream
        ));
        Batch {
            input: device_memory(1024),
            output: device_memory(1024),
            temp_bytes,
            stream,
        }
    }

    /// Queues the batch and returns the status of the call.
    fn submit(&self) -> (i32, Queued) {
        let encoded = lz4_flex::block::compress(CHUNK);
        poke(self.input, &encoded);
        let words = |values: [u64; 2]| {
            let address = device_memory(16);
            poke(address, &values.map(u64::to_ne_bytes).concat());
            address
        };
        let second = self.output + 512;
        let (sizes, statuses) = (words([0; 2]), words([0; 2]));
        // SAFETY: all arrays have two entries; the stand-in checks their contents.
        let status = unsafe {
            nvcompBatchedLZ4DecompressAsync(
                words([self.input; 2]),
                words([encoded.len() as u64; 2]),
                words([CHUNK.len() as u64; 2]),
                sizes,
                2,
                device_memory(4096),
                self.temp_bytes,
                words([self.output, second]),
                NvcompDecompressOpts::new(0),
                statuses,
                self.stream,
            )
        };
        let queued = Queued {
            stream: self.stream,
            statuses,
            sizes,
            outputs: [self.output, second],
        };
        (status, queued)
    }
}

impl Queued {
    /// Waits for the batch and returns the status of the stream.
    fn wait(&self) -> i32 {
        // SAFETY: the stream is not destroyed.
        unsafe { cuStreamSynchronize(self.stream) }
    }

    /// Waits for the batch, which must not fail the context, and returns its results.
    fn finish(self) -> Done {
        assert_eq!(self.wait(), 0);
        Done {
            statuses: [0, 4].map(|at| i32::from_ne_bytes(peek(self.statuses + at))),
            sizes: [0, 8].map(|at| u64::from_ne_bytes(peek(self.sizes + at))),
            outputs: self.outputs.map(|at| peek::<{ CHUNK.len() }>(at).to_vec()),
        }
    }
}

fn poke(address: u64, bytes: &[u8]) {
    done!(cudasim_poke(address, bytes.as_ptr().cast(), bytes.len()));
}

fn peek<const SIZE: usize>(address: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    done!(cudasim_peek(address, bytes.as_mut_ptr().cast(), SIZE));
    bytes
}

#[test]
fn a_batch_is_decoded_by_the_stream() {
    let _alone = alone();
    let (status, queued) = Batch::new().submit();
    let done = queued.finish();
    assert_eq!(status, NVCOMP_SUCCESS);
    assert_eq!(done.statuses, [NVCOMP_SUCCESS; 2]);
    assert_eq!(done.sizes, [CHUNK.len() as u64; 2]);
    assert_eq!(done.outputs, [CHUNK, CHUNK]);
}

#[test]
fn a_chunk_at_an_unaligned_address_fails_the_context() {
    let _alone = alone();
    let mut batch = Batch::new();
    batch.input += 4;
    let (status, queued) = batch.submit();
    assert_eq!(
        (status, queued.wait()),
        (NVCOMP_SUCCESS, MISALIGNED_ADDRESS)
    );
}

#[test]
fn too_little_temporary_memory_fails_the_context() {
    let _alone = alone();
    let mut batch = Batch::new();
    batch.temp_bytes -= 1;
    let (status, queued) = batch.submit();
    assert_eq!((status, queued.wait()), (NVCOMP_SUCCESS, ILLEGAL_ADDRESS));
}

#[test]
fn an_output_without_the_room_it_claims_fails_the_context() {
    let _alone = alone();
    let mut batch = Batch::new();
    batch.output += 1024 - 512 - 16;
    let (status, queued) = batch.submit();
    assert_eq!((status, queued.wait()), (NVCOMP_SUCCESS, ILLEGAL_ADDRESS));
}

#[test]
fn an_unaligned_or_missing_array_is_refused_in_the_call() {
    let _alone = alone();
    let batch = Batch::new();
    let call = |inputs: u64| {
        let (array, opts) = (batch.output, NvcompDecompressOpts::new(0));
        // SAFETY: refused before any address is used.
        unsafe {
            nvcompBatchedZstdDecompressAsync(
                inputs,
                array,
                array,
                array,
                1,
                array,
                512,
                array,
                opts,
                array,
                batch.stream,
            )
        }
    };
    assert_eq!(call(batch.input + 4), NVCOMP_ERROR_ALIGNMENT);
    assert_eq!(call(0), NVCOMP_ERROR_INVALID_VALUE);
}

#[test]
fn a_call_fails_when_injected() {
    let _alone = alone();
    let batch = Batch::new();
    fail(Some("nvcomp:1"));
    assert_eq!(batch.submit().0, NVCOMP_ERROR_CUDA);
    let (status, queued) = batch.submit();
    assert_eq!((status, queued.wait()), (NVCOMP_SUCCESS, 0));
}

#[test]
fn one_chunk_of_a_batch_fails_when_injected() {
    let _alone = alone();
    let batch = Batch::new();
    fail(Some("nvcompchunk:1"));
    let (_, queued) = batch.submit();
    let done = queued.finish();
    assert_eq!(
        done.statuses,
        [NVCOMP_ERROR_CANNOT_DECOMPRESS, NVCOMP_SUCCESS]
    );
    assert_eq!(done.outputs[1], CHUNK);
}

#[test]
fn a_chunk_is_silently_damaged_when_injected() {
    let _alone = alone();
    let batch = Batch::new();
    fail(Some("nvcompdamage:2"));
    let (_, queued) = batch.submit();
    let done = queued.finish();
    assert_eq!(done.statuses, [NVCOMP_SUCCESS; 2]);
    assert_eq!(done.sizes, [CHUNK.len() as u64; 2]);
    assert_eq!(done.outputs[0], CHUNK);
    assert_ne!(done.outputs[1], CHUNK);
}
