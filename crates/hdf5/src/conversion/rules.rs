//! Rules of conversion: the part of an element that is moved, and the conversion of its numbers.

use std::ops::Range;

use penstock_codec::convert::{Format, Number, TypeConversion};

use crate::dataset::{
    ByteOrder, Complex, ElementType, Enumeration, Field, Float, FloatKind, Integer,
};

/// A byte range of an element, and its conversion.
#[derive(Clone, Copy)]
pub(super) struct ElementPart {
    pub offset: usize,
    pub length: usize,
    pub values: TypeConversion,
}

type Found = std::result::Result<ElementPart, String>;

impl ElementPart {
    /// Returns the part of an element of form `from` that becomes an element of form `to`.
    pub(super) fn between(from: &ElementType, to: &ElementType) -> Found {
        let part = part(from, to)?;
        match part.values.size_after(part.length) {
            size if size == to.size() && size > 0 => Ok(part),
            _ => Err(only_hdf5(from, to)),
        }
    }

    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset as u64..(self.offset + self.length) as u64
    }
}

fn part(from: &ElementType, to: &ElementType) -> Found {
    if let Some(what) = to.only_hdf5() {
        return Err(format!("only HDF5 converts {what}"));
    }
    let whole = |values| {
        Ok(ElementPart {
            offset: 0,
            length: from.size(),
            values,
        })
    };
    if from == to {
        return whole(TypeConversion::Copy);
    }
    match (from, to) {
        (
            ElementType::Array { element, dims, .. },
            ElementType::Array {
                element: to_element,
                dims: to_dims,
                ..
            },
        ) if dims == to_dims => {
            let inner = part(element, to_element)?;
            if inner.offset != 0 || inner.length != element.size() {
                return Err("only HDF5 converts fields of compounds in an array".to_owned());
            }
            whole(inner.values)
        }
        (_, ElementType::Compound { size, fields }) => match fields_of(from) {
            Some(from_fields) => fields_part(&from_fields, fields, *size),
            None => Err(only_hdf5(from, to)),
        },
        (ElementType::Complex(one), ElementType::Complex(other)) => {
            whole(floats(&one.part, &other.part).ok_or_else(|| only_hdf5(from, to))?)
        }
        (ElementType::Float(one), ElementType::Float(other)) => {
            whole(floats(one, other).ok_or_else(|| only_hdf5(from, to))?)
        }
        (ElementType::Bitfield(one), ElementType::Bitfield(other)) if same_bits(one, other) => {
            whole(TypeConversion::Swap { unit: one.size })
        }
        _ => match (number(from), number(to)) {
            (Some(one), Some(other)) if !is_enumeration(to) => {
                whole(TypeConversion::between(one, other))
            }
            _ => Err(only_hdf5(from, to)),
        },
    }
}

/// Returns the range of all wanted fields if they are contiguous in the stored element and have the
/// same conversion.
fn fields_part(from: &[Field], to: &[Field], size: usize) -> Found {
    let mut parts = Vec::new();
    for wanted in to {
        let Some(field) = from.iter().find(|field| field.name == wanted.name) else {
            return Err(format!("the field {:?} is not stored", wanted.name));
        };
        let mut part = part(&field.element, &wanted.element)?;
        part.offset += field.offset;
        parts.push((wanted.offset, part));
    }
    parts.sort_by_key(|(offset, _)| *offset);
    let Some(&(_, first)) = parts.first() else {
        return Err("only HDF5 converts a compound without fields".to_owned());
    };
    let mut covered = 0;
    for (offset, part) in &parts {
        let is_next = *offset == covered && part.offset == first.offset + covered;
        // A field whose size the conversion changes would shift those after it.
        let is_alike =
            part.values == first.values && part.values.size_after(part.length) == part.length;
        if !is_next || parts.len() > 1 && !is_alike {
            return Err("only HDF5 selects and converts several fields of a compound".to_owned());
        }
        covered += part.values.size_after(part.length);
    }
    if covered != size {
        return Err("the compound in memory has gaps, which only HDF5 preserves".to_owned());
    }
    Ok(ElementPart {
        offset: first.offset,
        length: parts.iter().map(|(_, part)| part.length).sum(),
        values: first.values,
    })
}

/// Returns the fields of a compound, or of h5py's complex number, which is stored as one.
fn fields_of(element: &ElementType) -> Option<Vec<Field>> {
    match element {
        ElementType::Compound { fields, .. } => Some(fields.clone()),
        ElementType::Complex(Complex {
            part,
            native: false,
        }) => {
            let field = |name: &str, offset| Field {
                name: name.to_owned(),
                offset,
                element: ElementType::Float(*part),
            };
            Some(vec![field("r", 0), field("i", part.size)])
        }
        _ => None,
    }
}

fn floats(from: &Float, to: &Float) -> Option<TypeConversion> {
    if let (Some(from), Some(to)) = (float_format(from), float_format(to)) {
        return Some(TypeConversion::between(from, to));
    }
    let is_full = from.layout.bits == from.size * 8;
    let is_same = from.size == to.size && from.layout == to.layout;
    match from.order == to.order {
        true if is_same => Some(TypeConversion::Copy),
        false if is_same && is_full && from.size == 16 => Some(TypeConversion::Swap { unit: 16 }),
        _ => None,
    }
}

fn same_bits(one: &Integer, other: &Integer) -> bool {
    one.is_plain() && other.is_plain() && one.size == other.size && matches!(one.size, 2 | 4 | 8)
}

pub(super) fn is_enumeration(element: &ElementType) -> bool {
    matches!(element, ElementType::Boolean(_) | ElementType::Enum(_))
}

/// Returns the machine format of an element, if it is a number. An enumeration counts as its base
/// integer, as in HDF5.
pub(super) fn number(element: &ElementType) -> Option<Format> {
    match element {
        ElementType::Integer(integer)
        | ElementType::Boolean(integer)
        | ElementType::Enum(Enumeration { base: integer, .. }) => integer_format(integer),
        ElementType::Float(float) => float_format(float),
        _ => None,
    }
}

fn integer_format(integer: &Integer) -> Option<Format> {
    let number = match (integer.size, integer.signed) {
        _ if !integer.is_plain() => return None,
        (1, false) => Number::U8,
        (1, true) => Number::I8,
        (2, false) => Number::U16,
        (2, true) => Number::I16,
        (4, false) => Number::U32,
        (4, true) => Number::I32,
        (8, false) => Number::U64,
        (8, true) => Number::I64,
        _ => return None,
    };
    Some(Format {
        number,
        big: integer.order == ByteOrder::Big,
    })
}

fn float_format(float: &Float) -> Option<Format> {
    let number = match float.kind()? {
        FloatKind::F8E4M3 => Number::F8E4M3,
        FloatKind::F8E5M2 => Number::F8E5M2,
        FloatKind::F16 => Number::F16,
        FloatKind::Bf16 => Number::Bf16,
        FloatKind::F32 => Number::F32,
        FloatKind::F64 => Number::F64,
        FloatKind::X87 | FloatKind::F128 => return None,
    };
    Some(Format {
        number,
        big: float.order == ByteOrder::Big,
    })
}

fn only_hdf5(from: &ElementType, to: &ElementType) -> String {
    format!("only HDF5 converts {} to {}", name(from), name(to))
}

pub(super) fn name(element: &ElementType) -> String {
    let order = |order: &ByteOrder| match order {
        ByteOrder::Little => "little-endian",
        ByteOrder::Big => "big-endian",
    };
    match element {
        ElementType::Integer(i) if !i.is_plain() => format!("integers of {} bits", i.bits),
        ElementType::Integer(i) => {
            let sign = if i.signed { "signed" } else { "unsigned" };
            format!("{} {sign} integers of {} bytes", order(&i.order), i.size)
        }
        ElementType::Bitfield(i) => format!("bit fields of {} bytes", i.size),
        ElementType::Float(f) => match f.kind() {
            Some(kind) => format!("{} {kind:?}", order(&f.order)),
            None => format!("floats of {} bits in an unusual format", f.layout.bits),
        },
        ElementType::Complex(c) => format!("complex numbers of {} bytes", c.part.size * 2),
        ElementType::Boolean(_) => "booleans".to_owned(),
        ElementType::Enum(_) => "enumerations".to_owned(),
        ElementType::String { size, .. } => format!("strings of {size} bytes"),
        ElementType::Opaque { size, .. } => format!("opaque elements of {size} bytes"),
        ElementType::Array { element, dims, .. } => {
            format!("arrays {dims:?} of {}", name(element))
        }
        ElementType::Compound { fields, .. } => format!("compounds of {} fields", fields.len()),
        ElementType::OnlyHdf5 { what, .. } => (*what).to_owned(),
    }
}
