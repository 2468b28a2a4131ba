//! Two permutations of the bytes of vector registers, on which shuffle and bitshuffle are built.
//!
//! On x86-64 and AArch64 they are intrinsics: the compiler does not generate these instructions from
//! plain loops, which make the filters about ten times slower on x86-64.

/// Bytes of one vector register.
pub(super) const LANES: usize = 16;
pub(super) type Row = [u8; LANES];

#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{evens_and_odds, interleave};

#[cfg(target_arch = "aarch64")]
pub(super) use neon::{evens_and_odds, interleave};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use portable::{evens_and_odds, interleave};

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_packus_epi16, _mm_set1_epi16, _mm_srli_epi16,
        _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    };
    use std::mem::transmute;

    use super::Row;

    /// `a[0], b[0], a[1], b[1], ...`, in two rows.
    #[inline(always)]
    pub(crate) fn interleave(a: Row, b: Row) -> (Row, Row) {
        // SAFETY: every x86-64 processor has SSE2. A row and a register both have 16 bytes, and
        // every value of them is valid.
        unsafe {
            let (a, b) = (transmute::<Row, __m128i>(a), transmute::<Row, __m128i>(b));
            (
                transmute::<__m128i, Row>(_mm_unpacklo_epi8(a, b)),
                transmute::<__m128i, Row>(_mm_unpackhi_epi8(a, b)),
            )
        }
    }

    /// The bytes at even indices of `a` and then `b`, and those at odd indices.
    #[inline(always)]
    pub(crate) fn evens_and_odds(a: Row, b: Row) -> (Row, Row) {
        // SAFETY: as in `interleave`.
        unsafe {
            let (a, b) = (transmute::<Row, __m128i>(a), transmute::<Row, __m128i>(b));
            let low = _mm_set1_epi16(0xff);
            let evens = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
            let odds = _mm_packus_epi16(_mm_srli_epi16::<8>(a), _mm_srli_epi16::<8>(b));
            (
                transmute::<__m128i, Row>(evens),
                transmute::<__m128i, Row>(odds),
            )
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::{uint8x16_t, vuzp1q_u8, vuzp2q_u8, vzip1q_u8, vzip2q_u8};
    use std::mem::transmute;

    use super::Row;

    /// `a[0], b[0], a[1], b[1], ...`, in two rows.
    #[inline(always)]
    pub(crate) fn interleave(a: Row, b: Row) -> (Row, Row) {
        // SAFETY: the target has NEON. A row and a register both have 16 bytes, and every value of
        // them is valid.
        unsafe {
            let (a, b) = (
                transmute::<Row, uint8x16_t>(a),
                transmute::<Row, uint8x16_t>(b),
            );
            (
                transmute::<uint8x16_t, Row>(vzip1q_u8(a, b)),
                transmute::<uint8x16_t, Row>(vzip2q_u8(a, b)),
            )
        }
    }

    /// The bytes at even indices of `a` and then `b`, and those at odd indices.
    #[inline(always)]
    pub(crate) fn evens_and_odds(a: Row, b: Row) -> (Row, Row) {
        // SAFETY: as in `interleave`.
        unsafe {
            let (a, b) = (
                transmute::<Row, uint8x16_t>(a),
                transmute::<Row, uint8x16_t>(b),
            );
            (
                transmute::<uint8x16_t, Row>(vuzp1q_u8(a, b)),
                transmute::<uint8x16_t, Row>(vuzp2q_u8(a, b)),
            )
        }
    }
}

#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod portable {
    use std::array::from_fn;

    use super::{LANES, Row};

    pub(super) fn interleave(a: Row, b: Row) -> (Row, Row) {
        let pick = |i: usize| {
            if i.is_multiple_of(2) {
                a[i / 2]
            } else {
                b[i / 2]
            }
        };
        (from_fn(pick), from_fn(|i| pick(i + LANES)))
    }

    pub(super) fn evens_and_odds(a: Row, b: Row) -> (Row, Row) {
        let pick = |i: usize| if i < LANES { a[i] } else { b[i - LANES] };
        (from_fn(|i| pick(2 * i)), from_fn(|i| pick(2 * i + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::{evens_and_odds, interleave, portable};

    #[test]
    fn intrinsics_move_bytes_as_the_plain_loops_do() {
        let a = std::array::from_fn(|i| 15 * i as u8 + 1);
        let b = std::array::from_fn(|i| 255 - 13 * i as u8);
        assert_eq!(interleave(a, b), portable::interleave(a, b));
        assert_eq!(evens_and_odds(a, b), portable::evens_and_odds(a, b));
        let (first, second) = interleave(a, b);
        assert_eq!(evens_and_odds(first, second), (a, b));
    }
}
