//! The type of a dataset's elements as plain data.

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// An integer of `size` bytes whose value is in the `bits` bits from bit `shift` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Size in bytes.
    pub size: usize,
    /// Byte order.
    pub order: ByteOrder,
    /// Whether it is a two's complement number.
    pub signed: bool,
    /// Number of bits of the value.
    pub bits: usize,
    /// Position of the lowest of these bits.
    pub shift: usize,
}

impl Integer {
    /// Returns whether all bits belong to the value, as in a machine integer.
    pub fn is_plain(&self) -> bool {
        self.shift == 0 && self.bits == self.size * 8
    }
}

/// Positions of the parts of a floating-point number, in bits from the least significant one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloatLayout {
    /// Number of bits of the value.
    pub bits: usize,
    /// Position of the lowest of these bits.
    pub shift: usize,
    /// Position of the sign bit.
    pub sign: usize,
    /// Position of the exponent's lowest bit.
    pub exponent: usize,
    /// Number of bits of the exponent.
    pub exponent_bits: usize,
    /// Position of the mantissa's lowest bit.
    pub mantissa: usize,
    /// Number of bits of the mantissa.
    pub mantissa_bits: usize,
    /// Exponent bias.
    pub bias: usize,
    /// Whether the leading one of the mantissa is implied and not stored.
    pub implied: bool,
}

/// A floating-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// Size in bytes.
    pub size: usize,
    /// Byte order.
    pub order: ByteOrder,
    /// Positions of its parts.
    pub layout: FloatLayout,
}

/// A number of one of the machine's types, in either byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineNumber {
    /// NumPy's letter: `i`, `u` or `f`.
    pub letter: u8,
    /// Size in bytes.
    pub size: usize,
    /// Byte order.
    pub order: ByteOrder,
}

impl ElementType {
    /// Returns the number that an element is, without a name, if it is one of the machine's.
    pub fn machine_number(&self) -> Option<MachineNumber> {
        match self {
            ElementType::Integer(integer)
                if integer.is_plain() && matches!(integer.size, 1 | 2 | 4 | 8) =>
            {
                Some(MachineNumber {
                    letter: if integer.signed { b'i' } else { b'u' },
                    size: integer.size,
                    order: integer.order,
                })
            }
            ElementType::Float(float) => {
                let kind = float.kind()?;
                matches!(kind, FloatKind::F16 | FloatKind::F32 | FloatKind::F64).then_some(
                    MachineNumber {
                        letter: b'f',
                        size: float.size,
                        order: float.order,
                    },
                )
            }
            _ => None,
        }
    }
}

/// Floating-point formats that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatKind {
    /// 8 bits, 4 of them exponent.
    F8E4M3,
    /// 8 bits, 5 of them exponent.
    F8E5M2,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// 80 bits in 16 bytes, as `long double` of x86-64.
    X87,
    /// IEEE 754 binary128.
    F128,
}

impl Float {
    /// Returns the named format, if it has one.
    pub fn kind(&self) -> Option<FloatKind> {
        let at = self.layout;
        let (bits, mantissa) = (at.bits, at.mantissa_bits);
        if at.shift != 0 || at.mantissa != 0 || at.exponent != mantissa || at.sign + 1 != bits {
            return None;
        }
        let kind = match (
            self.size,
            bits,
            at.exponent_bits,
            mantissa,
            at.bias,
            at.implied,
        ) {
            (1, 8, 4, 3, 7, true) => FloatKind::F8E4M3,
            (1, 8, 5, 2, 15, true) => FloatKind::F8E5M2,
            (2, 16, 5, 10, 15, true) => FloatKind::F16,
            (2, 16, 8, 7, 127, true) => FloatKind::Bf16,
            (4, 32, 8, 23, 127, true) => FloatKind::F32,
            (8, 64, 11, 52, 1023, true) => FloatKind::F64,
            (16, 80, 15, 64, 16383, false) => FloatKind::X87,
            (16, 128, 15, 112, 16383, true) => FloatKind::F128,
            _ => return None,
        };
        Some(kind)
    }
}

/// A real and an imaginary part of the same format, in this order, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complex {
    /// Type of both parts.
    pub part: Float,
    /// Whether it is of HDF5's own complex class (since 2.0), instead of h5py's compound of `r` and
    /// `i`.
    pub native: bool,
}

/// Integers with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumeration {
    /// Type of the integers.
    pub base: Integer,
    /// Each name with its value.
    pub members: Vec<(String, i128)>,
}

impl Enumeration {
    /// Returns whether it is h5py's representation of NumPy's bool.
    pub fn is_boolean(&self) -> bool {
        let is = |name: &str, value: i128| self.members.iter().any(|m| m.0 == name && m.1 == value);
        self.members.len() == 2 && is("FALSE", 0) && is("TRUE", 1)
    }
}

/// How a string is padded to its fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The string ends at the first NUL.
    NullTerminated,
    /// NULs follow the string, which may take the whole length.
    Null,
    /// Spaces follow the string.
    Space,
}

/// A field of a compound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Offset in the compound, in bytes.
    pub offset: usize,
    /// Type.
    pub element: ElementType,
}

/// The form of an element type, in the file ([`FileType`](super::FileType)) or in memory
/// ([`MemoryType`](super::MemoryType)). Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// An integer.
    Integer(Integer),
    /// Bits without a numeric meaning; h5py treats them as unsigned integers.
    Bitfield(Integer),
    /// A floating-point number.
    Float(Float),
    /// A complex number.
    Complex(Complex),
    /// h5py's representation of NumPy's bool.
    Boolean(Integer),
    /// An integer with a name.
    Enum(Enumeration),
    /// A string of fixed length.
    String {
        /// Length.
        size: usize,
        /// Whether it is UTF-8 instead of ASCII.
        utf8: bool,
        /// Padding.
        padding: Padding,
    },
    /// Bytes without a meaning to HDF5.
    Opaque {
        /// Number of bytes.
        size: usize,
        /// The program's name for them.
        tag: String,
    },
    /// An array as an element.
    Array {
        /// Type of its elements.
        element: Box<ElementType>,
        /// Shape.
        dims: Vec<u64>,
        /// Size of the whole array.
        size: usize,
    },
    /// Fields side by side.
    Compound {
        /// Size including gaps.
        size: usize,
        /// The fields, in the order of the type.
        fields: Vec<Field>,
    },
    /// A type that only HDF5 can read: variable-length data and references, whose values are
    /// elsewhere in the file, times, and numbers in VAX order.
    OnlyHdf5 {
        /// Size of an element.
        size: usize,
        /// Its description in messages.
        what: &'static str,
    },
}

impl ElementType {
    /// Returns the size of an element in bytes.
    pub fn size(&self) -> usize {
        match self {
            ElementType::Integer(i) | ElementType::Bitfield(i) | ElementType::Boolean(i) => i.size,
            ElementType::Float(f) => f.size,
            ElementType::Complex(c) => c.part.size * 2,
            ElementType::Enum(e) => e.base.size,
            ElementType::String { size, .. }
            | ElementType::Opaque { size, .. }
            | ElementType::Array { size, .. }
            | ElementType::Compound { size, .. }
            | ElementType::OnlyHdf5 { size, .. } => *size,
        }
    }

    /// Returns whether this type has fields that `other` lacks, also in nested types of the same
    /// structure. HDF5 leaves these fields unchanged when it reads elements of type `other`.
    pub fn has_more_fields(&self, other: &ElementType) -> bool {
        match (self, other) {
            (
                ElementType::Compound { fields, .. },
                ElementType::Compound { fields: others, .. },
            ) => fields.iter().any(|field| {
                let same = others.iter().find(|other| other.name == field.name);
                same.is_none_or(|same| field.element.has_more_fields(&same.element))
            }),
            (ElementType::Array { element, .. }, ElementType::Array { element: other, .. }) => {
                element.has_more_fields(other)
            }
            _ => false,
        }
    }

    /// Returns which part of the type, if any, has values that are not in the stored bytes.
    pub fn only_hdf5(&self) -> Option<&'static str> {
        match self {
            ElementType::OnlyHdf5 { what, .. } => Some(what),
            ElementType::Array { element, .. } => element.only_hdf5(),
            ElementType::Compound { fields, .. } => {
                fields.iter().find_map(|f| f.element.only_hdf5())
            }
            _ => None,
        }
    }
}
