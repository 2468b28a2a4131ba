//! Floating-point formats as type parameters.

use super::lane::Lane;

/// A format of sign, exponent and mantissa, from the highest bit down, with an implied leading one.
pub(super) trait Float {
    type Bytes: Lane;
    const EXPONENT: u32;
    const MANTISSA: u32;

    /// The exponent bias.
    const BIAS: i64 = (1 << (Self::EXPONENT - 1)) - 1;
    /// The biased exponent of infinity and NaN.
    const TOP: i64 = (1 << Self::EXPONENT) - 1;
    const SIGN: u32 = Self::EXPONENT + Self::MANTISSA;
    const MASK: u64 = (1 << Self::MANTISSA) - 1;

    fn bits(bytes: Self::Bytes) -> u64;
    fn bytes(bits: u64) -> Self::Bytes;

    fn infinity(negative: bool) -> u64 {
        u64::from(negative) << Self::SIGN | (Self::TOP as u64) << Self::MANTISSA
    }
}

macro_rules! floats {
    ($($name:ident: $bits:ty, $exponent:literal, $mantissa:literal;)*) => {$(
        pub(super) struct $name;

        impl Float for $name {
            type Bytes = [u8; size_of::<$bits>()];
            const EXPONENT: u32 = $exponent;
            const MANTISSA: u32 = $mantissa;

            fn bits(bytes: Self::Bytes) -> u64 {
                u64::from(<$bits>::from_le_bytes(bytes))
            }
            fn bytes(bits: u64) -> Self::Bytes {
                (bits as $bits).to_le_bytes()
            }
        }
    )*};
}

floats! {
    F8E4M3: u8, 4, 3;
    F8E5M2: u8, 5, 2;
    F16: u16, 5, 10;
    Bf16: u16, 8, 7;
    F32: u32, 8, 23;
    F64: u64, 11, 52;
}
