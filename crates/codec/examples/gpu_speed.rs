//! Measures how fast the kernels move elements and compute checksums: `cargo run --release -p
//! penstock-codec --example gpu_speed [total bytes] [bytes of a chunk]`. Rates count decoded bytes in
//! GPU memory and include the launch of one table for all chunks.

use std::ptr::null_mut;
use std::time::Instant;

use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_codec::gpu::{
    Checksum, ChecksumTable, GpuError, Kernels, PlaceAxis, PlaceTable, Shuffles, Side,
};
use penstock_sys::cuda::{self, CU_STREAM_DEFAULT, CUdeviceptr, CUstream, Cuda};

struct Gpu {
    cuda: &'static Cuda,
    kernels: Kernels,
    stream: CUstream,
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
        let begin = Instant::now();
        // SAFETY: the context is current.
        let kernels = unsafe { Kernels::load(cuda) }.unwrap_or_else(|e| panic!("{}", e.text(cuda)));
        println!("kernels loaded in {:.0?}", begin.elapsed());
        Gpu {
            cuda,
            kernels,
            stream,
        }
    }

    /// Device memory that is never freed, all zeros.
    fn memory(&self, bytes: u64) -> CUdeviceptr {
        let mut address = 0;
        // SAFETY: the pointer is valid, and the memory has that many bytes.
        unsafe {
            check((self.cuda.cuMemAlloc)(&mut address, bytes as usize));
            check((self.cuda.cuMemsetD8)(address, 0, bytes as usize));
        }
        address
    }

    fn uploaded(&self, bytes: &[u8]) -> CUdeviceptr {
        let address = self.memory(bytes.len() as u64);
        // SAFETY: both sides have that many bytes, and the call waits.
        check(unsafe { (self.cuda.cuMemcpyHtoD)(address, bytes.as_ptr().cast(), bytes.len()) });
        address
    }

    fn wait(&self) {
        // SAFETY: the context is current.
        check(unsafe { (self.cuda.cuCtxSynchronize)() });
    }

    fn rate(&self, name: &str, bytes: u64, launch: impl Fn() -> Result<(), GpuError>) {
        const ROUNDS: u32 = 10;
        let run = |rounds| {
            let begin = Instant::now();
            for _ in 0..rounds {
                launch().unwrap_or_else(|e| panic!("{}", e.text(self.cuda)));
            }
            self.wait();
            begin.elapsed()
        };
        self.wait();
        run(1);
        let seconds = run(ROUNDS).as_secs_f64() / f64::from(ROUNDS);
        println!("{name:<44} {:8.1} GB/s", bytes as f64 / seconds / 1e9);
    }
}

fn check(code: i32) {
    assert_eq!(code, 0, "the driver failed");
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|n| n.parse::<u64>().expect("a number"));
    let bytes = arguments.next().unwrap_or(1 << 30);
    let chunk = arguments.next().unwrap_or(64 << 10);
    let count = bytes / chunk;
    let gpu = Gpu::open();
    let (source, target) = (gpu.memory(bytes), gpu.memory(2 * bytes));

    // Square chunks of a 2-D dataset, so that each row is a run, or contiguous chunks.
    let place = |name: &str,
                 conversion: TypeConversion,
                 shuffle: u32,
                 size: u64,
                 square: bool,
                 step: u64| {
        let after = conversion.size_after(size as usize) as u64;
        let elements = chunk / size;
        let side = if square { elements.isqrt() } else { 1 };
        let run = elements / side;
        let shuffles = Shuffles {
            source: shuffle,
            target: 0,
        };
        let mut table = PlaceTable::new(conversion, size, shuffles).expect("whole numbers");
        let across = count.isqrt().max(1);
        let row = across * run * after;
        for index in 0..count / across * across {
            let from = Side {
                address: source + index * chunk,
                length: chunk,
                offset: 0,
                shuffled: if shuffle > 0 {
                    chunk / u64::from(shuffle)
                } else {
                    0
                },
            };
            let to = Side {
                address: target,
                length: 2 * bytes,
                offset: index / across * side * row + index % across * run * after,
                shuffled: 0,
            };
            let axes = [
                PlaceAxis {
                    count: side.div_ceil(step),
                    source_stride: (run * size * step) as i64,
                    target_stride: row as i64,
                },
                PlaceAxis {
                    count: run,
                    source_stride: size as i64,
                    target_stride: after as i64,
                },
            ];
            table.push(from, to, &axes).expect("inside both sides");
        }
        let mut uploaded = vec![0; table.size()];
        table.write(&mut uploaded);
        let at = gpu.uploaded(&uploaded);
        // SAFETY: the context is current, and the table and its buffers stay.
        gpu.rate(name, bytes / step, || unsafe {
            gpu.kernels.place(&table, at, gpu.stream)
        });
    };
    let convert = |from, to| TypeConversion::Convert {
        from: Format::little(from),
        to: Format::little(to),
    };
    let swap = TypeConversion::Swap { unit: 4 };
    place("chunks one by one", TypeConversion::Copy, 0, 4, false, 1);
    place(
        "chunks in rows, float32",
        TypeConversion::Copy,
        0,
        4,
        true,
        1,
    );
    place("chunks in rows, bytes", TypeConversion::Copy, 0, 1, true, 1);
    place("every second row", TypeConversion::Copy, 0, 4, true, 2);
    place(
        "in rows, shuffled, 2 bytes",
        TypeConversion::Copy,
        2,
        2,
        true,
        1,
    );
    place(
        "in rows, shuffled, 4 bytes",
        TypeConversion::Copy,
        4,
        4,
        true,
        1,
    );
    place(
        "in rows, shuffled, 8 bytes",
        TypeConversion::Copy,
        8,
        8,
        true,
        1,
    );
    place("in rows, big-endian", swap, 0, 4, true, 1);
    place("in rows, shuffled and big-endian", swap, 4, 4, true, 1);
    place(
        "float64 to float32",
        convert(Number::F64, Number::F32),
        0,
        8,
        true,
        1,
    );
    place(
        "int16 to float32",
        convert(Number::I16, Number::F32),
        0,
        2,
        true,
        1,
    );
    place(
        "float32 to bfloat16",
        convert(Number::F32, Number::Bf16),
        0,
        4,
        true,
        1,
    );
    for kind in [Checksum::Adler32, Checksum::Fletcher32] {
        let mut table = ChecksumTable::new(kind);
        for index in 0..count {
            table.push(source + index * chunk, chunk, None);
        }
        let mut uploaded = vec![0; table.size()];
        table.write(&mut uploaded);
        let (at, work) = (
            gpu.uploaded(&uploaded),
            gpu.memory(table.work_size() as u64),
        );
        let name = format!("{kind:?}");
        // SAFETY: the context is current, and the table and its buffers stay.
        gpu.rate(&name, bytes, || unsafe {
            gpu.kernels.checksum(&table, at, work, gpu.stream)
        });
    }
}
