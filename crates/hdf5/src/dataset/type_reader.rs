//! Reads element types through HDF5.

use std::ffi::c_int;

use penstock_engine::error::Result;
use penstock_sys::hdf5::{
    H5T_ARRAY, H5T_BITFIELD, H5T_COMPLEX, H5T_COMPOUND, H5T_CSET_UTF8, H5T_ENUM, H5T_FLOAT,
    H5T_INTEGER, H5T_NORM_IMPLIED, H5T_OPAQUE, H5T_ORDER_BE, H5T_ORDER_LE, H5T_REFERENCE,
    H5T_SGN_NONE, H5T_STRING, H5T_TIME, H5T_VLEN, hid_t,
};

use super::stored_elsewhere::Elsewhere;
use super::{
    ByteOrder, Complex, ElementType, Enumeration, Field, Float, FloatLayout, Integer, Padding,
    damaged,
};
use crate::library::{Id, Session};

/// Largest nesting depth of a type.
const DEEPEST: usize = 32;

/// Reads types in one of their forms.
pub(super) struct Reader<'a> {
    pub session: &'a Session<'a>,
    /// Size of an address in the file; `None` for the form in memory.
    pub address: Option<usize>,
}

impl Reader<'_> {
    pub(super) fn element(&self, id: hid_t, depth: usize) -> Result<ElementType> {
        if depth > DEEPEST {
            let cause = format!("the element type is nested more than {DEEPEST} levels deep");
            return damaged(cause);
        }
        let hdf5 = self.session.hdf5;
        // SAFETY: the functions take an identifier, which HDF5 checks, and touch no memory of the
        // caller.
        let (class, size) = unsafe { ((hdf5.H5Tget_class)(id), (hdf5.H5Tget_size)(id)) };
        self.session.check(class, "get the class of a type")?;
        if size == 0 {
            return Err(self.session.failed("get the size of a type"));
        }
        let only = |what| Ok(ElementType::OnlyHdf5 { size, what });
        match class {
            H5T_INTEGER => self.integer(id, size, ElementType::Integer),
            H5T_BITFIELD => self.integer(id, size, ElementType::Bitfield),
            H5T_FLOAT => match self.float(id, size)? {
                Some(float) => Ok(ElementType::Float(float)),
                None => only("numbers in VAX order"),
            },
            H5T_TIME => only("times"),
            H5T_REFERENCE => Ok(self.only_hdf5(size, "references", Elsewhere::Reference)),
            H5T_VLEN => Ok(self.only_hdf5(size, "variable-length sequences", Elsewhere::Sequence)),
            H5T_STRING => self.string(id, size),
            H5T_OPAQUE => {
                // SAFETY: as above; the caller must free the text.
                let tag = unsafe { (hdf5.H5Tget_tag)(id) };
                let tag = self
                    .session
                    .take_text(tag, "get the tag of an opaque type")?;
                Ok(ElementType::Opaque { size, tag })
            }
            H5T_ENUM => self.enumeration(id, size, depth),
            H5T_ARRAY => self.array(id, size, depth),
            H5T_COMPOUND => self.compound(id, size, depth),
            H5T_COMPLEX => match self.element(self.base(id)?.get(), depth + 1)? {
                ElementType::Float(part) if part.size.checked_mul(2) == Some(size) => {
                    Ok(ElementType::Complex(Complex { part, native: true }))
                }
                _ => only("complex numbers of an unusual base type"),
            },
            _ => only("types of an unknown class"),
        }
    }

    /// Returns a type of `size` bytes in memory, whose values are stored elsewhere.
    fn only_hdf5(&self, size: usize, what: &'static str, elsewhere: Elsewhere) -> ElementType {
        let stored = |address| elsewhere.stored(size, address);
        let size = self.address.map_or(size, stored);
        ElementType::OnlyHdf5 { size, what }
    }

    fn base(&self, id: hid_t) -> Result<Id> {
        let hdf5 = self.session.hdf5;
        // SAFETY: takes a checked identifier and returns an owned one.
        let base = unsafe { (hdf5.H5Tget_super)(id) };
        self.session.own(base, hdf5.H5Tclose, "get a base type")
    }

    fn order(&self, id: hid_t) -> Result<Option<ByteOrder>> {
        // SAFETY: takes a checked identifier.
        let order = unsafe { (self.session.hdf5.H5Tget_order)(id) };
        Ok(
            match self.session.check(order, "get the byte order of a type")? {
                H5T_ORDER_LE => Some(ByteOrder::Little),
                H5T_ORDER_BE => Some(ByteOrder::Big),
                _ => None,
            },
        )
    }

    /// Returns precision and offset, checked to lie inside the element.
    fn bits(&self, id: hid_t, size: usize) -> Result<(usize, usize)> {
        let hdf5 = self.session.hdf5;
        // SAFETY: both take a checked identifier.
        let (bits, shift) = unsafe { ((hdf5.H5Tget_precision)(id), (hdf5.H5Tget_offset)(id)) };
        let shift = self.session.check(shift, "get the bit offset of a type")? as usize;
        let (all, end) = (size.checked_mul(8), bits.checked_add(shift));
        let is_inside = bits > 0 && all.zip(end).is_some_and(|(all, end)| end <= all);
        if !is_inside {
            return damaged(format!(
                "a number of {size} bytes has {bits} bits from bit {shift} on"
            ));
        }
        Ok((bits, shift))
    }

    fn integer(
        &self,
        id: hid_t,
        size: usize,
        make: fn(Integer) -> ElementType,
    ) -> Result<ElementType> {
        let Some(order) = self.order(id)? else {
            let what = "integers without a byte order";
            return Ok(ElementType::OnlyHdf5 { size, what });
        };
        let (bits, shift) = self.bits(id, size)?;
        // SAFETY: takes a checked identifier. For bit fields, which have no sign, it returns an
        // error.
        let sign = unsafe { (self.session.hdf5.H5Tget_sign)(id) };
        Ok(make(Integer {
            size,
            order,
            signed: sign > H5T_SGN_NONE,
            bits,
            shift,
        }))
    }

    fn float(&self, id: hid_t, size: usize) -> Result<Option<Float>> {
        let Some(order) = self.order(id)? else {
            return Ok(None);
        };
        let hdf5 = self.session.hdf5;
        let (bits, shift) = self.bits(id, size)?;
        let mut layout = FloatLayout {
            bits,
            shift,
            ..FloatLayout::default()
        };
        // SAFETY: takes a checked identifier; the five results have places of their types.
        let (status, norm) = unsafe {
            let status = (hdf5.H5Tget_fields)(
                id,
                &mut layout.sign,
                &mut layout.exponent,
                &mut layout.exponent_bits,
                &mut layout.mantissa,
                &mut layout.mantissa_bits,
            );
            layout.bias = (hdf5.H5Tget_ebias)(id);
            (status, (hdf5.H5Tget_norm)(id))
        };
        self.session
            .check(status, "get the bit fields of a float")?;
        self.session
            .check(norm, "get the normalisation of a float")?;
        layout.implied = norm == H5T_NORM_IMPLIED;
        Ok(Some(Float {
            size,
            order,
            layout,
        }))
    }

    fn string(&self, id: hid_t, size: usize) -> Result<ElementType> {
        let hdf5 = self.session.hdf5;
        let check = |status, action| self.session.check(status, action);
        // SAFETY: each takes a checked identifier.
        let (variable, cset, padding) = unsafe {
            (
                check((hdf5.H5Tis_variable_str)(id), "get the kind of a string")?,
                check((hdf5.H5Tget_cset)(id), "get the character set of a string")?,
                check((hdf5.H5Tget_strpad)(id), "get the padding of a string")?,
            )
        };
        if variable > 0 {
            return Ok(self.only_hdf5(size, "variable-length strings", Elsewhere::Sequence));
        }
        let padding = match padding {
            0 => Padding::NullTerminated,
            1 => Padding::Null,
            _ => Padding::Space,
        };
        Ok(ElementType::String {
            size,
            utf8: cset == H5T_CSET_UTF8,
            padding,
        })
    }

    fn members(&self, id: hid_t) -> Result<u32> {
        // SAFETY: takes a checked identifier.
        let count: c_int = unsafe { (self.session.hdf5.H5Tget_nmembers)(id) };
        Ok(self.session.check(count, "count the members of a type")? as u32)
    }

    fn member_name(&self, id: hid_t, member: u32) -> Result<String> {
        // SAFETY: HDF5 checks identifier and index; the caller must free the text.
        let name = unsafe { (self.session.hdf5.H5Tget_member_name)(id, member) };
        self.session.take_text(name, "get the name of a member")
    }

    fn enumeration(&self, id: hid_t, size: usize, depth: usize) -> Result<ElementType> {
        let base = match self.element(self.base(id)?.get(), depth + 1)? {
            ElementType::Integer(base) if base.size == size => base,
            _ => {
                let what = "enumerations of other types than integers";
                return Ok(ElementType::OnlyHdf5 { size, what });
            }
        };
        let mut members = Vec::new();
        let mut value = vec![0u8; size];
        for member in 0..self.members(id)? {
            let name = self.member_name(id, member)?;
            // SAFETY: the value of a member has the size of the type, and so has the buffer.
            let status = unsafe {
                (self.session.hdf5.H5Tget_member_value)(id, member, value.as_mut_ptr().cast())
            };
            self.session.check(status, "get the value of a member")?;
            members.push((name, integer_value(&value, &base)));
        }
        let made = Enumeration { base, members };
        Ok(if made.is_boolean() {
            ElementType::Boolean(base)
        } else {
            ElementType::Enum(made)
        })
    }

    fn array(&self, id: hid_t, size: usize, depth: usize) -> Result<ElementType> {
        let hdf5 = self.session.hdf5;
        // SAFETY: takes a checked identifier.
        let rank = unsafe { (hdf5.H5Tget_array_ndims)(id) };
        let rank = self.session.check(rank, "get the rank of an array type")?;
        let mut dims = vec![0u64; rank as usize];
        // SAFETY: the array has room for `rank` sizes.
        let status = unsafe { (hdf5.H5Tget_array_dims2)(id, dims.as_mut_ptr()) };
        self.session
            .check(status, "get the shape of an array type")?;
        let element = Box::new(self.element(self.base(id)?.get(), depth + 1)?);
        let size_of_element = element.size() as u64;
        let bytes = dims
            .iter()
            .copied()
            .try_fold(size_of_element, u64::checked_mul);
        match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) if bytes == size || self.address.is_some() => Ok(ElementType::Array {
                element,
                dims,
                size: bytes,
            }),
            _ => damaged(format!("an array type of shape {dims:?} has {size} bytes")),
        }
    }

    fn compound(&self, id: hid_t, size: usize, depth: usize) -> Result<ElementType> {
        let hdf5 = self.session.hdf5;
        let (mut fields, mut in_memory) = (Vec::new(), Vec::new());
        for member in 0..self.members(id)? {
            let name = self.member_name(id, member)?;
            // SAFETY: both take a checked identifier and index; the caller must close the type.
            let (offset, of_member) = unsafe {
                (
                    (hdf5.H5Tget_member_offset)(id, member),
                    (hdf5.H5Tget_member_type)(id, member),
                )
            };
            let of_member =
                self.session
                    .own(of_member, hdf5.H5Tclose, "get the type of a field")?;
            let element = self.element(of_member.get(), depth + 1)?;
            // SAFETY: takes an owned identifier.
            let own_size = unsafe { (hdf5.H5Tget_size)(of_member.get()) };
            if offset.checked_add(own_size).is_none_or(|end| end > size) {
                return damaged(format!(
                    "the field {name:?} extends past the {size} bytes of its compound"
                ));
            }
            in_memory.push(own_size);
            fields.push(Field {
                name,
                offset,
                element,
            });
        }
        let size = match self.address {
            None => size,
            Some(_) => move_to_file(&mut fields, &in_memory, size),
        };
        Ok(match complex(size, &fields) {
            Some(part) => ElementType::Complex(Complex {
                part,
                native: false,
            }),
            None => ElementType::Compound { size, fields },
        })
    }
}

/// Moves fields from their offsets in memory to those in the file, where some have another size than
/// `in_memory`. As HDF5 does, keeps their order and the gaps between them. Returns the size of the compound,
/// which is `size` in memory.
fn move_to_file(fields: &mut [Field], in_memory: &[usize], size: usize) -> usize {
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|at| fields[*at].offset);
    // The end of a field in memory, and in the file.
    let (mut end, mut stored_end) = (0, 0);
    for at in order {
        let field = &mut fields[at];
        let gap = field.offset.saturating_sub(end);
        end = field.offset + in_memory[at];
        field.offset = stored_end + gap;
        stored_end = field.offset + field.element.size();
    }
    stored_end + size.saturating_sub(end)
}

/// Returns the type of the parts if the compound is h5py's representation of a complex number.
fn complex(size: usize, fields: &[Field]) -> Option<Float> {
    let [real, imaginary] = fields else {
        return None;
    };
    let ElementType::Float(part) = real.element else {
        return None;
    };
    let is_pair = real.name == "r"
        && imaginary.name == "i"
        && imaginary.element == real.element
        && real.offset == 0
        && imaginary.offset == part.size
        && size == part.size * 2;
    is_pair.then_some(part)
}

fn integer_value(bytes: &[u8], kind: &Integer) -> i128 {
    let fold = |all: u128, byte: &u8| all << 8 | u128::from(*byte);
    let all = match kind.order {
        ByteOrder::Big => bytes.iter().fold(0, fold),
        ByteOrder::Little => bytes.iter().rev().fold(0, fold),
    };
    let unused = 128 - kind.bits.min(128) as u32;
    let value = (all >> kind.shift.min(127)) << unused;
    if kind.signed {
        value as i128 >> unused
    } else {
        (value >> unused) as i128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_values_are_read_in_their_order_and_sign() {
        let kind = |order, signed, bits, shift| Integer {
            size: 2,
            order,
            signed,
            bits,
            shift,
        };
        let bytes = [0xff, 0xfe];
        assert_eq!(
            integer_value(&bytes, &kind(ByteOrder::Big, true, 16, 0)),
            -2
        );
        assert_eq!(
            integer_value(&bytes, &kind(ByteOrder::Big, false, 16, 0)),
            65534
        );
        assert_eq!(
            integer_value(&bytes, &kind(ByteOrder::Little, false, 16, 0)),
            0xfeff
        );
        assert_eq!(integer_value(&bytes, &kind(ByteOrder::Big, true, 4, 1)), -1);
    }
}
