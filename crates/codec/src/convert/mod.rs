//! Converts numbers of one format to another, by HDF5's rules.
//!
//! The results are those of `H5Dread` where file and memory type differ and no conversion exception
//! callback is set. HDF5 has two methods, C casts and bit-by-bit conversion, whose results differ.
//!
//! - **Byte order only**: the bytes of each number are reversed. This also applies to integers of
//!   equal size that differ in sign and byte order: 65535, little-endian, read as a signed big-endian
//!   number is -1. Integers of one byte have a byte order here: they keep their bits.
//! - **Integer to integer**: saturates at the limits of the target.
//! - **Casts**, if both formats are integers, `F16`, `F32` or `F64`, and little-endian (one byte has
//!   no byte order):
//!   - Integer to `F32` or `F64`: rounds to nearest, ties to even. `F16` likewise, but ±∞ beyond
//!     ±65504.
//!   - Float to a wider float: exact. To a narrower one: ±∞ beyond its highest finite value, even if
//!     that value is nearest; otherwise rounds to nearest, ties to even, with denormals. NaN keeps
//!     its sign and the upper bits of its payload, and becomes quiet.
//!   - Float to integer: saturates, and otherwise truncates as x86-64 does. The upper limit is
//!     compared as a number of the source format, so it may have been rounded up to 2^n; that value
//!     itself is cast. `F16` is cast without a comparison to `U16` and to integers of more than 16
//!     bits. The cast goes through `i32` for 8 bits, 16 bits and `I32`, and through `i64`
//!     for `U32` and 64 bits. NaN and values outside that type become its lowest value; the low bits
//!     are the result. For `U64` values of 2^63 and more, the cast subtracts 2^63 first and adds it
//!     to the result.
//! - **Bit by bit** in all other cases: a format is an 8-bit float, `Bf16` or big-endian.
//!   - Integer to float: rounds to nearest, ties to even. A result that needs the exponent of
//!     infinity gets it and keeps its mantissa, so it is NaN unless the mantissa is 0; larger ones
//!     are ±∞.
//!   - Float to float: rounds to nearest, ties away from zero. Values from the power of 2 above the
//!     highest finite value on become ±∞; values that would round up to that power become the
//!     highest finite value. If the source or the result is denormal, rounding never carries into
//!     the leading one: kept bits 1…1 become 0…0. Half the smallest denormal and more becomes the
//!     smallest. NaN keeps its sign; all bits of its mantissa are set. `F8E4M3` has infinities and
//!     NaN like the other formats.
//!   - Float to integer: truncates and saturates; NaN becomes 0. For a signed target, values between
//!     -0.5 and 0 become its lowest value.
//!
//! HDF5 2.0.0 does this. HDF5 1.14.6 differs in one case: after a denormal in a buffer, all later
//! bit-by-bit rounding from float to float loses its carry. Results also differ if HDF5 was built
//! without a 16-bit C type (it then converts `F16` bit by bit), on other processors (which cast
//! differently where C leaves the result undefined), and if a program registers its own
//! conversions. So the caller first checks that the loaded HDF5 agrees.

mod cast;
mod decode;
mod float;
mod integer;
mod lane;
mod number;
mod soft;
mod swap;

pub use decode::{Arithmetic, Decode, DecodeRules};
pub use number::{Format, Number, Sign};

/// A conversion of numbers between file and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeConversion {
    /// The bytes stay as they are.
    Copy,
    /// The bytes of each unit are reversed.
    Swap {
        /// The bytes of a unit: 2, 4, 8 or 16.
        unit: usize,
    },
    /// Each number is converted to another format.
    Convert {
        /// The format of the source.
        from: Format,
        /// The format of the target.
        to: Format,
    },
    /// Packed numbers are decoded, not by HDF5's rules.
    Decode(Decode),
}

impl TypeConversion {
    /// The conversion from one format to another.
    pub fn between(from: Format, to: Format) -> TypeConversion {
        let (size, same_size) = (from.size(), from.size() == to.size());
        let is_other_order = from.big != to.big;
        let both_integers = from.number.is_integer() && to.number.is_integer();
        if from.number == to.number || both_integers && same_size && is_other_order {
            return if is_other_order && size > 1 {
                TypeConversion::Swap { unit: size }
            } else {
                TypeConversion::Copy
            };
        }
        TypeConversion::Convert { from, to }
    }

    /// Converts contiguous numbers, as many as fit whole in both slices.
    pub fn run(&self, source: &[u8], target: &mut [u8]) {
        match self {
            TypeConversion::Copy => {
                let length = source.len().min(target.len());
                target[..length].copy_from_slice(&source[..length]);
            }
            TypeConversion::Swap { unit } => swap::run(*unit, source, target),
            TypeConversion::Convert { from, to } => convert(*from, *to, source, target),
            TypeConversion::Decode(decode) => decode.run(source, target),
        }
    }

    /// The converted size of `length` bytes of whole numbers.
    pub fn size_after(&self, length: usize) -> usize {
        match self {
            TypeConversion::Copy | TypeConversion::Swap { .. } => length,
            TypeConversion::Convert { from, to } => length / from.size() * to.size(),
            TypeConversion::Decode(decode) => length / decode.from().size() * decode.to().size(),
        }
    }
}

fn convert(from: Format, to: Format, source: &[u8], target: &mut [u8]) {
    if !from.is_swapped() && !to.is_swapped() {
        return convert_little(from, to, source, target);
    }
    let numbers = swap::PORTION / from.size().max(to.size());
    let portions = source.chunks(numbers * from.size());
    for (source, target) in portions.zip(target.chunks_mut(numbers * to.size())) {
        if from.is_swapped() {
            let mut swapped = [0; swap::PORTION];
            let swapped = &mut swapped[..source.len()];
            swap::run(from.size(), source, swapped);
            convert_little(from, to, swapped, target);
        } else {
            convert_little(from, to, source, target);
        }
        if to.is_swapped() {
            let count = (source.len() / from.size()).min(target.len() / to.size());
            swap::in_place(to.size(), &mut target[..count * to.size()]);
        }
    }
}

/// Evaluates an expression with `$type` as the Rust type of a number.
macro_rules! with_integer {
    ($number:expr, $type:ident => $run:expr) => {
        match $number {
            Number::U8 => with_integer!(@u8, $type, $run),
            Number::I8 => with_integer!(@i8, $type, $run),
            Number::U16 => with_integer!(@u16, $type, $run),
            Number::I16 => with_integer!(@i16, $type, $run),
            Number::U32 => with_integer!(@u32, $type, $run),
            Number::I32 => with_integer!(@i32, $type, $run),
            Number::U64 => with_integer!(@u64, $type, $run),
            _ => with_integer!(@i64, $type, $run),
        }
    };
    (@$is:ty, $type:ident, $run:expr) => {{
        type $type = $is;
        $run
    }};
}

macro_rules! with_float {
    ($number:expr, $type:ident => $run:expr) => {
        match $number {
            Number::F8E4M3 => with_float!(@F8E4M3, $type, $run),
            Number::F8E5M2 => with_float!(@F8E5M2, $type, $run),
            Number::Bf16 => with_float!(@Bf16, $type, $run),
            other => with_native!(other, $type => $run),
        }
    };
    (@$is:ident, $type:ident, $run:expr) => {{
        type $type = float::$is;
        $run
    }};
}

macro_rules! with_native {
    ($number:expr, $type:ident => $run:expr) => {
        match $number {
            Number::F16 => with_float!(@F16, $type, $run),
            Number::F32 => with_float!(@F32, $type, $run),
            _ => with_float!(@F64, $type, $run),
        }
    };
}

/// Applies the rule of the two formats to bytes that are little-endian on both sides.
fn convert_little(from: Format, to: Format, source: &[u8], target: &mut [u8]) {
    let is_cast = from.is_native() && to.is_native();
    let (from, to) = (from.number, to.number);
    match (from.is_integer(), to.is_integer()) {
        (true, true) => with_integer!(from, S => with_integer!(to, T => {
            integer::saturate::<S, T>(source, target)
        })),
        (true, false) if is_cast => with_integer!(from, S => with_native!(to, T => {
            cast::integer_to_float::<S, T>(source, target)
        })),
        (false, true) if is_cast => with_native!(from, S => with_integer!(to, T => {
            cast::float_to_integer::<S, T>(source, target)
        })),
        (false, false) if is_cast => with_native!(from, S => with_native!(to, T => {
            cast::float_to_float::<S, T>(source, target)
        })),
        (true, false) => with_integer!(from, S => with_float!(to, T => {
            soft::integer_to_float::<S, T>(source, target)
        })),
        (false, true) => with_float!(from, S => with_integer!(to, T => {
            soft::float_to_integer::<S, T>(source, target)
        })),
        (false, false) => with_float!(from, S => with_float!(to, T => {
            soft::float_to_float::<S, T>(source, target)
        })),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one<const S: usize, const T: usize>(from: Format, to: Format, source: [u8; S]) -> [u8; T] {
        let mut target = [0xa5; T];
        TypeConversion::between(from, to).run(&source, &mut target);
        target
    }

    #[test]
    fn formats_that_differ_only_in_byte_order_are_swapped() {
        let (little, big) = (Format::little(Number::F32), Format::big(Number::F32));
        assert_eq!(
            TypeConversion::between(little, big),
            TypeConversion::Swap { unit: 4 }
        );
        assert_eq!(TypeConversion::between(big, big), TypeConversion::Copy);
        let byte = [Format::little(Number::I8), Format::big(Number::I8)];
        assert_eq!(
            TypeConversion::between(byte[0], byte[1]),
            TypeConversion::Copy
        );
    }

    #[test]
    fn integers_of_equal_size_and_other_byte_order_keep_their_bits() {
        let (from, to) = (Format::little(Number::U16), Format::big(Number::I16));
        assert_eq!(one(from, to, 65535u16.to_le_bytes()), (-1i16).to_be_bytes());
    }

    #[test]
    fn integers_of_one_byte_and_other_byte_order_keep_their_bits() {
        let (from, to) = (Format::big(Number::I8), Format::little(Number::U8));
        assert_eq!(TypeConversion::between(from, to), TypeConversion::Copy);
        let from = Format::little(Number::I8);
        assert_eq!(one(from, to, (-1i8).to_le_bytes()), [0]);
    }

    #[test]
    fn integers_saturate_at_the_limits_of_the_target() {
        let (from, to) = (Format::big(Number::I32), Format::little(Number::U8));
        assert_eq!(one(from, to, 300i32.to_be_bytes()), [255]);
        assert_eq!(one(from, to, (-300i32).to_be_bytes()), [0]);
        let (from, to) = (Format::little(Number::U64), Format::little(Number::I64));
        assert_eq!(
            one(from, to, u64::MAX.to_le_bytes()),
            i64::MAX.to_le_bytes()
        );
    }

    #[test]
    fn casts_beyond_the_target_give_the_results_of_x86_64() {
        let (from, to) = (Format::little(Number::F32), Format::little(Number::I32));
        assert_eq!(
            one(from, to, f32::INFINITY.to_le_bytes()),
            i32::MAX.to_le_bytes()
        );
        // As an f32 the upper limit is 2^31, and that value is cast.
        assert_eq!(
            one(from, to, 2147483648f32.to_le_bytes()),
            i32::MIN.to_le_bytes()
        );
        assert_eq!(
            one(from, to, f32::NAN.to_le_bytes()),
            i32::MIN.to_le_bytes()
        );
    }

    #[test]
    fn big_endian_floats_become_integers_bit_by_bit() {
        let (from, to) = (Format::big(Number::F32), Format::little(Number::I32));
        assert_eq!(
            one(from, to, 2147483648f32.to_be_bytes()),
            i32::MAX.to_le_bytes()
        );
        assert_eq!(one(from, to, f32::NAN.to_be_bytes()), [0; 4]);
        assert_eq!(one(from, to, (-0.75f32).to_be_bytes()), [0; 4]);
        assert_eq!(
            one(from, to, (-0.25f32).to_be_bytes()),
            i32::MIN.to_le_bytes()
        );
    }

    #[test]
    fn ties_round_to_even_in_casts_and_away_from_zero_bit_by_bit() {
        let tie = f64::from_bits(0x3ff0_0000_1000_0000);
        let (even, up) = (0x3f80_0000u32, 0x3f80_0001u32);
        let to = Format::little(Number::F32);
        let cast = one(Format::little(Number::F64), to, tie.to_le_bytes());
        assert_eq!(cast, even.to_le_bytes());
        let soft = one(Format::big(Number::F64), to, tie.to_be_bytes());
        assert_eq!(soft, up.to_le_bytes());
    }

    #[test]
    fn casts_beyond_the_highest_finite_value_are_infinite() {
        let above = f64::from(f32::MAX) * (1.0 + f64::EPSILON);
        let (from, to) = (Format::little(Number::F64), Format::little(Number::F32));
        assert_eq!(
            one(from, to, above.to_le_bytes()),
            f32::INFINITY.to_le_bytes()
        );
        assert_eq!(above as f32, f32::MAX);
    }

    proptest! {
        #[test]
        fn only_whole_numbers_that_fit_in_both_slices_are_written(
            from in 0..28usize,
            to in 0..28usize,
            source in proptest::collection::vec(any::<u8>(), 0..9000),
            room in 0..9000usize,
            decodes in any::<bool>(),
        ) {
            let format = |n: usize| Format { number: Number::ALL[n / 2], big: n % 2 == 1 };
            let (from, to) = (format(from), format(to));
            let mut target = vec![0xa5; room];
            let rules = DecodeRules::new(Sign::Stored, Arithmetic::Narrow, (0.1, 3.0), &[1.0]);
            let decode = Decode::new(from, to.number, rules.unwrap()).filter(|_| decodes);
            let conversion = match decode {
                Some(decode) => TypeConversion::Decode(decode),
                None => TypeConversion::Convert { from, to },
            };
            conversion.run(&source, &mut target);
            let count = (source.len() / from.size()).min(room / to.size());
            prop_assert!(target[count * to.size()..].iter().all(|byte| *byte == 0xa5));
            prop_assert_eq!(conversion.size_after(count * from.size()), count * to.size());
            let mut alone = vec![0; to.size()];
            for number in 0..count {
                conversion.run(&source[number * from.size()..][..from.size()], &mut alone);
                prop_assert_eq!(&alone, &target[number * to.size()..][..to.size()]);
            }
        }
    }
}
