//! Headers of safetensors files in the form in which the format's own library writes them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

/// Data type and shape as text, which many tensors of a file share.
type Kind<'a> = (&'a str, &'a [u8]);

/// Return the tensors that a header lists: tuples of name, data type, shape, and offsets in the file
/// of the first byte and behind the last one.
///
/// `None` stands for a header in another form, valid or not. A name may occur twice.
///
/// Args:
///     text: The JSON of the header.
///     start: Where in the text the name of the first tensor begins.
///     begin: The offset in the file of the first tensor.
///     bits: The bits of an element of each data type.
#[pyfunction]
pub(crate) fn canonical_tensors<'py>(
    text: &[u8],
    start: usize,
    begin: u64,
    bits: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = bits.py();
    let mut scanner = Scanner(text.get(start..).unwrap_or_default());
    let mut kinds: HashMap<Kind<'_>, (Bound<'_, PyTuple>, u64)> = HashMap::new();
    let tensors = PyList::empty(py);
    let mut end = begin;
    loop {
        let Some(found) = scanner.tensor() else {
            return Ok(None);
        };
        let (kind, nbytes) = match kinds.entry((found.dtype, found.lengths)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match kind_of(*place.key(), bits)? {
                Some(kind) => place.insert(kind),
                None => return Ok(None),
            },
        };
        let first = begin.checked_add(found.start);
        let last = begin.checked_add(found.stop);
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(None);
        };
        if first != end || end.checked_add(*nbytes) != Some(last) {
            return Ok(None);
        }
        end = last;
        let (dtype, shape) = (kind.get_item(0)?, kind.get_item(1)?);
        tensors.append((found.name, dtype, shape, first, last))?;
        match scanner.0.split_first() {
            Some((b',', rest)) => scanner.0 = rest,
            Some((b'}', rest)) if rest.iter().all(|byte| *byte == b' ') => break,
            _ => return Ok(None),
        }
    }
    Ok(Some(tensors))
}

/// Returns data type and shape of a kind, and the bytes of a tensor; `None` if it is not valid.
fn kind_of<'py>(
    (dtype, lengths): Kind<'_>,
    bits: &Bound<'py, PyDict>,
) -> PyResult<Option<(Bound<'py, PyTuple>, u64)>> {
    let dtype = PyString::intern(bits.py(), dtype);
    let Some(bits_of_one) = bits.get_item(&dtype)? else {
        return Ok(None);
    };
    let mut shape = Vec::new();
    let mut count = Some(bits_of_one.extract::<u64>()?);
    let mut scanner = Scanner(lengths);
    while !lengths.is_empty() {
        let Some(length) = scanner.number() else {
            return Ok(None);
        };
        shape.push(length);
        count = count.and_then(|count| count.checked_mul(length));
        match scanner.0.split_first() {
            Some((b',', rest)) => scanner.0 = rest,
            Some(_) => return Ok(None),
            None => break,
        }
    }
    let Some(count) = count.filter(|count| count % 8 == 0) else {
        return Ok(None);
    };
    let kind = (dtype, PyTuple::new(bits.py(), shape)?);
    Ok(Some((kind.into_pyobject(bits.py())?, count / 8)))
}

/// A tensor as a header describes it.
struct Described<'a> {
    name: &'a str,
    dtype: &'a str,
    lengths: &'a [u8],
    /// Offsets behind the header of the first byte, and behind the last one.
    start: u64,
    stop: u64,
}

/// What is left of a text.
struct Scanner<'a>(&'a [u8]);

impl<'a> Scanner<'a> {
    fn tensor(&mut self) -> Option<Described<'a>> {
        self.literal(b"\"")?;
        let name = self.string()?;
        self.literal(b":{\"dtype\":\"")?;
        let dtype = self.string()?;
        self.literal(b",\"shape\":[")?;
        let length = self.0.iter().position(|byte| *byte == b']')?;
        let (lengths, rest) = self.0.split_at(length);
        self.0 = rest;
        self.literal(b"],\"data_offsets\":[")?;
        let start = self.number()?;
        self.literal(b",")?;
        let stop = self.number()?;
        self.literal(b"]}")?;
        Some(Described {
            name,
            dtype,
            lengths,
            start,
            stop,
        })
    }

    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Returns the text up to the next quotation mark, without escapes.
    fn string(&mut self) -> Option<&'a str> {
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let (text, rest) = self.0.split_at(self.0.iter().position(ends)?);
        self.0 = rest.strip_prefix(b"\"")?;
        str::from_utf8(text).ok()
    }

    /// Returns a number of JSON that has neither sign, fraction nor exponent.
    fn number(&mut self) -> Option<u64> {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let length = self.0.iter().take_while(|byte| is_digit(byte)).count();
        let (digits, rest) = self.0.split_at(length);
        if digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        self.0 = rest;
        str::from_utf8(digits).ok()?.parse().ok()
    }
}
