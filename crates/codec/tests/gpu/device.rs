//! The GPU that the tests run on, and its memory.

use std::ptr::null_mut;
use std::sync::OnceLock;

use penstock_codec::gpu::{
    Checksum, ChecksumTable, DeflateMemory, DeflateTable, InflateTable, Inflated, Kernels,
    PlaceTable, Verdict,
};
use penstock_sys::cuda::{self, CUcontext, CUdeviceptr, CUresult, CUstream, Cuda};

/// A device with the kernels loaded.
pub struct Gpu {
    pub cuda: &'static Cuda,
    pub kernels: Kernels,
    context: CUcontext,
    stream: CUstream,
}

// SAFETY: contexts and streams may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// The first GPU, with its context current on this thread; `None`, with a message, without one.
pub fn gpu() -> Option<&'static Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| {
        let opened = open();
        if opened.is_none() {
            eprintln!("SKIPPED: no CUDA driver; run under scripts/standin-gpu");
        }
        opened
    });
    let gpu = gpu.as_ref()?;
    // SAFETY: the context is retained for the life of the process.
    check(unsafe { (gpu.cuda.cuCtxSetCurrent)(gpu.context) });
    Some(gpu)
}

fn open() -> Option<Gpu> {
    let cuda = cuda::cuda().ok()?;
    let (mut context, mut stream) = (null_mut(), null_mut());
    let mut count = 0;
    // SAFETY: the driver is initialised first; the pointers are valid for the calls.
    unsafe {
        if (cuda.cuInit)(0) != 0 || (cuda.cuDeviceGetCount)(&mut count) != 0 || count == 0 {
            return None;
        }
        check((cuda.cuDevicePrimaryCtxRetain)(&mut context, 0));
        check((cuda.cuCtxSetCurrent)(context));
        check((cuda.cuStreamCreate)(
            &mut stream,
            cuda::CU_STREAM_NON_BLOCKING,
        ));
    }
    // SAFETY: the context is current.
    let kernels = unsafe { Kernels::load(cuda) }.unwrap_or_else(|e| panic!("{}", e.text(cuda)));
    Some(Gpu {
        cuda,
        kernels,
        context,
        stream,
    })
}

fn check(code: CUresult) {
    assert_eq!(code, 0, "the driver failed");
}

/// Device memory that begins `shift` bytes into an allocation.
pub struct Buffer<'a> {
    gpu: &'a Gpu,
    start: CUdeviceptr,
    pub address: CUdeviceptr,
    pub length: usize,
}

impl Gpu {
    pub fn buffer(&self, bytes: &[u8], shift: usize) -> Buffer<'_> {
        let mut start = 0;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { (self.cuda.cuMemAlloc)(&mut start, (bytes.len() + shift).max(1)) });
        let address = start + shift as u64;
        // SAFETY: both sides have that many bytes, and the call waits.
        check(unsafe { (self.cuda.cuMemcpyHtoD)(address, bytes.as_ptr().cast(), bytes.len()) });
        Buffer {
            gpu: self,
            start,
            address,
            length: bytes.len(),
        }
    }

    /// Moves the boxes of the table and waits.
    pub fn place(&self, table: &PlaceTable) {
        let mut bytes = vec![0; table.size()];
        table.write(&mut bytes);
        let uploaded = self.buffer(&bytes, 0);
        // SAFETY: the context is current, and the table was uploaded before.
        let queued = unsafe { self.kernels.place(table, uploaded.address, self.stream) };
        queued.unwrap_or_else(|e| panic!("{}", e.text(self.cuda)));
        self.wait();
    }

    pub fn checksum(&self, table: &ChecksumTable) -> Vec<Verdict> {
        let mut bytes = vec![0; table.size()];
        table.write(&mut bytes);
        let uploaded = self.buffer(&bytes, 0);
        let work = self.buffer(&vec![0x5a; table.work_size()], 0);
        // SAFETY: the context is current, and the table was uploaded before.
        let queued = unsafe {
            let at = uploaded.address;
            self.kernels.checksum(table, at, work.address, self.stream)
        };
        queued.unwrap_or_else(|e| panic!("{}", e.text(self.cuda)));
        self.wait();
        let verdicts = work.bytes().split_off(table.verdicts_offset());
        assert_eq!(verdicts.len(), table.verdicts_size());
        ChecksumTable::verdicts(&verdicts).collect()
    }

    pub fn inflate(&self, table: &InflateTable) -> Vec<Inflated> {
        let mut bytes = vec![0; table.size()];
        table.write(&mut bytes);
        let uploaded = self.buffer(&bytes, 0);
        let verdicts = self.buffer(&vec![0x5a; table.verdicts_size()], 0);
        // SAFETY: the context is current, and the table was uploaded before.
        let queued = unsafe {
            let at = uploaded.address;
            self.kernels
                .inflate(table, at, verdicts.address, self.stream)
        };
        queued.unwrap_or_else(|e| panic!("{}", e.text(self.cuda)));
        self.wait();
        InflateTable::verdicts(&verdicts.bytes()).collect()
    }

    /// Encodes each chunk as a zlib stream, all in one launch.
    pub fn deflate(&self, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut table = DeflateTable::new();
        let mut checksums = ChecksumTable::new(Checksum::Adler32);
        let margin = [0x5a; DeflateTable::MARGIN as usize];
        let inputs = chunks.iter().map(|chunk| {
            let input = self.buffer(&[chunk, &margin[..]].concat(), 0);
            table.push(input.address, chunk.len() as u64);
            checksums.push(input.address, chunk.len() as u64, None);
            input
        });
        let _inputs: Vec<Buffer<'_>> = inputs.collect();
        let mut bytes = vec![0; table.size()];
        table.write(&mut bytes);
        let uploaded = self.buffer(&bytes, 0);
        let mut bytes = vec![0; checksums.size()];
        checksums.write(&mut bytes);
        let listed = self.buffer(&bytes, 0);
        let sums = self.buffer(&vec![0x5a; checksums.work_size()], 0);
        let work = vec![0x5a; self.kernels.deflate_work_size(&table) as usize];
        let work = self.buffer(&work, 0);
        // A margin that must stay as it is.
        let bound = table.output_bound() as usize;
        let output = self.buffer(&vec![0x5a; bound + 64], 0);
        let ends = self.buffer(&vec![0x5a; table.ends_size()], 0);
        let memory = DeflateMemory {
            table: uploaded.address,
            work: work.address,
            checksums: sums.address + checksums.verdicts_offset() as u64,
            output: output.address,
            ends: ends.address,
        };
        // SAFETY: the context is current, and the tables were uploaded before; all memory has the size
        // that the tables ask for.
        let queued = unsafe {
            let (at, work) = (listed.address, sums.address);
            let sums = self.kernels.checksum(&checksums, at, work, self.stream);
            sums.and_then(|()| self.kernels.deflate(&table, &memory, self.stream))
        };
        queued.unwrap_or_else(|e| panic!("{}", e.text(self.cuda)));
        self.wait();
        let all = output.bytes();
        assert!(
            all[bound..].iter().all(|&byte| byte == 0x5a),
            "written after the bound"
        );
        let mut begin = 0;
        let ends = ends.bytes();
        let streams = DeflateTable::ends(&ends).map(|end| {
            let stream = all[begin..end as usize].to_vec();
            begin = end as usize;
            stream
        });
        streams.collect()
    }

    fn wait(&self) {
        // SAFETY: the stream is alive.
        check(unsafe { (self.cuda.cuStreamSynchronize)(self.stream) });
    }
}

impl Buffer<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: both sides have that many bytes, and the call waits.
        check(unsafe {
            (self.gpu.cuda.cuMemcpyDtoH)(bytes.as_mut_ptr().cast(), self.address, self.length)
        });
        bytes
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory is this buffer's, and no queued work uses it.
        unsafe { (self.gpu.cuda.cuMemFree)(self.start) };
    }
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
