//! Integers that HDF5 must not convert directly.
//!
//! Between integers of the same size and opposite byte orders without a bit offset, HDF5 (up to 2.2)
//! reverses the bytes, whatever their precisions are: it neither extends the sign nor clips, and keeps
//! the padding bits. It converts correctly between integers of the same byte order, and reverses the
//! bytes correctly between integers that differ in nothing else. Such a conversion therefore takes two
//! steps, by way of the type in memory with the byte order of the file.

use std::ffi::{c_uint, c_void};

use penstock_array::execute::zeroed;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, H5T_COMPOUND, H5T_ORDER_BE, H5T_ORDER_LE, hid_t};

use super::rules::is_enumeration;
use crate::dataset::{ByteOrder, ElementType, Enumeration, Field, FileType, Integer, MemoryType};
use crate::library::{Id, Session};

const PIECE: usize = 1 << 20;

/// Returns the type to transfer the elements in instead of `memory`, if HDF5 converts a part of them
/// wrongly between `memory` and the type `stored`. [`reverse`] converts between it and `memory`.
pub(crate) fn intermediate(
    session: &Session<'_>,
    memory: hid_t,
    stored: &FileType,
) -> Result<Option<Id>> {
    let form = MemoryType::read(session, memory)?;
    if !is_wrong(form.form(), stored.form()) {
        return Ok(None);
    }
    let made = Maker(session).make(memory, form.form(), stored.form());
    made.map(Some)
}

/// Returns whether HDF5 converts a part of elements wrongly between these types.
pub(crate) fn is_unsound(memory: &MemoryType, stored: &FileType) -> bool {
    is_wrong(memory.form(), stored.form())
}

/// Converts dense elements in place between two types of the same size.
pub(crate) fn reverse(
    session: &Session<'_>,
    (from, to): (hid_t, hid_t),
    elements: &mut [u8],
) -> Result<()> {
    // SAFETY: takes an identifier, which HDF5 checks.
    let size = unsafe { (session.hdf5.H5Tget_size)(from) }.max(1);
    let piece = size * (PIECE / size).max(1);
    let length = piece.min(elements.len());
    let mut background = zeroed(length).ok_or_else(|| {
        let text = format!("no memory to reverse {length} bytes");
        Error::new(Kind::Memory, text)
    })?;
    for piece in elements.chunks_mut(piece) {
        let data: *mut c_void = piece.as_mut_ptr().cast();
        let other = background.as_mut_ptr().cast();
        let count = piece.len() / size;
        // SAFETY: both buffers hold as many elements, whose size is the same in both types.
        let status = unsafe {
            let convert = session.hdf5.H5Tconvert;
            convert(from, to, count, data, other, H5P_DEFAULT)
        };
        session.check(status, "reverse the byte order")?;
    }
    Ok(())
}

fn is_wrong(memory: &ElementType, stored: &ElementType) -> bool {
    match (memory, stored) {
        (ElementType::Compound { fields, .. }, ElementType::Compound { fields: others, .. }) => {
            let is_wrong = |field: &Field| {
                named(others, field).is_some_and(|other| is_wrong(&field.element, other))
            };
            fields.iter().any(is_wrong)
        }
        (ElementType::Array { element, .. }, ElementType::Array { element: other, .. }) => {
            is_wrong(element, other)
        }
        // HDF5 converts between enumerations by their names.
        (memory, stored) if is_enumeration(memory) && is_enumeration(stored) => false,
        _ => match (integer(memory), integer(stored)) {
            (Some(one), Some(other)) => {
                let without_shift = one.shift == 0 && other.shift == 0;
                let reversed = one.size == other.size && one.order != other.order;
                without_shift && reversed && one.bits != other.bits
            }
            _ => false,
        },
    }
}

fn named<'a>(fields: &'a [Field], field: &Field) -> Option<&'a ElementType> {
    let same = fields.iter().find(|other| other.name == field.name);
    same.map(|same| &same.element)
}

/// HDF5 converts an enumeration to numbers as its base type.
fn integer(element: &ElementType) -> Option<&Integer> {
    match element {
        ElementType::Integer(integer)
        | ElementType::Bitfield(integer)
        | ElementType::Boolean(integer)
        | ElementType::Enum(Enumeration { base: integer, .. }) => Some(integer),
        _ => None,
    }
}

/// Makes types in memory with the byte order of the file.
struct Maker<'a>(&'a Session<'a>);

impl Maker<'_> {
    /// Returns a copy of the type `id`, of the form `memory`, whose integers have the byte order of
    /// `stored` where HDF5 would convert them wrongly.
    fn make(&self, id: hid_t, memory: &ElementType, stored: &ElementType) -> Result<Id> {
        if !is_wrong(memory, stored) {
            return self.copy(id);
        }
        match (memory, stored) {
            (
                ElementType::Compound { size, fields },
                ElementType::Compound { fields: others, .. },
            ) => self.compound(id, (*size, fields), others),
            (
                ElementType::Array { element, dims, .. },
                ElementType::Array { element: other, .. },
            ) => {
                let base = self.make(self.base(id)?.get(), element, other)?;
                // SAFETY: as many dimensions as are passed; the result is owned.
                let array = unsafe {
                    let create = self.0.hdf5.H5Tarray_create2;
                    create(base.get(), dims.len() as c_uint, dims.as_ptr())
                };
                self.own(array)
            }
            _ if is_enumeration(memory) => self.reversed(self.base(id)?.get(), memory),
            _ => self.reversed(id, memory),
        }
    }

    fn compound(
        &self,
        id: hid_t,
        (size, fields): (usize, &[Field]),
        stored: &[Field],
    ) -> Result<Id> {
        let hdf5 = self.0.hdf5;
        // SAFETY: takes numbers and returns an owned identifier.
        let made = self.own(unsafe { (hdf5.H5Tcreate)(H5T_COMPOUND, size) })?;
        for (number, field) in (0..).zip(fields) {
            // SAFETY: HDF5 checks identifier and index; the result is owned.
            let member = self.own(unsafe { (hdf5.H5Tget_member_type)(id, number) })?;
            let other = named(stored, field).unwrap_or(&field.element);
            let member = self.make(member.get(), &field.element, other)?;
            // SAFETY: the name is HDF5's own, which need not be UTF-8; `take_text` frees it.
            let (status, name) = unsafe {
                let name = (hdf5.H5Tget_member_name)(id, number);
                let insert = hdf5.H5Tinsert;
                let status = insert(made.get(), name, field.offset, member.get());
                (status, name)
            };
            self.0.check(status, "insert a field into a compound")?;
            self.0.take_text(name, "get the name of a field")?;
        }
        Ok(made)
    }

    fn reversed(&self, id: hid_t, memory: &ElementType) -> Result<Id> {
        let made = self.copy(id)?;
        let order = match integer(memory).map(|integer| integer.order) {
            Some(ByteOrder::Big) => H5T_ORDER_LE,
            _ => H5T_ORDER_BE,
        };
        // SAFETY: the type is a copy that only this function has.
        let status = unsafe { (self.0.hdf5.H5Tset_order)(made.get(), order) };
        self.0.check(status, "set the byte order of a type")?;
        Ok(made)
    }

    fn copy(&self, id: hid_t) -> Result<Id> {
        // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
        self.own(unsafe { (self.0.hdf5.H5Tcopy)(id) })
    }

    fn base(&self, id: hid_t) -> Result<Id> {
        // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
        self.own(unsafe { (self.0.hdf5.H5Tget_super)(id) })
    }

    fn own(&self, made: hid_t) -> Result<Id> {
        let close = self.0.hdf5.H5Tclose;
        self.0
            .own(made, close, "make a type with another byte order")
    }
}
