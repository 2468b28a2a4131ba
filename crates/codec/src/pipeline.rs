//! The filters of a dataset, in order, as they are applied to each chunk.

use crate::error::{CodecError, Result};
use crate::filters::{self, Codec};

/// One filter as the dataset's creation properties name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The registered number: 1 deflate, 2 shuffle, 3 fletcher32, 4 szip, 5 n-bit,
    /// 6 scale-offset, 32000 LZF, 32001 Blosc, 32004 LZ4, 32008 bitshuffle, 32015 Zstd,
    /// 32026 Blosc2.
    pub id: u32,
    /// Whether a chunk that the filter cannot encode may be stored without it.
    pub optional: bool,
    /// The client data values.
    pub values: Vec<u32>,
}

/// All filters of a dataset, in the order in which a chunk is encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    pub filters: Vec<Filter>,
}

/// Memory of one worker that lives from chunk to chunk: two buffers between filters.
#[derive(Debug, Default)]
pub struct Scratch {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// Room above the chunk's size that intermediate results may take: checksums, headers, and what
/// an incompressible chunk grows by.
const MARGIN: usize = 1 << 16;

impl Pipeline {
    /// The first filter that this crate does not know.
    pub fn unknown(&self) -> Option<&Filter> {
        self.filters.iter().find(|f| filters::codec(f.id).is_none())
    }

    /// Decodes one stored chunk into `output`, whose length is the chunk's decoded size. Bit `i`
    /// of `mask` says that filter `i` was left out when the chunk was written.
    pub fn decode(
        &self,
        mask: u32,
        stored: &[u8],
        output: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let applied: Vec<(&Filter, &dyn Codec)> = self.applied(mask)?;
        let Some((last, earlier)) = applied.split_first() else {
            if stored.len() != output.len() {
                return Err(CodecError::new(
                    "none",
                    format!(
                        "the stored chunk has {} bytes, its elements {}",
                        stored.len(),
                        output.len()
                    ),
                ));
            }
            output.copy_from_slice(stored);
            return Ok(());
        };
        let limit = output.len().saturating_mul(2).saturating_add(MARGIN);
        let Scratch { first, second } = scratch;
        let (mut from, mut to) = (first, second);
        let mut started = false;
        for (filter, codec) in earlier.iter().rev() {
            to.clear();
            let input = if started { from.as_slice() } else { stored };
            codec.decode(&filter.values, input, to, limit)?;
            std::mem::swap(&mut from, &mut to);
            started = true;
        }
        let input = if started { from.as_slice() } else { stored };
        let (filter, codec) = last;
        codec.decode_into(&filter.values, input, output)
    }

    /// Encodes one chunk. Returns the stored bytes and the mask of filters that were left out,
    /// as optional filters that would not shrink the chunk are.
    pub fn encode(&self, chunk: &[u8], scratch: &mut Scratch) -> Result<(Vec<u8>, u32)> {
        let _ = scratch;
        let mut mask = 0;
        let mut current = chunk.to_vec();
        for (index, filter) in self.filters.iter().enumerate() {
            let codec = known(filter)?;
            let mut encoded = Vec::new();
            match codec.encode(&filter.values, &current, &mut encoded) {
                Ok(()) => current = encoded,
                Err(_) if filter.optional => mask |= 1 << index,
                Err(e) => return Err(e),
            }
        }
        Ok((current, mask))
    }

    fn applied(&self, mask: u32) -> Result<Vec<(&Filter, &dyn Codec)>> {
        self.filters
            .iter()
            .enumerate()
            .filter(|(i, _)| *i >= 32 || mask & (1 << i) == 0)
            .map(|(_, f)| Ok((f, known(f)?)))
            .collect()
    }
}

fn known(filter: &Filter) -> Result<&'static dyn Codec> {
    filters::codec(filter.id).ok_or_else(|| {
        CodecError::new("unknown", format!("filter {} is not known here", filter.id))
    })
}
