//! Numbers out of the fuzzer's bytes.

/// The bytes not yet used. Behind the end there are zeros, so that every input is a case.
pub struct Draw<'a>(pub &'a [u8]);

impl Draw<'_> {
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// One of as many choices.
    pub fn choice(&mut self, choices: u8) -> u8 {
        self.byte() % choices
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Mostly a small number; sometimes one at or near a power of two, rarely any.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..128 => u64::from(small % 16),
            middle @ 128..192 => u64::from(middle),
            192..250 => {
                let power = 1u64 << (self.byte() % 64);
                power.wrapping_add_signed(i64::from(self.byte() as i8) / 16)
            }
            _ => self.word(),
        }
    }

    /// A number below `size`, or in one of 16 cases any.
    pub fn index(&mut self, size: u64) -> u64 {
        let is_any = self.byte() & 15 == 15;
        let number = self.number();
        if is_any { number } else { number % size.max(1) }
    }

    pub fn list<T>(&mut self, most: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.choice(most + 1)).map(|_| one(self)).collect()
    }
}
