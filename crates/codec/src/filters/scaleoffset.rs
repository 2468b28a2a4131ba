//! Scale-offset (filter 6): each element becomes its distance from the chunk's minimum, in the
//! least number of bits that the largest distance needs. Floats are first rounded to a number of
//! decimals.
//!
//! The stored form, little-endian: bits per element (u32), size of the minimum in bytes (u8), the
//! minimum, zeros up to byte 21, then the distances, most significant bit first. If the dataset has
//! a fill value, the largest code represents it.

use super::bits::{BitReader, BitWriter};
use super::{Codec, append, copy_exactly, reserve, wrong_size};
use crate::error::{CodecError, Result};

pub(crate) struct ScaleOffset;

const NAME: &str = "scaleoffset";
const HEADER: usize = 21;
const PARAMETERS: usize = 20;

fn error(cause: impl Into<String>) -> CodecError {
    CodecError::new(NAME, cause)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Unsigned,
    Signed,
    /// Rounded to this number of decimals.
    Float(i32),
}

/// The validated client data.
struct Parameters {
    kind: Kind,
    count: usize,
    /// Bytes of an element: 1, 2, 4 or 8.
    size: usize,
    big_endian: bool,
    /// The fill value's bits.
    fill: Option<u64>,
    /// The requested bits per element; 0 for the least number that the chunk needs.
    bits: u32,
}

impl Parameters {
    fn new(values: &[u32]) -> Result<Self> {
        let &[
            scale,
            factor,
            count,
            class,
            size,
            sign,
            order,
            filled,
            low,
            high,
            ..,
        ] = values
        else {
            return Err(error(format!(
                "{} parameters instead of {PARAMETERS}",
                values.len()
            )));
        };
        let factor = factor as i32;
        let kind = match (class, sign, scale) {
            (0, 0, 2) => Kind::Unsigned,
            (0, 1, 2) => Kind::Signed,
            (1, _, 0) => Kind::Float(factor),
            (1, _, 1) => return Err(error("the E-scaling method is not defined")),
            _ => {
                return Err(error(format!(
                    "no method for class {class}, sign {sign}, scale type {scale}"
                )));
            }
        };
        let float = matches!(kind, Kind::Float(_));
        if !matches!((size, float), (1 | 2, false) | (4 | 8, _)) {
            return Err(error(format!("elements of {size} bytes are not supported")));
        }
        let bits = if float { 0 } else { factor.max(0) as u32 };
        if bits > size * 8 {
            return Err(error(format!("{bits} bits in elements of {size} bytes")));
        }
        let fill = match filled {
            0 => None,
            1 => Some((u64::from(high) << 32 | u64::from(low)) & mask(size * 8)),
            other => return Err(error(format!("fill value flag {other} is unknown"))),
        };
        if order > 1 {
            return Err(error(format!("byte order {order} is unknown")));
        }
        Ok(Parameters {
            kind,
            count: count as usize,
            size: size as usize,
            big_endian: order == 1,
            fill,
            bits,
        })
    }

    fn width(&self) -> u32 {
        self.size as u32 * 8
    }

    /// Whether all bits are requested, so that chunks are stored unchanged.
    fn is_identity(&self) -> bool {
        self.bits == self.width()
    }

    /// The packing of elements that differ too much to shrink.
    fn unpacked(&self) -> Packing {
        Packing {
            bits: self.width(),
            minimum: 0,
        }
    }

    fn bytes(&self) -> Result<usize> {
        self.count
            .checked_mul(self.size)
            .ok_or_else(|| error("the chunk's size overflows"))
    }
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

impl Codec for ScaleOffset {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, values: &[u32], input: &[u8]) -> Result<usize> {
        let parameters = Parameters::new(values)?;
        if parameters.is_identity() {
            return Ok(input.len());
        }
        parameters.bytes()
    }

    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let parameters = Parameters::new(values)?;
        if !parameters.is_identity() && parameters.bytes()? != output.len() {
            return Err(wrong_size(NAME, parameters.bytes()?, output.len()));
        }
        decode(&parameters, input, output)
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let parameters = Parameters::new(values)?;
        if parameters.is_identity() {
            return append(NAME, output, input);
        }
        if parameters.bytes()? != input.len() {
            return Err(error(format!(
                "a chunk of {} bytes instead of {}",
                input.len(),
                parameters.bytes()?
            )));
        }
        match parameters.size {
            1 => encode::<1>(&parameters, input, output),
            2 => encode::<2>(&parameters, input, output),
            4 => encode::<4>(&parameters, input, output),
            _ => encode::<8>(&parameters, input, output),
        }
    }
}

fn decode(parameters: &Parameters, input: &[u8], output: &mut [u8]) -> Result<()> {
    if parameters.is_identity() {
        return copy_exactly(NAME, input, output);
    }
    match parameters.size {
        1 => decode_elements::<1>(parameters, input, output),
        2 => decode_elements::<2>(parameters, input, output),
        4 => decode_elements::<4>(parameters, input, output),
        _ => decode_elements::<8>(parameters, input, output),
    }
}

fn decode_elements<const SIZE: usize>(
    parameters: &Parameters,
    input: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let short = || error("the stored chunk ends early");
    let (bits, rest) = input.split_first_chunk::<4>().ok_or_else(short)?;
    let bits = u32::from_le_bytes(*bits);
    if bits > parameters.width() {
        return Err(error(format!(
            "{bits} bits a value in elements of {} bits",
            parameters.width()
        )));
    }
    let (size, rest) = rest.split_first().ok_or_else(short)?;
    let minimum = rest.get(..usize::from(*size).min(8)).ok_or_else(short)?;
    let minimum = minimum
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    let packed = input.get(HEADER..).unwrap_or_default();
    let (elements, _) = output.as_chunks_mut::<SIZE>();

    if bits == parameters.width() {
        let stored = packed.get(..parameters.bytes()?).ok_or_else(short)?;
        for (element, stored) in elements.iter_mut().zip(stored.as_chunks::<SIZE>().0) {
            *element = *stored;
            if parameters.big_endian {
                element.reverse();
            }
        }
        return Ok(());
    }

    let fill_code = mask(bits);
    let mut reader = BitReader::new(packed);
    for element in elements {
        let distance = reader.take(bits).ok_or_else(short)?;
        let value = match parameters.fill {
            Some(fill) if distance == fill_code => fill,
            _ => match parameters.kind {
                Kind::Float(decimals) if SIZE == 4 => {
                    let scaled = distance as i32 as f32 / 10f32.powf(decimals as f32);
                    u64::from((scaled + f32::from_bits(minimum as u32)).to_bits())
                }
                Kind::Float(decimals) => {
                    let scaled = distance as i64 as f64 / 10f64.powf(f64::from(decimals));
                    (scaled + f64::from_bits(minimum)).to_bits()
                }
                _ => distance.wrapping_add(minimum),
            },
        };
        *element = store(value, parameters.big_endian);
    }
    Ok(())
}

fn store<const SIZE: usize>(value: u64, big_endian: bool) -> [u8; SIZE] {
    let mut element = [0; SIZE];
    element.copy_from_slice(&value.to_le_bytes()[..SIZE]);
    if big_endian {
        element.reverse();
    }
    element
}

fn load<const SIZE: usize>(element: &[u8; SIZE], big_endian: bool) -> u64 {
    let mut element = *element;
    if big_endian {
        element.reverse();
    }
    let mut value = [0; 8];
    value[..SIZE].copy_from_slice(&element);
    u64::from_le_bytes(value)
}

/// How the elements of one chunk are packed.
struct Packing {
    bits: u32,
    minimum: u64,
}

fn encode<const SIZE: usize>(
    parameters: &Parameters,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let elements = input.as_chunks::<SIZE>().0;
    let values = || {
        elements
            .iter()
            .map(|element| load(element, parameters.big_endian))
    };
    let packing = match parameters.kind {
        Kind::Float(decimals) if SIZE == 4 => single::packing(decimals, parameters, values())?,
        Kind::Float(decimals) => double::packing(decimals, parameters, values())?,
        _ => integer_packing(parameters, values()),
    };

    reserve(NAME, output, HEADER + input.len() + 1)?;
    output.extend_from_slice(&packing.bits.to_le_bytes());
    output.push(8);
    output.extend_from_slice(&packing.minimum.to_le_bytes());
    output.resize(HEADER, 0);
    if packing.bits == parameters.width() {
        for value in values() {
            output.extend_from_slice(&value.to_le_bytes()[..SIZE]);
        }
        return Ok(());
    }
    let mut writer = BitWriter::new(output);
    for value in values() {
        let distance = match parameters.kind {
            Kind::Float(decimals) if SIZE == 4 => {
                single::distance(decimals, parameters, &packing, value)
            }
            Kind::Float(decimals) => double::distance(decimals, parameters, &packing, value),
            _ if parameters.fill == Some(value) => mask(packing.bits),
            _ => value.wrapping_sub(packing.minimum),
        };
        writer.put(distance, packing.bits);
    }
    // HDF5 always stores one byte after the whole bytes, even if no bits are left for it.
    if !writer.finish() {
        output.push(0);
    }
    Ok(())
}

fn integer_packing(parameters: &Parameters, values: impl Iterator<Item = u64>) -> Packing {
    let width = parameters.width();
    // Adding half the range maps signed order to unsigned order.
    let bias = match parameters.kind {
        Kind::Signed => 1 << (width - 1),
        _ => 0,
    };
    let order = |value: u64| value.wrapping_add(bias) & mask(width);
    let range = values
        .filter(|value| parameters.fill != Some(*value))
        .map(order)
        .fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        });
    let (low, high) = range.unwrap_or((order(0), order(0)));
    let bits = if parameters.bits != 0 {
        parameters.bits
    } else if high - low > mask(width) - 2 {
        return parameters.unpacked();
    } else {
        let codes = high - low + 1 + u64::from(parameters.fill.is_some());
        ceil_log2(codes)
    };
    let minimum = low.wrapping_sub(bias);
    Packing { bits, minimum }
}

fn ceil_log2(value: u64) -> u32 {
    u64::BITS - value.saturating_sub(1).leading_zeros()
}

/// Decimal scaling for one width: HDF5 computes in the element's own precision.
macro_rules! decimal_scaling {
    ($module:ident, $float:ident, $uint:ident) => {
        mod $module {
            use super::{Packing, Parameters, ceil_log2, error};
            use crate::error::Result;

            fn is_fill(decimals: i32, parameters: &Parameters, value: $float) -> bool {
                parameters.fill.is_some_and(|fill| {
                    let fill = $float::from_bits(fill as $uint);
                    (value - fill).abs() < (10 as $float).powf(-(decimals as $float))
                })
            }

            pub(super) fn packing(
                decimals: i32,
                parameters: &Parameters,
                values: impl Iterator<Item = u64>,
            ) -> Result<Packing> {
                let mut range = None;
                let (mut has_infinite, mut has_nan) = (false, false);
                for value in values {
                    let value = $float::from_bits(value as $uint);
                    has_infinite |= value.is_infinite();
                    has_nan |= value.is_nan();
                    if !is_fill(decimals, parameters, value) {
                        let (low, high) = range.unwrap_or((value, value));
                        range = Some((value.min(low), value.max(high)));
                    }
                }
                if has_infinite {
                    return Ok(parameters.unpacked());
                }
                // HDF5 turns NaN into an arbitrary number; an error loses no value.
                if has_nan {
                    return Err(error("a value is not a number"));
                }
                let (low, high) = range.unwrap_or((0.0, 0.0));
                let scale = (10 as $float).powf(decimals as $float);
                let span = (high * scale - low * scale).round();
                if span.is_nan() {
                    return Err(error("the scaled values overflow"));
                }
                if span > (2 as $float).powi($uint::BITS as i32 - 1) {
                    return Ok(parameters.unpacked());
                }
                let codes = span as u64 + 1 + u64::from(parameters.fill.is_some());
                Ok(Packing {
                    bits: ceil_log2(codes),
                    minimum: u64::from(low.to_bits()),
                })
            }

            pub(super) fn distance(
                decimals: i32,
                parameters: &Parameters,
                packing: &Packing,
                value: u64,
            ) -> u64 {
                let value = $float::from_bits(value as $uint);
                if is_fill(decimals, parameters, value) {
                    return super::mask(packing.bits);
                }
                let low = $float::from_bits(packing.minimum as $uint);
                let scale = (10 as $float).powf(decimals as $float);
                (value * scale - low * scale).round() as i64 as u64
            }
        }
    };
}

decimal_scaling!(single, f32, u32);
decimal_scaling!(double, f64, u64);
