//! The kinds of numbers and their formats in memory.

/// A kind of number. GPU kernels use the same discriminants.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// An 8-bit float with 4 bits of exponent. It has infinities, unlike OCP's format.
    F8E4M3,
    /// An 8-bit float with 5 bits of exponent.
    F8E5M2,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `F32`.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

impl Number {
    /// Every kind, in the order of the enum.
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

    /// The size of a number in bytes.
    pub const fn size(self) -> usize {
        match self {
            Number::U8 | Number::I8 | Number::F8E4M3 | Number::F8E5M2 => 1,
            Number::U16 | Number::I16 | Number::F16 | Number::Bf16 => 2,
            Number::U32 | Number::I32 | Number::F32 => 4,
            Number::U64 | Number::I64 | Number::F64 => 8,
        }
    }

    /// Whether the number is an integer.
    pub const fn is_integer(self) -> bool {
        (self as u32) < Number::F8E4M3 as u32
    }

    /// The integer of the same size with this sign; a float itself.
    pub(super) fn with_sign(self, sign: Sign) -> Number {
        let number = self as usize;
        match sign {
            Sign::Unsigned if self.is_integer() => Number::ALL[number & !1],
            Sign::Signed if self.is_integer() => Number::ALL[number | 1],
            _ => self,
        }
    }

    /// The bits of exponent and mantissa of a float; `None` for integers. The leading one of the
    /// mantissa is implied, and the bias is 2^(bits of exponent - 1) - 1.
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

    /// Whether HDF5 has a C type for the number, and so converts it by C casts.
    const fn is_c_type(self) -> bool {
        self.is_integer() || matches!(self, Number::F16 | Number::F32 | Number::F64)
    }
}

/// As what stored integers are taken, with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// As they are stored.
    Stored,
    /// As unsigned integers.
    Unsigned,
    /// As signed integers.
    Signed,
}

/// The format of a number in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// The kind of number.
    pub number: Number,
    /// Whether the most significant byte comes first. For numbers of one byte, it matters only to integers
    /// of another sign.
    pub big: bool,
}

impl Format {
    /// The number with its least significant byte first.
    pub const fn little(number: Number) -> Format {
        Format { number, big: false }
    }

    /// The number with its most significant byte first.
    pub const fn big(number: Number) -> Format {
        Format { number, big: true }
    }

    /// The size of a number in bytes.
    pub const fn size(self) -> usize {
        self.number.size()
    }

    /// Whether the bytes must be reversed for little-endian order.
    pub(crate) const fn is_swapped(self) -> bool {
        self.big && self.number.size() > 1
    }

    pub(super) const fn is_native(self) -> bool {
        self.number.is_c_type() && !self.is_swapped()
    }
}
