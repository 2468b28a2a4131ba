//! Packed numbers and missing values of the CF conventions, as NumPy decodes them.

use super::float::{F32, F64, Float};
use super::integer::Integer;
use super::lane::{Lane, each};
use super::number::{Format, Number, Sign};
use super::swap::{self, PORTION};

/// What the numbers of a packed array stand for: `number * scale + offset`, or NaN if the number is a
/// fill value.
///
/// The number is first rounded to the result's type, to nearest, ties to even, and compared with the
/// fill values there. Product and sum are each rounded, so they are never fused. A NaN of the array
/// keeps its sign and the upper bits of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeRules {
    sign: Sign,
    pub(crate) arithmetic: Arithmetic,
    /// The bits of two `f64`, which are finite.
    pub(crate) scale: u64,
    pub(crate) offset: u64,
    /// The bits of values of the result's type, each as an `f64`; NaN where there are fewer.
    pub(crate) fills: [u64; DecodeRules::MOST_FILLS],
}

/// In which type numbers are multiplied and added.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// There is neither scale nor offset.
    None = 0,
    /// In the result's type.
    Narrow,
    /// As `f64`; product and sum are rounded to the result's type.
    Wide,
}

impl DecodeRules {
    /// The largest number of fill values.
    pub const MOST_FILLS: usize = 4;

    /// Returns the rules. `None` for too many fill values, or if scale or offset is not finite.
    pub fn new(
        sign: Sign,
        arithmetic: Arithmetic,
        (scale, offset): (f64, f64),
        fills: &[f64],
    ) -> Option<DecodeRules> {
        if fills.len() > DecodeRules::MOST_FILLS || !scale.is_finite() || !offset.is_finite() {
            return None;
        }
        let mut padded = [f64::NAN.to_bits(); DecodeRules::MOST_FILLS];
        for (to, fill) in padded.iter_mut().zip(fills) {
            *to = fill.to_bits();
        }
        Some(DecodeRules {
            sign,
            arithmetic,
            scale: scale.to_bits(),
            offset: offset.to_bits(),
            fills: padded,
        })
    }
}

/// The decoding of numbers of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    from: Format,
    to: Number,
    rules: DecodeRules,
}

impl Decode {
    /// Returns the decoding of numbers that are stored in the format `stored` to native ones of kind
    /// `to`. `None` if they are neither integers, `F32` nor `F64`, if the result is neither `F32` nor
    /// `F64`, or if floats are multiplied by 0: the sign of the NaN of an infinity differs by processor.
    pub fn new(stored: Format, to: Number, rules: DecodeRules) -> Option<Decode> {
        let is_real = |number| matches!(number, Number::F32 | Number::F64);
        let is_zero = f64::from_bits(rules.scale) == 0.0;
        let is_possible = match stored.number {
            number if number.is_integer() => true,
            number => is_real(number) && !(is_zero && rules.arithmetic != Arithmetic::None),
        };
        (is_possible && is_real(to)).then_some(Decode {
            from: Format {
                number: stored.number.with_sign(rules.sign),
                ..stored
            },
            to,
            rules,
        })
    }

    /// Returns the format of the packed numbers.
    pub const fn from(&self) -> Format {
        self.from
    }

    /// Returns the kind of the results.
    pub const fn to(&self) -> Number {
        self.to
    }

    pub(crate) fn rules(&self) -> &DecodeRules {
        &self.rules
    }

    /// Decodes contiguous numbers, as many as fit whole in both slices.
    pub(super) fn run(&self, source: &[u8], target: &mut [u8]) {
        if !self.from.is_swapped() {
            return self.run_little(source, target);
        }
        let (from, to) = (self.from.size(), self.to.size());
        let numbers = PORTION / from.max(to);
        let portions = source.chunks(numbers * from);
        for (source, target) in portions.zip(target.chunks_mut(numbers * to)) {
            let mut swapped = [0; PORTION];
            let swapped = &mut swapped[..source.len()];
            swap::run(from, source, swapped);
            self.run_little(swapped, target);
        }
    }

    fn run_little(&self, source: &[u8], target: &mut [u8]) {
        match self.from.number {
            Number::U8 => self.of::<u8>(source, target),
            Number::I8 => self.of::<i8>(source, target),
            Number::U16 => self.of::<u16>(source, target),
            Number::I16 => self.of::<i16>(source, target),
            Number::U32 => self.of::<u32>(source, target),
            Number::I32 => self.of::<i32>(source, target),
            Number::U64 => self.of::<u64>(source, target),
            Number::I64 => self.of::<i64>(source, target),
            Number::F32 => self.of::<f32>(source, target),
            _ => self.of::<f64>(source, target),
        }
    }

    fn of<S: Packed>(&self, source: &[u8], target: &mut [u8]) {
        let rules = &self.rules;
        let (scale, offset) = (f64::from_bits(rules.scale), f64::from_bits(rules.offset));
        let (narrow_scale, narrow_offset) = (scale as f32, offset as f32);
        match (self.to, rules.arithmetic) {
            (Number::F32, Arithmetic::None) => self.masked::<S, f32>(source, target, |value| value),
            (Number::F32, Arithmetic::Narrow) => {
                self.masked::<S, f32>(source, target, |value| value * narrow_scale + narrow_offset);
            }
            (Number::F32, Arithmetic::Wide) => self.masked::<S, f32>(source, target, |value| {
                let scaled = (f64::from(value) * scale) as f32;
                (f64::from(scaled) + offset) as f32
            }),
            (_, Arithmetic::None) => self.masked::<S, f64>(source, target, |value| value),
            _ => self.masked::<S, f64>(source, target, |value| value * scale + offset),
        }
    }

    fn masked<S: Packed, T: Real>(
        &self,
        source: &[u8],
        target: &mut [u8],
        change: impl Fn(T) -> T,
    ) {
        let [_, others @ ..] = &self.rules.fills;
        let has_others = others.iter().any(|fill| !f64::from_bits(*fill).is_nan());
        let fills = self.rules.fills.map(|fill| T::of_f64(f64::from_bits(fill)));
        let [first, ..] = fills;
        if has_others {
            each(source, target, |bytes: S::Bytes| {
                let value = T::of(S::of_bytes(bytes));
                let is_missing = fills.iter().fold(false, |any, fill| any | (value == *fill));
                if is_missing {
                    T::MISSING
                } else {
                    change(value)
                }
                .bytes()
            });
        } else {
            each(source, target, |bytes: S::Bytes| {
                let value = T::of(S::of_bytes(bytes));
                let is_missing = value == first;
                if is_missing {
                    T::MISSING
                } else {
                    change(value)
                }
                .bytes()
            });
        }
    }
}

/// A packed number.
trait Packed: Copy {
    type Bytes: Lane;
    fn of_bytes(bytes: Self::Bytes) -> Self;
    fn single(self) -> f32;
    fn double(self) -> f64;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Packed for $t {
            type Bytes = <$t as Integer>::Bytes;

            fn of_bytes(bytes: Self::Bytes) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            fn single(self) -> f32 {
                self as f32
            }
            fn double(self) -> f64 {
                self as f64
            }
        }
    )*};
}

integers! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// The type of a result.
trait Real: Copy + PartialEq {
    type Bytes: Lane;
    /// NumPy's NaN.
    const MISSING: Self;
    fn of<S: Packed>(value: S) -> Self;
    fn of_f64(value: f64) -> Self;
    fn bytes(self) -> Self::Bytes;
}

macro_rules! reals {
    ($($name:ident: $format:ident, $of:ident, $nan:literal;)*) => {$(
        impl Packed for $name {
            type Bytes = <$format as Float>::Bytes;

            fn of_bytes(bytes: Self::Bytes) -> $name {
                $name::from_le_bytes(bytes)
            }
            fn single(self) -> f32 {
                self as f32
            }
            fn double(self) -> f64 {
                self.into()
            }
        }

        impl Real for $name {
            type Bytes = <$format as Float>::Bytes;
            const MISSING: $name = $name::from_bits($nan);

            fn of<S: Packed>(value: S) -> $name {
                value.$of()
            }
            fn of_f64(value: f64) -> $name {
                value as $name
            }
            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
        }
    )*};
}

reals! {
    f32: F32, single, 0x7fc0_0000;
    f64: F64, double, 0x7ff8_0000_0000_0000;
}

#[cfg(test)]
mod tests {
    use super::super::TypeConversion;
    use super::*;

    fn decoded(stored: Format, to: Number, rules: Option<DecodeRules>, source: &[u8]) -> Vec<u8> {
        let decode = Decode::new(stored, to, rules.unwrap()).unwrap();
        let conversion = TypeConversion::Decode(decode);
        let mut target = vec![0; conversion.size_after(source.len())];
        conversion.run(source, &mut target);
        target
    }

    fn singles(bytes: &[u8]) -> Vec<f32> {
        let chunks = bytes.as_chunks().0.iter();
        chunks.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn narrow(factors: (f64, f64), fills: &[f64]) -> Option<DecodeRules> {
        DecodeRules::new(Sign::Stored, Arithmetic::Narrow, factors, fills)
    }

    #[test]
    fn product_and_sum_are_rounded_each() {
        let (scale, offset) = (0.1f32, 0.3f32);
        let rules = narrow((f64::from(scale), f64::from(offset)), &[]);
        let source: Vec<u8> = (-999i16..999).flat_map(i16::to_le_bytes).collect();
        let found = decoded(Format::little(Number::I16), Number::F32, rules, &source);
        for (number, found) in (-999i16..).zip(singles(&found)) {
            let product = f32::from(number) * scale;
            assert_eq!(found, product + offset);
        }
    }

    #[test]
    fn fill_values_become_nan_before_they_are_scaled() {
        let rules = narrow((0.0, 2.0), &[3.0, 65535.0]);
        let numbers = [3u16, 4, 65535];
        let source: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        let found = decoded(Format::big(Number::U16), Number::F32, rules, &source);
        let found = singles(&found);
        assert_eq!(found[0].to_bits(), 0x7fc0_0000);
        assert_eq!(found[1], 2.0);
        assert!(found[2].is_nan());
    }

    #[test]
    fn numbers_without_scale_and_offset_keep_the_sign_of_zero() {
        let rules = DecodeRules::new(Sign::Stored, Arithmetic::None, (1.0, 0.0), &[5.0]);
        let (format, source) = (Format::little(Number::F32), (-0f32).to_le_bytes());
        let found = singles(&decoded(format, Number::F32, rules, &source));
        assert_eq!(found[0].to_bits(), (-0f32).to_bits());
    }

    #[test]
    fn integers_are_taken_as_unsigned_ones_before_they_are_compared() {
        let rules = DecodeRules::new(Sign::Unsigned, Arithmetic::None, (1.0, 0.0), &[255.0]);
        let found = decoded(Format::little(Number::I8), Number::F32, rules, &[254, 255]);
        let found = singles(&found);
        assert_eq!(found[0], 254.0);
        assert!(found[1].is_nan());
    }

    #[test]
    fn decodings_that_numpy_would_do_otherwise_are_refused() {
        let (float, half) = (Format::little(Number::F32), Format::little(Number::F16));
        let rules = narrow((1.0, 0.0), &[]).unwrap();
        assert!(Decode::new(float, Number::F32, rules).is_some());
        assert!(Decode::new(float, Number::F16, rules).is_none());
        assert!(Decode::new(half, Number::F32, rules).is_none());
        let zero = narrow((0.0, 0.0), &[]).unwrap();
        assert!(Decode::new(float, Number::F32, zero).is_none());
        assert!(narrow((f64::INFINITY, 0.0), &[]).is_none());
        assert!(narrow((1.0, 0.0), &[0.0; 5]).is_none());
    }
}
