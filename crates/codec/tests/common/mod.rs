//! A GPU, or the stand-in, with a stream of its own and device memory.

use std::ptr::null_mut;

use penstock_codec::gpu::nvcomp::{Batch, Method, Nvcomp};
use penstock_sys::cuda::{self, CU_STREAM_NON_BLOCKING, CUdeviceptr, CUstream, Cuda};

pub struct Gpu {
    cuda: &'static Cuda,
    pub nvcomp: Nvcomp,
    pub stream: CUstream,
}

/// The result of nvCOMP for one chunk.
#[derive(Debug)]
pub struct Done {
    pub status: i32,
    pub size: u64,
    /// The output's whole room, and [`Gpu::MARGIN`] bytes after it.
    pub memory: Vec<u8>,
}

struct Memory<'a> {
    gpu: &'a Gpu,
    address: CUdeviceptr,
}

/// Calls the driver, or fails the test.
macro_rules! done {
    ($cuda:expr, $function:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments are as the driver's documentation of the function requires.
        let code = unsafe { ($cuda.$function)($($argument),*) };
        assert_eq!(code, cuda::CUDA_SUCCESS, stringify!($function));
    }};
}

impl Gpu {
    /// Bytes after each output that must not change.
    pub const MARGIN: usize = 64;
    /// The previous contents of outputs and margins.
    pub const BEFORE: u8 = 0x5a;

    /// The first device, or `None` with the reason on stderr. If the environment names a library, as
    /// `scripts/standin-gpu` does, its absence is a failure.
    pub fn open() -> Option<Gpu> {
        let skip = |reason: &str| {
            let named = std::env::var_os("PENSTOCK_NVCOMP_LIBRARY").is_some();
            assert!(!named, "{reason}");
            eprintln!("SKIPPED: {reason}; run under scripts/standin-gpu");
        };
        let cuda = cuda::cuda().inspect_err(|absent| skip(&absent.what)).ok()?;
        let nvcomp = Nvcomp::open()
            .inspect_err(|absent| skip(&absent.what))
            .ok()?;
        // SAFETY: may be called at any time.
        if unsafe { (cuda.cuInit)(0) } != cuda::CUDA_SUCCESS {
            skip("the CUDA driver finds no GPU");
            return None;
        }
        let (mut context, mut stream) = (null_mut(), null_mut());
        done!(cuda, cuDevicePrimaryCtxRetain(&mut context, 0));
        done!(cuda, cuCtxSetCurrent(context));
        done!(cuda, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        Some(Gpu {
            cuda,
            nvcomp,
            stream,
        })
    }

    /// Decodes each input into an output of the given size.
    pub fn decode(&self, method: Method, chunks: &[(&[u8], usize)]) -> Vec<Done> {
        let max = chunks.iter().map(|(_, room)| *room).max().unwrap_or(0);
        let total = chunks.iter().map(|(_, room)| *room).sum();
        let nvcomp = self.nvcomp;
        // SAFETY: the stream is one of the current context.
        let temp =
            unsafe { nvcomp.decode_temp_bytes(method, chunks.len(), max, total, self.stream) };
        self.run(chunks, temp.unwrap(), max, |batch| {
            // SAFETY: `run` allocates all memory of the batch and synchronizes the stream.
            unsafe { nvcomp.decode(method, batch, self.stream) }.unwrap();
        })
    }

    fn run(
        &self,
        chunks: &[(&[u8], usize)],
        temp_bytes: usize,
        max_decoded: usize,
        queue: impl FnOnce(&Batch),
    ) -> Vec<Done> {
        const APART: usize = 64;
        let count = chunks.len();
        let mut stored = Vec::new();
        let mut input_places = Vec::new();
        let mut output_places = Vec::new();
        let mut output_bytes = 0;
        for (input, room) in chunks {
            input_places.push(stored.len() as u64);
            stored.extend_from_slice(input);
            stored.resize(stored.len().next_multiple_of(APART), 0);
            output_places.push(output_bytes as u64);
            output_bytes = (output_bytes + room + Self::MARGIN).next_multiple_of(APART);
        }
        let (inputs, outputs) = (self.upload(&stored), self.allocate(output_bytes));
        let address = |memory: &Memory, places: &[u64]| {
            let addresses = places.iter().map(|place| memory.address + place);
            self.upload_words(addresses)
        };
        let input_addresses = address(&inputs, &input_places);
        let output_addresses = address(&outputs, &output_places);
        let input_sizes = self.upload_words(chunks.iter().map(|(input, _)| input.len() as u64));
        let rooms = self.upload_words(chunks.iter().map(|(_, room)| *room as u64));
        let (sizes, statuses) = (self.allocate(8 * count), self.allocate(4 * count));
        let temp = self.allocate(temp_bytes);
        queue(&Batch {
            inputs: input_addresses.address,
            input_sizes: input_sizes.address,
            outputs: output_addresses.address,
            output_rooms: rooms.address,
            output_sizes: sizes.address,
            statuses: statuses.address,
            chunks: count,
            max_decoded,
            temp: temp.address,
            temp_bytes,
        });
        let (sizes, statuses) = (sizes.download(8 * count), statuses.download(4 * count));
        let output = outputs.download(output_bytes);
        let each = chunks.iter().enumerate().map(|(index, (_, room))| Done {
            status: i32::from_ne_bytes(statuses.as_chunks().0[index]),
            size: u64::from_ne_bytes(sizes.as_chunks().0[index]),
            memory: output[output_places[index] as usize..][..room + Self::MARGIN].to_vec(),
        });
        each.collect()
    }

    fn allocate(&self, size: usize) -> Memory<'_> {
        let (mut address, size) = (0, size.max(1));
        done!(self.cuda, cuMemAlloc(&mut address, size));
        done!(
            self.cuda,
            cuMemsetD8Async(address, Self::BEFORE, size, self.stream)
        );
        Memory { gpu: self, address }
    }

    fn upload(&self, bytes: &[u8]) -> Memory<'_> {
        let memory = self.allocate(bytes.len());
        let (to, from) = (memory.address, bytes.as_ptr().cast());
        if !bytes.is_empty() {
            done!(
                self.cuda,
                cuMemcpyHtoDAsync(to, from, bytes.len(), self.stream)
            );
            done!(self.cuda, cuStreamSynchronize(self.stream));
        }
        memory
    }

    fn upload_words(&self, words: impl Iterator<Item = u64>) -> Memory<'_> {
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.upload(&bytes)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        done!(self.cuda, cuStreamDestroy(self.stream));
    }
}

impl Memory<'_> {
    fn download(&self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let (to, gpu) = (bytes.as_mut_ptr().cast(), self.gpu);
        if size > 0 {
            done!(
                gpu.cuda,
                cuMemcpyDtoHAsync(to, self.address, size, gpu.stream)
            );
        }
        done!(gpu.cuda, cuStreamSynchronize(gpu.stream));
        bytes
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            done!(self.gpu.cuda, cuMemFree(self.address));
        }
    }
}
