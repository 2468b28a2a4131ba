//! Measures how fast the GPU decodes deflate streams:
//! `cargo run --release -p penstock-codec --example inflate_speed [total bytes]`.
//!
//! The chunks are float32 values of a smooth field with two decimals, shuffled and encoded by zlib
//! at level 4. Rates count decoded bytes; some 50 chunks of each result are compared with the data.

#[path = "../tests/common/zlib.rs"]
#[allow(unused_imports, reason = "it encodes in one way only")]
mod zlib;

use std::ptr::null_mut;
use std::time::Instant;

use penstock_codec::gpu::{GpuError, InflateTable, Inflated, Kernels};
use penstock_sys::cuda::{self, CU_STREAM_DEFAULT, CUdeviceptr, CUstream, Cuda};

/// Different chunks of each size; further chunks repeat them.
const DIFFERENT: usize = 16;

struct Gpu {
    cuda: &'static Cuda,
    kernels: Kernels,
    stream: CUstream,
}

struct Memory<'a> {
    gpu: &'a Gpu,
    address: CUdeviceptr,
    bytes: usize,
}

/// Chunks of one size in GPU memory.
struct Chunks<'a> {
    size: usize,
    data: &'a [Vec<u8>],
    encoded: &'a [Vec<u8>],
    places: Vec<CUdeviceptr>,
    output: &'a Memory<'a>,
}

impl Gpu {
    fn open() -> Gpu {
        let cuda = cuda::cuda().unwrap_or_else(|e| panic!("{e}"));
        let (mut context, mut stream) = (null_mut(), null_mut());
        // SAFETY: the driver is initialised first; the pointers are valid for the calls.
        unsafe {
            check((cuda.cuInit)(0));
            check((cuda.cuDevicePrimaryCtxRetain)(&mut context, 0));
            check((cuda.cuCtxSetCurrent)(context));
            check((cuda.cuStreamCreate)(&mut stream, CU_STREAM_DEFAULT));
        }
        // SAFETY: the context is current.
        let kernels = unsafe { Kernels::load(cuda) }.unwrap_or_else(|e| panic!("{}", e.text(cuda)));
        Gpu {
            cuda,
            kernels,
            stream,
        }
    }

    fn memory(&self, bytes: usize) -> Memory<'_> {
        let mut address = 0;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { (self.cuda.cuMemAlloc)(&mut address, bytes.max(1)) });
        Memory {
            gpu: self,
            address,
            bytes,
        }
    }

    fn uploaded(&self, bytes: &[u8]) -> Memory<'_> {
        let memory = self.memory(bytes.len());
        // SAFETY: both sides have that many bytes, and the call waits.
        check(unsafe {
            (self.cuda.cuMemcpyHtoD)(memory.address, bytes.as_ptr().cast(), bytes.len())
        });
        memory
    }

    /// The seconds of the fastest of three rounds.
    fn seconds(&self, queue: impl Fn()) -> f64 {
        let round = || {
            let begin = Instant::now();
            queue();
            // SAFETY: the stream is alive.
            check(unsafe { (self.cuda.cuStreamSynchronize)(self.stream) });
            begin.elapsed().as_secs_f64()
        };
        round();
        (0..3).map(|_| round()).fold(f64::INFINITY, f64::min)
    }
}

impl Memory<'_> {
    fn clear(&self) {
        // SAFETY: the memory has that many bytes.
        check(unsafe { (self.gpu.cuda.cuMemsetD8)(self.address, 0, self.bytes) });
    }

    fn download(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.bytes);
        let mut bytes = vec![0; length];
        let (to, from) = (bytes.as_mut_ptr().cast(), self.address + offset as u64);
        // SAFETY: both sides have that many bytes, and the call waits.
        check(unsafe { (self.gpu.cuda.cuMemcpyDtoH)(to, from, length) });
        bytes
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: no queued work uses the memory.
        unsafe { (self.gpu.cuda.cuMemFree)(self.address) };
    }
}

impl Chunks<'_> {
    fn assert_decoded(&self, count: usize) {
        let step = (count / 50).max(1);
        for index in (0..count).step_by(step) {
            let decoded = self.output.download(index * self.size, self.size);
            assert!(decoded == self.data[index % DIFFERENT], "chunk {index}");
        }
    }

    fn room(&self, index: usize) -> CUdeviceptr {
        self.output.address + (index * self.size) as u64
    }

    fn inflate(&self, gpu: &Gpu, count: usize) -> f64 {
        let mut table = InflateTable::new();
        for index in 0..count {
            let input = self.places[index % DIFFERENT];
            let length = self.encoded[index % DIFFERENT].len() as u32;
            table.push(input, length, self.room(index), self.size as u32);
        }
        let mut bytes = vec![0; table.size()];
        table.write(&mut bytes);
        let (at, verdicts) = (gpu.uploaded(&bytes), gpu.memory(table.verdicts_size()));
        self.output.clear();
        let seconds = gpu.seconds(|| {
            // SAFETY: the context is current, and the table and its buffers stay.
            let queued: Result<(), GpuError> = unsafe {
                let (at, verdicts) = (at.address, verdicts.address);
                gpu.kernels.inflate(&table, at, verdicts, gpu.stream)
            };
            queued.unwrap_or_else(|e| panic!("{}", e.text(gpu.cuda)));
        });
        let found = verdicts.download(0, table.verdicts_size());
        assert!(InflateTable::verdicts(&found).all(|v| v == Inflated::Done));
        self.assert_decoded(count);
        seconds
    }
}

fn check(code: i32) {
    assert_eq!(code, 0, "the driver failed");
}

fn field(elements: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u32 * 7919 + 1;
    let values: Vec<[u8; 4]> = (0..elements)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = (state >> 8) as f32 / (1 << 24) as f32;
            let value = ((seed * elements + index) as f32 * 1e-3).sin() * 100.0 + noise;
            ((value * 100.0).round() / 100.0).to_le_bytes()
        })
        .collect();
    (0..4)
        .flat_map(|plane| values.iter().map(move |value| value[plane]))
        .collect()
}

fn main() {
    let bytes = std::env::args()
        .nth(1)
        .map_or(8 << 30, |n| n.parse().expect("a number of bytes"));
    let gpu = Gpu::open();
    let output = gpu.memory(bytes);
    for size in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let data: Vec<Vec<u8>> = (0..DIFFERENT).map(|seed| field(size / 4, seed)).collect();
        let encoded: Vec<Vec<u8>> = data
            .iter()
            .map(|data| zlib::deflate(data, 4, zlib::Z_DEFAULT_STRATEGY, 8))
            .collect();
        let stored: usize = encoded.iter().map(Vec::len).sum();
        println!(
            "chunks of {} KiB, {:.2} to 1",
            size >> 10,
            (DIFFERENT * size) as f64 / stored as f64
        );
        let inputs: Vec<Memory> = encoded.iter().map(|bytes| gpu.uploaded(bytes)).collect();
        let chunks = Chunks {
            size,
            data: &data,
            encoded: &encoded,
            places: inputs.iter().map(|memory| memory.address).collect(),
            output: &output,
        };
        for count in [1, 128, 512, 2048, 8192, 32768] {
            if count * size > bytes {
                break;
            }
            let rate = (count * size) as f64 / chunks.inflate(&gpu, count) / 1e9;
            println!("{count:6} chunks: {rate:8.3} GB/s");
        }
    }
}
