//! Conversion of an element's bytes from one type to another.

pub(crate) mod byte_order;
mod check;

use std::ops::Range;

use penstock_array::{ElementMapping, MemorySize};
use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use crate::dataset::{
    ByteOrder, Complex, ElementType, Enumeration, Field, FileType, Float, FloatKind, Integer,
    MemoryType,
};
use crate::library::{Id, Session};

/// The part of an element that is moved, and the conversion of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The part of an element that is moved, and the sizes on both sides.
    pub element: ElementMapping,
    /// The conversion of its numbers.
    pub values: TypeConversion,
}

impl Conversion {
    /// Returns the conversion of a read: from elements that are stored as `stored`, of HDF5's type `from`,
    /// to elements of type `to` in memory. `Err` holds the reason why HDF5 itself must convert them. A
    /// conversion that is returned has been tried on values for which versions and builds of HDF5 differ,
    /// and gives the same results as this HDF5.
    pub fn of_read(
        session: &Session<'_>,
        (from, stored): (hid_t, &FileType),
        to: hid_t,
    ) -> Result<std::result::Result<Conversion, String>> {
        let wanted = MemoryType::read(session, to)?;
        let found = match Conversion::between(stored, &wanted) {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        // HDF5 converts elements in memory, where what it stores elsewhere has another size.
        let in_memory = MemoryType::read(session, from)?;
        let tried = match Part::between(in_memory.form(), wanted.form()) {
            Ok(part) => part,
            Err(reason) => return Ok(Err(reason)),
        };
        let sizes = (in_memory.size(), wanted.size());
        if check::equal(session, from, to)? || check::holds(session, (from, to), &tried, sizes)? {
            return Ok(Ok(found));
        }
        Ok(Err(different(stored.form(), wanted.form())))
    }

    /// Returns what [`of_read`](Self::of_read) does, from the elements of a dataset.
    pub fn from_dataset(
        session: &Session<'_>,
        (dataset, stored): (hid_t, &FileType),
        to: hid_t,
    ) -> Result<std::result::Result<Conversion, String>> {
        let from = type_of(session, dataset)?;
        Conversion::of_read(session, (from.get(), stored), to)
    }

    /// Returns the conversion of a write to the elements of a dataset, as [`of_read`](Self::of_read) that of
    /// a read.
    pub fn to_dataset(
        session: &Session<'_>,
        (dataset, stored): (hid_t, &FileType),
        from: hid_t,
    ) -> Result<std::result::Result<Conversion, String>> {
        let given = MemoryType::read(session, from)?;
        let part = match Part::between(given.form(), stored.form()) {
            Ok(part) => part,
            Err(reason) => return Ok(Err(reason)),
        };
        let to = type_of(session, dataset)?;
        // Elements that HDF5 stores in part elsewhere were refused, and others have one size.
        let sizes = (given.size(), MemorySize(stored.size().0));
        if check::equal(session, from, to.get())?
            || check::holds(session, (from, to.get()), &part, sizes)?
        {
            let element = ElementMapping::of_write(given.size(), part.bytes(), stored.size());
            let values = part.values;
            return Ok(Ok(Conversion { element, values }));
        }
        Ok(Err(different(given.form(), stored.form())))
    }

    /// Returns the conversion of a read by Penstock's own rules, without asking HDF5.
    pub fn between(
        stored: &FileType,
        wanted: &MemoryType,
    ) -> std::result::Result<Conversion, String> {
        let part = Part::between(stored.form(), wanted.form())?;
        Ok(Conversion {
            element: ElementMapping::of_read(stored.size(), part.bytes(), wanted.size()),
            values: part.values,
        })
    }
}

fn different(from: &ElementType, to: &ElementType) -> String {
    let (from, to) = (name(from), name(to));
    format!("this HDF5 converts {from} to {to} differently")
}

/// Returns HDF5's type of the elements of a dataset, as they are in memory.
fn type_of(session: &Session<'_>, dataset: hid_t) -> Result<Id> {
    // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
    let of_elements = unsafe { (session.hdf5.H5Dget_type)(dataset) };
    session.own(of_elements, session.hdf5.H5Tclose, "get the element type")
}

/// A byte range of an element, and its conversion.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    length: usize,
    values: TypeConversion,
}

type Found = std::result::Result<Part, String>;

impl Part {
    /// Returns the part of an element of form `from` that becomes an element of form `to`.
    fn between(from: &ElementType, to: &ElementType) -> Found {
        let part = part(from, to)?;
        match part.values.size_after(part.length) {
            size if size == to.size() && size > 0 => Ok(part),
            _ => Err(only_hdf5(from, to)),
        }
    }

    fn bytes(&self) -> Range<u64> {
        self.offset as u64..(self.offset + self.length) as u64
    }
}

fn part(from: &ElementType, to: &ElementType) -> Found {
    if let Some(what) = to.only_hdf5() {
        return Err(format!("only HDF5 converts {what}"));
    }
    let whole = |values| {
        Ok(Part {
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
    Ok(Part {
        offset: first.offset,
        length: parts.iter().map(|(_, part)| part.length).sum(),
        values: first.values,
    })
}

/// h5py's complex number is also a compound.
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

fn is_enumeration(element: &ElementType) -> bool {
    matches!(element, ElementType::Boolean(_) | ElementType::Enum(_))
}

/// Returns the machine format of an element, if it is a number. An enumeration counts as its base
/// integer, as in HDF5.
fn number(element: &ElementType) -> Option<Format> {
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

fn name(element: &ElementType) -> String {
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
