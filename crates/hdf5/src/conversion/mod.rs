//! Conversion of an element's bytes from one type to another.

pub(crate) mod byte_order;
mod check;
mod rules;

use penstock_array::{ElementMapping, MemorySize};
use penstock_codec::convert::{Decode, DecodeRules, TypeConversion};
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::hid_t;

use rules::{ElementPart, name};

use crate::dataset::{ElementType, FileType, MemoryType};
use crate::library::Session;

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
    /// to elements of type `to` in memory; or the reason why HDF5 itself must convert them. The conversion was
    /// tried on values for which versions and builds of HDF5 differ, with the same results as this HDF5.
    pub fn of_read(
        session: &Session<'_>,
        (from, stored): (hid_t, &FileType),
        to: hid_t,
    ) -> Result<std::result::Result<Conversion, String>> {
        // HDF5 converts elements in memory, where what it stores elsewhere has another size.
        let (wanted, in_memory) = (
            MemoryType::read(session, to)?,
            MemoryType::read(session, from)?,
        );
        let tried = ElementPart::between(in_memory.form(), wanted.form());
        let (found, tried) = match (Conversion::between(stored, &wanted), tried) {
            (Ok(found), Ok(tried)) => (found, tried),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        let sizes = (in_memory.size(), wanted.size());
        if session.are_equal(from, to)? || check::holds(session, (from, to), &tried, sizes)? {
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
        let from = session.type_of(dataset)?;
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
        let part = match ElementPart::between(given.form(), stored.form()) {
            Ok(part) => part,
            Err(reason) => return Ok(Err(reason)),
        };
        let to = session.type_of(dataset)?;
        // Elements that HDF5 stores in part elsewhere were refused, and others have one size.
        let sizes = (given.size(), MemorySize(stored.size().0));
        if session.are_equal(from, to.get())?
            || check::holds(session, (from, to.get()), &part, sizes)?
        {
            let element = ElementMapping::of_write(given.size(), part.bytes(), stored.size());
            let values = part.values;
            return Ok(Ok(Conversion { element, values }));
        }
        Ok(Err(different(given.form(), stored.form())))
    }

    /// Returns the conversion of a read that changes nothing.
    pub fn none(stored: &FileType) -> Conversion {
        let size = stored.size();
        Conversion {
            element: ElementMapping::of_read(size, 0..size.0, MemorySize(size.0)),
            values: TypeConversion::Copy,
        }
    }

    /// Returns the conversion of a read that decodes packed numbers.
    ///
    /// # Errors
    /// The numbers in the file or in memory are of a kind for which there is no such conversion.
    pub fn decoded(
        stored: &FileType,
        wanted: &MemoryType,
        rules: DecodeRules,
    ) -> Result<Conversion> {
        let decode = match (rules::number(stored.form()), rules::number(wanted.form())) {
            (Some(from), Some(to)) if !to.big => Decode::new(from, to.number, rules),
            _ => None,
        };
        let values = decode.map(TypeConversion::Decode).ok_or_else(|| {
            let (from, to) = (name(stored.form()), name(wanted.form()));
            Error::invalid(format!("{from} cannot be decoded to {to}"))
        })?;
        let all = 0..stored.size().0;
        Ok(Conversion {
            element: ElementMapping::of_read(stored.size(), all, wanted.size()),
            values,
        })
    }

    /// Returns whether two types have the same kind of number, in whatever byte order.
    pub fn same_numbers(one: &FileType, other: &FileType) -> bool {
        match (rules::number(one.form()), rules::number(other.form())) {
            (Some(one), Some(other)) => one.number == other.number,
            _ => false,
        }
    }

    /// Returns the conversion of a read by Penstock's own rules, without asking HDF5.
    pub fn between(
        stored: &FileType,
        wanted: &MemoryType,
    ) -> std::result::Result<Conversion, String> {
        let part = ElementPart::between(stored.form(), wanted.form())?;
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
