//! The machine's numbers, and how one lies in memory.

/// The kinds of numbers that are converted. The values are those that GPU kernels are given.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    U8 = 0,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F8E4M3,
    F8E5M2,
    F16,
    Bf16,
    F32,
    F64,
}

impl Number {
    pub const ALL: [Number; 14] = [
        Number::U8,
        Number::I8,
        Number::U16,
        Number::I16,
        Number::U32,
        Number::I32,
        Number::U64,
        Number::I64,
        Number::F8E4M3,
        Number::F8E5M2,
        Number::F16,
        Number::Bf16,
        Number::F32,
        Number::F64,
    ];

    /// Bytes of one.
    pub const fn size(self) -> usize {
        match self {
            Number::U8 | Number::I8 | Number::F8E4M3 | Number::F8E5M2 => 1,
            Number::U16 | Number::I16 | Number::F16 | Number::Bf16 => 2,
            Number::U32 | Number::I32 | Number::F32 => 4,
            Number::U64 | Number::I64 | Number::F64 => 8,
        }
    }

    pub const fn is_integer(self) -> bool {
        (self as u32) < Number::F8E4M3 as u32
    }

    /// Bits of the exponent and of the mantissa, if it is a float. The mantissa's leading one is
    /// implied, and the bias is half of the exponents.
    pub const fn float_bits(self) -> Option<(u32, u32)> {
        match self {
            Number::F8E4M3 => Some((4, 3)),
            Number::F8E5M2 => Some((5, 2)),
            Number::F16 => Some((5, 10)),
            Number::Bf16 => Some((8, 7)),
            Number::F32 => Some((8, 23)),
            Number::F64 => Some((11, 52)),
            _ => None,
        }
    }

    /// Whether HDF5 has a C type for it, and so leaves its conversion to the compiler's casts.
    const fn is_c_type(self) -> bool {
        self.is_integer() || matches!(self, Number::F16 | Number::F32 | Number::F64)
    }
}

/// How one number lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    pub number: Number,
    /// Most significant byte first. Means nothing for a number of one byte.
    pub big: bool,
}

impl Format {
    pub const fn little(number: Number) -> Format {
        Format { number, big: false }
    }

    pub const fn big(number: Number) -> Format {
        Format { number, big: true }
    }

    pub const fn size(self) -> usize {
        self.number.size()
    }

    /// Whether its bytes have to be turned around to become those of a machine number.
    pub const fn is_swapped(self) -> bool {
        self.big && self.number.size() > 1
    }

    pub(super) const fn is_native(self) -> bool {
        self.number.is_c_type() && !self.is_swapped()
    }
}
