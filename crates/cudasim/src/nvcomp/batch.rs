//! Batches. The call checks a batch as far as it can; the stream decodes it.

use std::ffi::c_void;

use penstock_sys::nvcomp::{
    NVCOMP_ERROR_ALIGNMENT, NVCOMP_ERROR_CANNOT_DECOMPRESS, NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE,
    NVCOMP_ERROR_INVALID_VALUE, NVCOMP_SUCCESS, NvcompStatus,
};

use super::format::Format;
use super::{ALIGNMENT, Result, cuda};
use crate::device::Context;
use crate::status::{self, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS};
use crate::stream::{Stream, resolve_current};
use crate::{config, copy, failure};

/// The arguments of a call: addresses of arrays with one entry per chunk.
#[derive(Clone, Copy)]
pub struct Batch {
    pub inputs: u64,
    pub input_sizes: u64,
    pub outputs: u64,
    /// The size of each output.
    pub rooms: u64,
    pub output_sizes: u64,
    /// May be null.
    pub statuses: u64,
    pub chunks: usize,
    pub temp: u64,
    pub temp_bytes: usize,
}

/// The byte that fills memory whose contents the real library leaves undefined.
const GARBAGE: u8 = 0xEE;

/// The size of the temporary memory of a batch. Some formats of the real library need none, but its
/// interface does not guarantee that.
pub fn temp_size(chunks: usize, max_decoded: usize, total_decoded: usize) -> Result<usize> {
    const PER_CHUNK: usize = 256;
    const PER_BYTE: usize = 3;
    let decoded = chunks.saturating_mul(max_decoded).min(total_decoded);
    let size = chunks
        .checked_mul(PER_CHUNK)
        .zip(decoded.checked_mul(PER_BYTE));
    size.and_then(|(chunks, bytes)| chunks.checked_add(bytes))
        .ok_or(NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE)
}

pub fn submit(format: Format, batch: Batch, stream: *mut c_void) -> Result {
    if let Some(code) = failure::code(failure::Kind::Nvcomp) {
        return Err(code);
    }
    let stream = resolve_current(stream).map_err(cuda)?;
    if batch.chunks == 0 {
        return Ok(());
    }
    let Batch {
        inputs,
        input_sizes,
        outputs,
        output_sizes,
        rooms,
        temp,
        ..
    } = batch;
    let addresses = [inputs, input_sizes, outputs, output_sizes, rooms, temp];
    if addresses.contains(&0) {
        return Err(NVCOMP_ERROR_INVALID_VALUE);
    }
    let statuses_aligned = batch
        .statuses
        .is_multiple_of(size_of::<NvcompStatus>() as u64);
    if !addresses.iter().all(is_aligned) || !statuses_aligned {
        return Err(NVCOMP_ERROR_ALIGNMENT);
    }
    let run = move |stream: &Stream| run(stream.context, format, &batch);
    stream.submit(config::launch_time(), run).map_err(cuda)?;
    Ok(())
}

fn is_aligned(address: &u64) -> bool {
    address.is_multiple_of(ALIGNMENT as u64)
}

fn run(context: &Context, format: Format, batch: &Batch) -> status::Result {
    let array = |address| load_array(context, address, batch.chunks);
    let (inputs, input_sizes) = (array(batch.inputs)?, array(batch.input_sizes)?);
    let outputs = array(batch.outputs)?;
    if !inputs.iter().chain(&outputs).all(is_aligned) {
        return Err(MISALIGNED_ADDRESS);
    }
    let rooms = array(batch.rooms)?;
    use_temp(context, batch, &rooms)?;
    let mut output_sizes = Vec::with_capacity(batch.chunks * size_of::<u64>());
    let mut statuses = Vec::with_capacity(batch.chunks * size_of::<NvcompStatus>());
    for chunk in 0..batch.chunks {
        let (source, length) = (inputs[chunk] as usize, input_sizes[chunk] as usize);
        let input = copy::load(context, source, length)?;
        let (target, room) = (outputs[chunk] as usize, rooms[chunk] as usize);
        copy::check_access(context, target, room)?;
        let mut output = vec![GARBAGE; room];
        let done = decode(format, &input, &mut output);
        copy::store(context, target, &output)?;
        let (size, status) = match done {
            Ok(size) => (size as u64, NVCOMP_SUCCESS),
            Err(status) => (0, status),
        };
        output_sizes.extend_from_slice(&size.to_ne_bytes());
        statuses.extend_from_slice(&status.to_ne_bytes());
    }
    copy::store(context, batch.output_sizes as usize, &output_sizes)?;
    if batch.statuses != 0 {
        copy::store(context, batch.statuses as usize, &statuses)?;
    }
    Ok(())
}

fn load_array(context: &Context, address: u64, count: usize) -> status::Result<Vec<u64>> {
    let size = count.checked_mul(size_of::<u64>()).ok_or(ILLEGAL_ADDRESS)?;
    let bytes = copy::load(context, address as usize, size)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|&word| u64::from_ne_bytes(word)).collect())
}

/// Overwrites the first and the last bytes of the temporary memory that a batch of these sizes needs.
fn use_temp(context: &Context, batch: &Batch, decoded: &[u64]) -> status::Result {
    let largest = decoded.iter().copied().max().unwrap_or(0) as usize;
    let total = decoded
        .iter()
        .fold(0_usize, |sum, &size| sum.saturating_add(size as usize));
    let needed = temp_size(batch.chunks, largest, total).map_err(|_| ILLEGAL_ADDRESS)?;
    if needed > batch.temp_bytes {
        return Err(ILLEGAL_ADDRESS);
    }
    let garbage = vec![GARBAGE; needed.min(4096)];
    let temp = batch.temp as usize;
    copy::check_access(context, temp, needed)?;
    copy::store(context, temp, &garbage)?;
    copy::store(context, temp + needed - garbage.len(), &garbage)
}

fn decode(format: Format, input: &[u8], output: &mut [u8]) -> Result<usize> {
    if let Some(status) = failure::code(failure::Kind::NvcompChunk) {
        return Err(status);
    }
    if output.len() > format.max_decodable() {
        return Err(NVCOMP_ERROR_CHUNK_SIZE_TOO_LARGE);
    }
    let size = format
        .decode(input, output)
        .ok_or(NVCOMP_ERROR_CANNOT_DECOMPRESS)?;
    if failure::code(failure::Kind::NvcompDamage).is_some()
        && let Some(last) = output[..size].last_mut()
    {
        *last ^= 1;
    }
    Ok(size)
}
