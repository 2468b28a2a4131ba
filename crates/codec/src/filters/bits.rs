//! Bit streams, most significant bit first, as szip, n-bit and scale-offset store them.

use super::reserve;
use crate::error::Result;

pub(super) struct BitReader<'a> {
    rest: &'a [u8],
    /// The next bits, left-aligned. Those below the first `held` bits are zero or already correct.
    word: u64,
    held: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        BitReader {
            rest: bytes,
            word: 0,
            held: 0,
        }
    }

    /// Fills `word` to at least 56 bits, or with all that are left. `held` stays below 64, so that
    /// shifts by it are defined.
    fn refill(&mut self) {
        if let Some(next) = self.rest.first_chunk::<8>() {
            self.word |= u64::from_be_bytes(*next) >> self.held;
            let bytes = (63 - self.held) / 8;
            self.rest = &self.rest[bytes as usize..];
            self.held += bytes * 8;
        } else {
            while self.held < 56
                && let Some((byte, rest)) = self.rest.split_first()
            {
                self.word |= u64::from(*byte) << (56 - self.held);
                self.held += 8;
                self.rest = rest;
            }
        }
    }

    /// Takes the next `count` bits, at most 64, as a number; `None` past the end.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Option<u64> {
        if count > 32 {
            let high = self.take(count - 32)?;
            return Some(high << 32 | self.take(32)?);
        }
        if count == 0 {
            return Some(0);
        }
        if self.held < count {
            self.refill();
            if self.held < count {
                return None;
            }
        }
        let value = self.word >> (64 - count);
        self.word <<= count;
        self.held -= count;
        Some(value)
    }

    /// Takes a unary code and returns the count of zeros before its one; `None` past the end.
    #[inline]
    pub(super) fn take_unary(&mut self) -> Option<u32> {
        let mut zeros = 0;
        loop {
            if self.held == 0 {
                self.refill();
                if self.held == 0 {
                    return None;
                }
            }
            let leading = self.word.leading_zeros();
            if leading < self.held {
                self.word <<= leading + 1;
                self.held -= leading + 1;
                return Some(zeros + leading);
            }
            zeros = zeros.checked_add(self.held)?;
            self.word <<= self.held;
            self.held = 0;
        }
    }
}

pub(super) struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    word: u64,
    held: u32,
}

impl<'a> BitWriter<'a> {
    /// Appends to `bytes`.
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        BitWriter {
            bytes,
            word: 0,
            held: 0,
        }
    }

    /// Allocates room for `more` bytes.
    pub(super) fn reserve(&mut self, name: &'static str, more: usize) -> Result<()> {
        reserve(name, self.bytes, more)
    }

    /// Appends the low `count` bits of `value`, at most 64.
    #[inline]
    pub(super) fn put(&mut self, value: u64, count: u32) {
        if count > 32 {
            self.put(value >> 32, count - 32);
            return self.put(value, 32);
        }
        let mask = (1u64 << count) - 1;
        self.word = self.word << count | value & mask;
        self.held += count;
        while self.held >= 8 {
            self.held -= 8;
            self.bytes.push((self.word >> self.held) as u8);
        }
    }

    pub(super) fn put_unary(&mut self, zeros: u32) {
        let mut left = zeros;
        while left > 0 {
            let step = left.min(32);
            self.put(0, step);
            left -= step;
        }
        self.put(1, 1);
    }

    /// Pads the last byte with zeros. Returns whether it was incomplete.
    pub(super) fn finish(mut self) -> bool {
        let incomplete = self.held > 0;
        if incomplete {
            self.put(0, 8 - self.held);
        }
        incomplete
    }
}
