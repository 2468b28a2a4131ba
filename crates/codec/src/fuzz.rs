//! Entry points for fuzzers and for tests with hostile input.
//!
//! Each panics if a filter breaks its contract: if it returns more than the limit, if its decoding
//! functions disagree, or if a chunk does not survive encoding and decoding.

use crate::filters::{Codec, codec, id};
use crate::pipeline::{Filter, Pipeline, Scratch};

/// The filters that the input of [`fuzz_pipeline`] selects by index.
const FUZZED: [u32; 12] = [1, 2, 3, 4, 5, 6, 32000, 32001, 32004, 32008, 32015, 32026];

/// The bit of a count which means that a chunk to be encoded follows, not a stored one.
const ENCODE: u8 = 0x80;

/// Runs one filter on `data`: the filter identifier (four bytes, little-endian), then the input of
/// [`fuzz_filter`].
pub fn fuzz_one(data: &[u8]) {
    if let Some((id, rest)) = data.split_first_chunk() {
        fuzz_filter(u32::from_le_bytes(*id), rest);
    }
}

/// Runs the filter `id` on `data`: the limit (two bytes, little-endian), the count of client values
/// (one byte, whose highest bit means that a chunk to be encoded follows), the values (four bytes
/// each), and the stored chunk.
pub fn fuzz_filter(id: u32, data: &[u8]) {
    let mut input = Input(data);
    let (Some(limit), Some(count)) = (input.size(), input.byte()) else {
        return;
    };
    let (Some(values), Some(codec)) = (input.values(count & !ENCODE), codec(id)) else {
        return;
    };
    let chunk = if count & ENCODE == 0 {
        decode(codec, &values, input.0, limit)
    } else {
        Some(input.0.to_vec())
    };
    if let Some(chunk) = chunk {
        round_trip(&Filter::new(id, &values), &chunk);
    }
}

/// Runs a pipeline on `data`: the filter mask (four bytes, little-endian), the decoded size (two),
/// the count of filters (one byte, whose highest bit means that a chunk to be encoded follows), the
/// filters, and the stored chunk. A filter is its index among those that are fuzzed (one byte), the
/// count of its client values (one byte, whose highest bit makes the filter optional), and the
/// values.
pub fn fuzz_pipeline(data: &[u8]) {
    let mut input = Input(data);
    let (Some(mask), Some(size), Some(count)) = (input.number(), input.size(), input.byte()) else {
        return;
    };
    // More than the 32 filters that HDF5 allows, to cover filters without a bit in the mask.
    let count_of_filters = usize::from(count & !ENCODE).min(40);
    let Some(filters) = (0..count_of_filters).map(|_| input.filter()).collect() else {
        return;
    };
    let pipeline = Pipeline { filters };
    let mut scratch = Scratch::default();
    let mut chunk = input.0.to_vec();
    if count & ENCODE == 0 {
        // The second run reuses the scratch memory as the first left it.
        let mut outputs = [vec![0; size], vec![0xff; size]];
        let both = outputs
            .each_mut()
            .map(|output| pipeline.decode(mask, input.0, output, &mut scratch));
        assert_eq!(both[0], both[1], "{pipeline:?} depends on old bytes");
        if both[0].is_err() {
            return;
        }
        assert!(
            outputs[0] == outputs[1],
            "{pipeline:?} leaves bytes unwritten"
        );
        [chunk, _] = outputs;
    }
    let Ok((stored, mask)) = pipeline.encode(&chunk, &mut scratch) else {
        return;
    };
    let mut back = vec![0xee; chunk.len()];
    let result = pipeline.decode(mask, &stored, &mut back, &mut scratch);
    if pipeline.filters.iter().all(is_lossless) {
        assert_eq!(result, Ok(()), "{pipeline:?}, mask {mask:#x}");
        assert!(back == chunk, "{pipeline:?} changes the chunk");
    }
}

/// Decodes with each function of the codec, which must agree, and returns the chunk.
fn decode(codec: &dyn Codec, values: &[u32], stored: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let result = codec.decode(values, stored, &mut decoded, limit);
    assert!(
        result.is_err() || decoded.len() <= limit,
        "{} returns {} bytes; at most {limit} are allowed",
        codec.name(),
        decoded.len(),
    );
    let size = if result.is_ok() { decoded.len() } else { limit };
    // The result must not depend on the previous contents of the memory.
    let mut outputs = [vec![0; size], vec![0xff; size]];
    let both = outputs
        .each_mut()
        .map(|output| codec.decode_into(values, stored, output).is_ok());
    assert_eq!(both[0], both[1], "{} depends on old bytes", codec.name());
    if both[0] {
        assert!(
            outputs[0] == outputs[1],
            "{} leaves bytes unwritten",
            codec.name()
        );
    }
    if result.is_ok() {
        assert!(
            both[0],
            "{} fails to decode into given memory",
            codec.name()
        );
        assert!(
            outputs[0] == decoded,
            "{} decodes other bytes into given memory",
            codec.name()
        );
    }
    if let Some(Ok(within)) = codec.decoded_within(values, stored) {
        assert!(within.len() > limit || within == decoded);
    }
    let [output, _] = outputs;
    both[0].then_some(output)
}

/// Checks that `chunk` survives encoding and decoding. N-bit drops unused bits, so with n-bit only the
/// decoded chunk must survive.
fn round_trip(filter: &Filter, chunk: &[u8]) {
    let Some(first) = encode_and_decode(filter, chunk) else {
        return;
    };
    if is_lossless(filter) {
        assert!(first == chunk, "{filter:?} changes the chunk");
    } else if filter.id == id::NBIT {
        let second = encode_and_decode(filter, &first);
        assert!(
            second == Some(first),
            "{filter:?} changes a chunk that it decoded"
        );
    }
}

fn encode_and_decode(filter: &Filter, chunk: &[u8]) -> Option<Vec<u8>> {
    let codec = codec(filter.id)?;
    let mut stored = Vec::new();
    codec.encode(&filter.values, chunk, &mut stored).ok()?;
    if let Some(size) = codec.encoded_size(&filter.values, chunk.len()) {
        assert_eq!(stored.len(), size, "{filter:?} predicts another size");
    }
    let mut back = vec![0xee; chunk.len()];
    let result = codec.decode_into(&filter.values, &stored, &mut back);
    assert_eq!(result, Ok(()), "{filter:?} cannot read what it wrote");
    Some(back)
}

/// Whether the filter preserves every chunk. N-bit keeps only the bits that the type uses;
/// scale-offset rounds floats, and truncates integers that exceed a given number of bits.
fn is_lossless(filter: &Filter) -> bool {
    match filter.id {
        id::NBIT => false,
        id::SCALEOFFSET => matches!(filter.values[..], [2, bits, ..] if bits.cast_signed() <= 0),
        _ => true,
    }
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn size(&mut self) -> Option<usize> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*bytes).into())
    }

    fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn values(&mut self, count: u8) -> Option<Vec<u32>> {
        (0..count).map(|_| self.number()).collect()
    }

    fn filter(&mut self) -> Option<Filter> {
        let (index, count) = (usize::from(self.byte()?), self.byte()?);
        Some(Filter {
            id: FUZZED[index % FUZZED.len()],
            optional: count & 0x80 != 0,
            values: self.values(count & 0x7f)?,
        })
    }
}
