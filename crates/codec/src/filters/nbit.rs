//! N-bit (filter 5): stores only the bits of each number that its type uses, one number after the
//! other, most significant bit first.
//!
//! The client data are their own count, whether chunks are stored unchanged, the elements of a
//! chunk, and the element type: 1 number (size, byte order, precision, bit offset), 2 array (size,
//! base type), 3 compound (size, member count, then offset and type of each), 4 anything else
//! (size), stored whole.

use super::bits::{BitReader, BitWriter};
use super::{Codec, append, copy_exactly, reserve, wrong_size};
use crate::error::{CodecError, Result};

pub(crate) struct NBit;

const NAME: &str = "nbit";
/// The deepest nesting of types, so that hostile client data cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

fn error(cause: impl Into<String>) -> CodecError {
    CodecError::new(NAME, cause)
}

/// An element type. All parts lie inside the element.
enum Layout {
    Number {
        size: usize,
        big_endian: bool,
        /// The bits used, `low..high`, where bit 0 is the least significant.
        low: usize,
        high: usize,
    },
    Array {
        count: usize,
        stride: usize,
        base: Box<Layout>,
    },
    Compound(Vec<(usize, Layout)>),
    Whole(usize),
}

struct Parameters {
    count: usize,
    size: usize,
    layout: Layout,
}

impl Parameters {
    /// `None` if chunks are stored unchanged.
    fn new(values: &[u32]) -> Result<Option<Self>> {
        let &[length, as_is, count, ..] = values else {
            return Err(error(format!("{} parameters are too few", values.len())));
        };
        if length as usize != values.len() {
            return Err(error(format!(
                "{} parameters instead of {length}",
                values.len()
            )));
        }
        if as_is != 0 {
            return Ok(None);
        }
        let mut parser = Parser {
            rest: &values[3..],
            misread: false,
        };
        let class = parser.next()?;
        let (layout, size) = parser.layout(class, 0)?;
        let count = count as usize;
        if count.checked_mul(size).is_none() {
            return Err(error("the chunk's size overflows"));
        }
        Ok(Some(Parameters {
            count,
            size,
            layout,
        }))
    }

    fn bytes(&self) -> usize {
        self.count * self.size
    }
}

struct Parser<'a> {
    rest: &'a [u32],
    /// Whether HDF5 would misread the next member: after an array of arrays or compounds it takes
    /// that base type for the member, and so writes chunks that it cannot read.
    misread: bool,
}

impl Parser<'_> {
    fn next(&mut self) -> Result<usize> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| error("the parameters end inside a type"))?;
        self.rest = rest;
        Ok(*first as usize)
    }

    /// The type of this class and its size in bytes.
    fn layout(&mut self, class: usize, depth: usize) -> Result<(Layout, usize)> {
        if depth > MAX_DEPTH {
            return Err(error(format!("types nested more than {MAX_DEPTH} deep")));
        }
        let size = self.next()?;
        if size == 0 {
            return Err(error("a type has 0 bytes"));
        }
        let layout = match class {
            1 => self.number(size)?,
            2 => {
                let class = self.next()?;
                let (base, stride) = self.layout(class, depth + 1)?;
                self.misread |= matches!(class, 2 | 3);
                match base {
                    // HDF5 stores the whole array, whatever size the base type has.
                    Layout::Whole(_) => Layout::Whole(size),
                    _ if size % stride != 0 => {
                        return Err(error(format!(
                            "an array of {size} bytes with elements of {stride}"
                        )));
                    }
                    _ => Layout::Array {
                        count: size / stride,
                        stride,
                        base: Box::new(base),
                    },
                }
            }
            3 => {
                let members = self.next()?;
                let mut layouts = Vec::new();
                let mut used = 0;
                for _ in 0..members {
                    if self.misread {
                        return Err(error(
                            "HDF5 misreads members after an array of arrays or compounds",
                        ));
                    }
                    let offset = self.next()?;
                    let class = self.next()?;
                    let (layout, member) = self.layout(class, depth + 1)?;
                    used += member;
                    if used > size || offset + member > size {
                        return Err(error("a member reaches past its compound"));
                    }
                    layouts.push((offset, layout));
                }
                Layout::Compound(layouts)
            }
            4 => Layout::Whole(size),
            other => return Err(error(format!("type class {other} is unknown"))),
        };
        Ok((layout, size))
    }

    fn number(&mut self, size: usize) -> Result<Layout> {
        let order = self.next()?;
        let precision = self.next()?;
        let low = self.next()?;
        if order > 1 {
            return Err(error(format!("byte order {order} is unknown")));
        }
        if precision == 0 || low + precision > size * 8 {
            return Err(error(format!(
                "{precision} bits from bit {low} in a number of {size} bytes"
            )));
        }
        Ok(Layout::Number {
            size,
            big_endian: order == 1,
            low,
            high: low + precision,
        })
    }
}

impl Layout {
    /// Calls `visit` for each stored group of bits, in stored order, with the index of its byte, its
    /// lowest bit in that byte, and its number of bits.
    #[inline]
    fn each<T>(
        &self,
        element: &mut T,
        start: usize,
        visit: &mut impl FnMut(&mut T, usize, u32, u32) -> Result<()>,
    ) -> Result<()> {
        match self {
            Layout::Number {
                size,
                big_endian,
                low,
                high,
            } => {
                for byte in (low / 8..high.div_ceil(8)).rev() {
                    let from = low.saturating_sub(byte * 8);
                    let to = (high - byte * 8).min(8);
                    let place = if *big_endian { size - 1 - byte } else { byte };
                    visit(element, start + place, from as u32, (to - from) as u32)?;
                }
            }
            Layout::Array {
                count,
                stride,
                base,
            } => {
                for index in 0..*count {
                    base.each(element, start + index * stride, visit)?;
                }
            }
            Layout::Compound(members) => {
                for (offset, member) in members {
                    member.each(element, start + offset, visit)?;
                }
            }
            Layout::Whole(size) => {
                for byte in 0..*size {
                    visit(element, start + byte, 0, 8)?;
                }
            }
        }
        Ok(())
    }
}

impl Codec for NBit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, values: &[u32], input: &[u8]) -> Result<usize> {
        let parameters = Parameters::new(values)?;
        Ok(parameters.as_ref().map_or(input.len(), Parameters::bytes))
    }

    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let Some(parameters) = Parameters::new(values)? else {
            return copy_exactly(NAME, input, output);
        };
        if parameters.bytes() != output.len() {
            return Err(wrong_size(NAME, parameters.bytes(), output.len()));
        }
        output.fill(0);
        let mut reader = BitReader::new(input);
        for element in output.chunks_exact_mut(parameters.size) {
            let mut element = element;
            parameters
                .layout
                .each(&mut element, 0, &mut |element, byte, shift, bits| {
                    let group = reader
                        .take(bits)
                        .ok_or_else(|| error("the stored chunk ends early"))?;
                    element[byte] = (group << shift) as u8;
                    Ok(())
                })?;
        }
        Ok(())
    }

    /// All chunks of a dataset are encoded to one size. That size is not a [`Codec::encoded_size`],
    /// because a chunk without the last byte, which HDF5 adds, can also be decoded.
    fn varies(&self, _values: &[u32], _decoded: usize) -> bool {
        false
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let Some(parameters) = Parameters::new(values)? else {
            return append(NAME, output, input);
        };
        if input.len() != parameters.bytes() {
            return Err(error(format!(
                "a chunk of {} bytes instead of {}",
                input.len(),
                parameters.bytes()
            )));
        }
        reserve(NAME, output, input.len() + 1)?;
        let mut writer = BitWriter::new(output);
        for element in input.chunks_exact(parameters.size) {
            let mut element = element;
            parameters
                .layout
                .each(&mut element, 0, &mut |element, byte, shift, bits| {
                    writer.put(u64::from(element[byte] >> shift), bits);
                    Ok(())
                })?;
        }
        // HDF5 always stores one byte after the whole bytes, even if no bits are left for it.
        if !writer.finish() {
            output.push(0);
        }
        Ok(())
    }
}
