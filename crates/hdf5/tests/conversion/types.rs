//! Types made by HDF5.

use std::ffi::CString;

use penstock_codec::convert::{Format, Number};
use penstock_sys::hdf5::{H5T_COMPOUND, H5T_ORDER_BE, H5T_ORDER_LE, H5T_STRING, Hdf5, hid_t};

pub fn both_orders(number: Number) -> Vec<Format> {
    let mut formats = vec![Format::little(number)];
    if number.size() > 1 {
        formats.push(Format::big(number));
    }
    formats
}

/// A type, closed when dropped. Made and dropped by a test that holds the lock.
pub struct Type<'a> {
    hdf5: &'a Hdf5,
    pub id: hid_t,
}

impl Drop for Type<'_> {
    fn drop(&mut self) {
        // SAFETY: the identifier is open and ours.
        unsafe { (self.hdf5.H5Tclose)(self.id) };
    }
}

impl<'a> Type<'a> {
    fn own(hdf5: &'a Hdf5, id: hid_t) -> Type<'a> {
        assert!(id > 0);
        Type { hdf5, id }
    }

    /// One of HDF5's own, such as `STD_B16LE`.
    pub fn copy(hdf5: &'a Hdf5, name: &str) -> Type<'a> {
        let base = hdf5.identifier(&format!("H5T_{name}_g")).unwrap();
        // SAFETY: HDF5 checks the identifier.
        Type::own(hdf5, unsafe { (hdf5.H5Tcopy)(base) })
    }

    pub fn number(hdf5: &'a Hdf5, format: Format) -> Type<'a> {
        let made = match format.number {
            Number::U8 => Type::copy(hdf5, "STD_U8LE"),
            Number::I8 => Type::copy(hdf5, "STD_I8LE"),
            Number::U16 => Type::copy(hdf5, "STD_U16LE"),
            Number::I16 => Type::copy(hdf5, "STD_I16LE"),
            Number::U32 => Type::copy(hdf5, "STD_U32LE"),
            Number::I32 => Type::copy(hdf5, "STD_I32LE"),
            Number::U64 => Type::copy(hdf5, "STD_U64LE"),
            Number::I64 => Type::copy(hdf5, "STD_I64LE"),
            Number::F32 => Type::copy(hdf5, "IEEE_F32LE"),
            Number::F64 => Type::copy(hdf5, "IEEE_F64LE"),
            small => Type::copy(hdf5, "IEEE_F32LE").shrunk(small),
        };
        let order = match format.big {
            true => H5T_ORDER_BE,
            false => H5T_ORDER_LE,
        };
        // SAFETY: HDF5 checks the identifier.
        assert!(unsafe { (hdf5.H5Tset_order)(made.id, order) } >= 0);
        made
    }

    fn shrunk(self, to: Number) -> Type<'a> {
        let (exponent, mantissa) = to.float_bits().unwrap();
        let (exponent, mantissa) = (exponent as usize, mantissa as usize);
        let (bits, bias) = (to.size() * 8, (1 << (exponent - 1)) - 1);
        let hdf5 = self.hdf5;
        // SAFETY: HDF5 checks the identifier and the numbers.
        let status = unsafe {
            [
                (hdf5.H5Tset_fields)(self.id, bits - 1, mantissa, exponent, 0, mantissa),
                (hdf5.H5Tset_ebias)(self.id, bias),
                (hdf5.H5Tset_precision)(self.id, bits),
                (hdf5.H5Tset_size)(self.id, bits / 8),
            ]
        };
        assert_eq!(status, [0; 4]);
        self
    }

    pub fn string(hdf5: &'a Hdf5, size: usize) -> Type<'a> {
        // SAFETY: HDF5 checks the numbers.
        Type::own(hdf5, unsafe { (hdf5.H5Tcreate)(H5T_STRING, size) })
    }

    pub fn compound(hdf5: &'a Hdf5, size: usize, fields: &[(&str, usize, &Type<'_>)]) -> Type<'a> {
        // SAFETY: HDF5 checks the numbers.
        let made = Type::own(hdf5, unsafe { (hdf5.H5Tcreate)(H5T_COMPOUND, size) });
        for (name, offset, field) in fields {
            let name = CString::new(*name).unwrap();
            // SAFETY: the name outlives the call, and HDF5 checks the rest.
            let status = unsafe { (hdf5.H5Tinsert)(made.id, name.as_ptr(), *offset, field.id) };
            assert!(status >= 0);
        }
        made
    }

    pub fn array(&self, dims: &[u64]) -> Type<'a> {
        let rank = dims.len() as u32;
        // SAFETY: there are as many sizes as the rank says.
        let id = unsafe { (self.hdf5.H5Tarray_create2)(self.id, rank, dims.as_ptr()) };
        Type::own(self.hdf5, id)
    }

    /// An enumeration of bytes.
    pub fn enumeration(hdf5: &'a Hdf5, members: &[(&str, i8)]) -> Type<'a> {
        let base = Type::number(hdf5, Format::little(Number::I8));
        // SAFETY: HDF5 checks the identifier.
        let made = Type::own(hdf5, unsafe { (hdf5.H5Tenum_create)(base.id) });
        for (name, value) in members {
            let name = CString::new(*name).unwrap();
            let value: *const i8 = value;
            // SAFETY: name and value outlive the call; the value has the size of the base.
            let status = unsafe { (hdf5.H5Tenum_insert)(made.id, name.as_ptr(), value.cast()) };
            assert!(status >= 0);
        }
        made
    }
}
