//! Integers as type parameters, and their conversion to each other.

use super::lane::{Lane, each};

pub(super) trait Integer: Copy + Ord {
    type Bytes: Lane;
    const BITS: u32;
    const LOWEST: i128;
    const HIGHEST: i128;

    fn from_le(bytes: Self::Bytes) -> Self;
    fn to_le(self) -> Self::Bytes;
    /// The low bits of a value.
    fn wrap(value: i128) -> Self;
    fn wide(self) -> i128;
    fn f32(self) -> f32;
    fn f64(self) -> f64;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Integer for $t {
            type Bytes = [u8; size_of::<$t>()];
            const BITS: u32 = <$t>::BITS;
            const LOWEST: i128 = <$t>::MIN as i128;
            const HIGHEST: i128 = <$t>::MAX as i128;

            fn from_le(bytes: Self::Bytes) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            fn to_le(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            fn wrap(value: i128) -> $t {
                value as $t
            }
            fn wide(self) -> i128 {
                i128::from(self)
            }
            fn f32(self) -> f32 {
                self as f32
            }
            fn f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

integers! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// Converts with saturation at the limits of the target.
pub(super) fn saturate<S: Integer, T: Integer>(source: &[u8], target: &mut [u8]) {
    // The limits are values of the source type, so that the loop compares no 128-bit integers.
    let lowest = S::wrap(S::LOWEST.max(T::LOWEST));
    let highest = S::wrap(S::HIGHEST.min(T::HIGHEST));
    each(source, target, |bytes: S::Bytes| {
        let value = S::from_le(bytes).clamp(lowest, highest);
        T::wrap(value.wide()).to_le()
    });
}
