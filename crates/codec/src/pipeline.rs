//! The filters of a dataset, in the order in which they encode a chunk.

use std::fmt;

use crate::error::{CodecError, Fault, Result};
use crate::filters::{self, Codec, append, copy_exactly, sized};

/// One filter of a dataset creation property list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The registered filter identifier, such as those in [`id`](crate::filters::id).
    pub id: u32,
    /// Whether a chunk that the filter cannot encode is stored without it.
    pub optional: bool,
    /// The client data values.
    pub values: Vec<u32>,
}

impl Filter {
    /// Describes a filter that is not optional.
    pub fn new(id: u32, values: &[u32]) -> Filter {
        Filter {
            id,
            optional: false,
            values: values.to_vec(),
        }
    }
}

impl fmt::Display for Filter {
    /// Writes the number. If the filter is known, writes its client data, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter {}", self.id)?;
        match filters::codec(self.id) {
            Some(codec) => write!(
                f,
                " ({}) with the client data {:?}",
                codec.name(),
                self.values
            ),
            None => Ok(()),
        }
    }
}

/// All filters of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// The filters, in the order in which they encode.
    pub filters: Vec<Filter>,
}

/// Buffers between filters, which one thread reuses from chunk to chunk.
#[derive(Debug, Default)]
pub struct Scratch {
    buffers: Vec<Vec<u8>>,
}

impl Scratch {
    fn buffers(&mut self, count: usize) -> &mut [Vec<u8>] {
        if self.buffers.len() < count {
            self.buffers.resize_with(count, Vec::new);
        }
        &mut self.buffers
    }
}

/// Bytes added to each bound on an intermediate result, for checksums, headers, and the growth of
/// an incompressible chunk.
const MARGIN: usize = 1 << 16;

impl Pipeline {
    /// The first filter that this crate does not implement, or does not decode with its client data.
    pub fn unknown(&self) -> Option<&Filter> {
        self.first_without(|codec, values| codec.decodes(values))
    }

    /// The first filter that this crate does not implement, or does not encode and decode with its
    /// client data.
    pub fn unwritable(&self) -> Option<&Filter> {
        self.first_without(|codec, values| codec.encodes(values) && codec.decodes(values))
    }

    fn first_without(&self, is_known: impl Fn(&dyn Codec, &[u32]) -> bool) -> Option<&Filter> {
        self.filters
            .iter()
            .find(|f| !filters::codec(f.id).is_some_and(|codec| is_known(codec, &f.values)))
    }

    /// An upper bound on the decoded size of `stored` bytes; `None` if a filter has no bound or this
    /// crate does not implement it.
    pub fn most_decoded(&self, mask: u32, stored: u64) -> Option<u64> {
        self.applied(mask).rev().try_fold(stored, |size, (_, f)| {
            let factor = filters::codec(f.id)?.most_growth()?;
            Some(size.saturating_mul(factor).saturating_add(MARGIN as u64))
        })
    }

    /// Decodes one stored chunk into `output`, whose length is the chunk's decoded size. Bit `i` of
    /// `mask` means that filter `i` was skipped when the chunk was written.
    ///
    /// # Errors
    /// Damaged input, a decoded size other than that of `output`, or a filter that this crate does
    /// not implement. The contents of `output` are then unspecified.
    pub fn decode(
        &self,
        mask: u32,
        stored: &[u8],
        output: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let limit = output.len().saturating_mul(2).saturating_add(MARGIN);
        let buffers = scratch.buffers(self.filters.len());
        let mut input = stored;
        let steps = self.applied(mask).rev().zip(buffers);
        for ((index, filter), buffer) in steps {
            let codec = known(filter)?;
            if let Some(within) = codec.decoded_within(&filter.values, input) {
                input = within?;
                continue;
            }
            let mut below = self
                .applied(mask)
                .take_while(|(i, _)| *i < index)
                .peekable();
            if below.peek().is_none() {
                return codec.decode_into(&filter.values, input, output);
            }
            let size = below.try_fold(output.len(), |size, (_, filter)| {
                filters::codec(filter.id)?.encoded_size(&filter.values, size)
            });
            input = match size {
                Some(size) => {
                    let decoded = sized(codec.name(), buffer, size)?;
                    codec.decode_into(&filter.values, input, decoded)?;
                    decoded
                }
                None => {
                    buffer.clear();
                    codec.decode(&filter.values, input, buffer, limit)?;
                    buffer
                }
            };
        }
        copy_exactly("none", input, output)
    }

    /// Encodes one chunk. Returns the stored bytes and the mask of skipped filters: optional filters
    /// that cannot encode this chunk or that [must shrink](Codec::must_shrink) it and do not.
    ///
    /// HDF5 treats chunks of one length as chunks with one mask. So if several filters produce
    /// output of varying length, none of them is skipped because its output is longer: a chunk that
    /// all of them encode can be as long as one that is not encoded.
    ///
    /// # Errors
    /// A mandatory filter that cannot encode the chunk, exhausted memory, or any filter that this
    /// crate does not implement: HDF5 may have it, so even an optional one is not skipped.
    pub fn encode(&self, chunk: &[u8], scratch: &mut Scratch) -> Result<(Vec<u8>, u32)> {
        let mut mask = 0;
        let mut input = chunk;
        let is_alone = self.varying(chunk.len()) == 1;
        let buffers = scratch.buffers(self.filters.len());
        for ((index, filter), buffer) in self.filters.iter().enumerate().zip(buffers) {
            buffer.clear();
            let codec = known(filter)?;
            let can_be_skipped = filter.optional && index < 32;
            match codec.encode(&filter.values, input, buffer) {
                Ok(())
                    if can_be_skipped
                        && is_alone
                        && codec.must_shrink()
                        && buffer.len() >= input.len() =>
                {
                    mask |= 1 << index;
                }
                Ok(()) => input = buffer,
                Err(e) if can_be_skipped && e.kind != Fault::Memory => mask |= 1 << index,
                Err(e) => return Err(e),
            }
        }
        // Copies the result, because the buffer has the capacity of the worst case.
        let mut stored = Vec::new();
        append("pipeline", &mut stored, input)?;
        Ok((stored, mask))
    }

    /// The number of filters whose output for `size` bytes varies in length.
    fn varying(&self, size: usize) -> usize {
        let varies = |filter: &&Filter| {
            filters::codec(filter.id).is_none_or(|codec| codec.varies(&filter.values, size))
        };
        self.filters.iter().filter(varies).count()
    }

    /// The filters that `mask` does not skip, with their indices.
    fn applied(&self, mask: u32) -> impl DoubleEndedIterator<Item = (usize, &Filter)> {
        let filters = self.filters.iter().enumerate();
        filters.filter(move |(i, _)| *i >= 32 || mask & (1 << i) == 0)
    }
}

fn known(filter: &Filter) -> Result<&'static dyn Codec> {
    filters::codec(filter.id).ok_or_else(|| {
        CodecError::new("unknown", format!("filter {} is not supported", filter.id)).unsupported()
    })
}
