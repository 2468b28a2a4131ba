//! What is found out about two types, and what it makes of an element, against HDF5's own.

use std::ffi::{c_int, c_void};

use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_hdf5::Conversion;
use penstock_hdf5::dataset::FileType;
use penstock_sys::hdf5::{H5P_DEFAULT, H5T_PERS_HARD, Hdf5, hid_t};

use crate::common::{Setting, lock};
use crate::types::{Type, both_orders};

const F64_BIG: Format = Format::big(Number::F64);
const F32: Format = Format::little(Number::F32);
const I32: Format = Format::little(Number::I32);

fn find(setting: &Setting, from: &Type<'_>, to: &Type<'_>) -> Result<Conversion, String> {
    // SAFETY: the test holds the lock.
    let session = unsafe { setting.session() };
    let stored = FileType::read(&session, from.id, 8).unwrap();
    Conversion::of_read(&session, (from.id, &stored), to.id).unwrap()
}

/// Finds the conversion and does it to elements whose bytes are 1, 2, 3, ..., as HDF5 does.
fn convert(setting: &Setting, from: &Type<'_>, to: &Type<'_>) -> Conversion {
    const COUNT: usize = 5;
    let found = find(setting, from, to).unwrap();
    let [stored, offset, length, memory] = [
        found.element.source,
        found.element.offset,
        found.element.length,
        found.element.target,
    ]
    .map(|size| size as usize);
    let source: Vec<u8> = (1..=255).cycle().take(COUNT * stored).collect();
    let mut ours = vec![0; COUNT * memory];
    for (element, target) in source.chunks(stored).zip(ours.chunks_mut(memory)) {
        found.values.run(&element[offset..offset + length], target);
    }
    let mut theirs = source;
    theirs.resize(COUNT * stored.max(memory), 0);
    let mut background = theirs.clone();
    let data: *mut c_void = theirs.as_mut_ptr().cast();
    // SAFETY: both buffers have room for all elements in either type.
    let status = unsafe {
        let background = background.as_mut_ptr().cast();
        (setting.hdf5.H5Tconvert)(from.id, to.id, COUNT, data, background, H5P_DEFAULT)
    };
    assert!(status >= 0);
    assert_eq!(ours, theirs[..ours.len()]);
    found
}

#[test]
fn all_pairs_of_numbers_are_converted_without_hdf5() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let formats: Vec<Format> = Number::ALL.into_iter().flat_map(both_orders).collect();
    for from in &formats {
        for to in &formats {
            let types = [from, to].map(|format| Type::number(&setting.hdf5, *format));
            let found = find(setting, &types[0], &types[1]);
            let may_differ = setting.hdf5.version().0 == 1
                && !from.number.is_integer()
                && !to.number.is_integer();
            match found {
                Ok(found) => assert_eq!(found.values, TypeConversion::between(*from, *to)),
                Err(reason) => assert!(may_differ, "{from:?} to {to:?}: {reason}"),
            }
        }
    }
}

#[test]
fn what_1_14_rounds_wrongly_is_left_to_it() {
    let Some(locked) = lock() else { return };
    let setting = locked.setting;
    let types = [F64_BIG, F32].map(|format| Type::number(&setting.hdf5, format));
    let found = find(setting, &types[0], &types[1]);
    assert_eq!(found.is_err(), setting.hdf5.version().0 == 1, "{found:?}");
}

#[test]
fn one_field_of_a_compound_is_a_part_of_its_element() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let (wide, narrow) = (Type::number(hdf5, F64_BIG), Type::number(hdf5, I32));
    let inner = Type::compound(hdf5, 13, &[("w", 1, &wide), ("n", 9, &narrow)]);
    let file = Type::compound(hdf5, 20, &[("a", 0, &narrow), ("inner", 5, &inner)]);
    let little = Type::number(hdf5, Format::little(Number::F64));
    let wanted = Type::compound(hdf5, 8, &[("w", 0, &little)]);
    let memory = Type::compound(hdf5, 8, &[("inner", 0, &wanted)]);
    let found = convert(locked.setting, &file, &memory);
    assert_eq!((found.element.offset, found.element.length), (6, 8));
    assert_eq!(found.values, TypeConversion::Swap { unit: 8 });
}

#[test]
fn a_field_is_converted() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let (narrow, wide) = (Type::number(hdf5, I32), Type::number(hdf5, F64_BIG));
    let file = Type::compound(hdf5, 12, &[("a", 0, &wide), ("b", 8, &narrow)]);
    let memory = Type::compound(hdf5, 8, &[("b", 0, &wide)]);
    let found = convert(locked.setting, &file, &memory);
    assert_eq!((found.element.length, found.element.target), (4, 8));
}

#[test]
fn neighbouring_fields_are_one_part() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let number = Type::number(hdf5, I32);
    let fields = [("a", 0, &number), ("b", 4, &number), ("c", 8, &number)];
    let file = Type::compound(hdf5, 12, &fields);
    let memory = Type::compound(hdf5, 8, &[("c", 4, &number), ("b", 0, &number)]);
    let found = convert(locked.setting, &file, &memory);
    assert_eq!((found.element.offset, found.element.length), (4, 8));
    assert_eq!(found.values, TypeConversion::Copy);
}

#[test]
fn fields_that_change_places_or_leave_gaps_are_for_hdf5() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let (number, other) = (Type::number(hdf5, I32), Type::number(hdf5, F64_BIG));
    let file = Type::compound(hdf5, 8, &[("a", 0, &number), ("b", 4, &number)]);
    for memory in [
        Type::compound(hdf5, 8, &[("b", 0, &number), ("a", 4, &number)]),
        Type::compound(hdf5, 12, &[("a", 0, &number), ("b", 8, &number)]),
        Type::compound(hdf5, 6, &[("a", 0, &number)]),
        Type::compound(hdf5, 16, &[("a", 0, &other), ("b", 8, &other)]),
        Type::compound(hdf5, 4, &[("x", 0, &number)]),
    ] {
        let found = find(locked.setting, &file, &memory);
        assert!(found.is_err(), "{found:?}");
    }
}

#[test]
fn parts_of_complex_numbers_are_converted_each() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let complex = |format: Format| {
        let part = Type::number(hdf5, format);
        let size = format.size();
        Type::compound(hdf5, size * 2, &[("r", 0, &part), ("i", size, &part)])
    };
    let single = complex(F32);
    let found = convert(locked.setting, &complex(Format::big(Number::F32)), &single);
    assert_eq!(found.values, TypeConversion::Swap { unit: 4 });
    let found = convert(
        locked.setting,
        &single,
        &complex(Format::little(Number::F64)),
    );
    assert_eq!(found.element.target, 16);
    let imaginary = Type::compound(hdf5, 4, &[("i", 0, &Type::number(hdf5, F32))]);
    let found = convert(locked.setting, &single, &imaginary);
    assert_eq!((found.element.offset, found.element.length), (4, 4));
}

#[test]
fn complex_numbers_of_hdf5s_own_class_are_converted_by_part() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    if hdf5.identifier("H5T_COMPLEX_IEEE_F32LE_g").is_none() {
        eprintln!("skipped: this HDF5 has no complex class");
        return;
    }
    let [big, little, double] =
        ["F32BE", "F32LE", "F64LE"].map(|of| Type::copy(hdf5, &format!("COMPLEX_IEEE_{of}")));
    let found = convert(locked.setting, &big, &little);
    assert_eq!(found.values, TypeConversion::Swap { unit: 4 });
    let found = convert(locked.setting, &little, &double);
    assert_eq!((found.element.length, found.element.target), (8, 16));
}

#[test]
fn bit_fields_change_their_order_but_never_become_numbers() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let [big, little] = ["STD_B16BE", "STD_B16LE"].map(|name| Type::copy(hdf5, name));
    let found = convert(locked.setting, &big, &little);
    assert_eq!(found.values, TypeConversion::Swap { unit: 2 });
    let number = Type::number(hdf5, I32);
    assert!(find(locked.setting, &little, &number).is_err());
}

#[test]
fn arrays_are_converted_number_by_number() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let (big, little) = (
        Type::number(hdf5, Format::big(Number::I16)),
        Type::number(hdf5, F32),
    );
    let found = convert(locked.setting, &big.array(&[2, 3]), &little.array(&[2, 3]));
    assert_eq!((found.element.length, found.element.target), (12, 24));
    assert!(find(locked.setting, &big.array(&[2, 3]), &big.array(&[3, 2])).is_err());
}

#[test]
fn an_enumeration_is_copied_or_becomes_its_number() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let boolean = Type::enumeration(hdf5, &[("FALSE", 0), ("TRUE", 1)]);
    let other = Type::enumeration(hdf5, &[("NO", 0), ("YES", 1)]);
    let number = Type::number(hdf5, I32);
    assert_eq!(
        convert(locked.setting, &boolean, &boolean).values,
        TypeConversion::Copy
    );
    assert_eq!(convert(locked.setting, &other, &number).element.target, 4);
    assert!(find(locked.setting, &boolean, &other).is_err());
    assert!(find(locked.setting, &number, &other).is_err());
}

#[test]
fn strings_of_another_size_are_for_hdf5() {
    let Some(locked) = lock() else { return };
    let hdf5 = &locked.setting.hdf5;
    let (short, long) = (Type::string(hdf5, 3), Type::string(hdf5, 5));
    assert_eq!(
        convert(locked.setting, &short, &short).values,
        TypeConversion::Copy
    );
    let reason = find(locked.setting, &short, &long).unwrap_err();
    assert!(reason.contains("strings of 3 bytes"), "{reason}");
}

unsafe extern "C" fn sevens(
    _: hid_t,
    _: hid_t,
    command: *mut c_int,
    count: usize,
    _: usize,
    _: usize,
    buffer: *mut c_void,
    _: *mut c_void,
    _: hid_t,
) -> c_int {
    const CONVERT: c_int = 1;
    // SAFETY: HDF5 gives a valid command, and with this one a buffer of `count` numbers of 4 bytes.
    unsafe {
        if *command == CONVERT {
            buffer.cast::<u8>().write_bytes(7, count * 4);
        }
    }
    0
}

#[test]
fn a_conversion_that_the_program_has_registered_is_left_to_hdf5() {
    let Some(locked) = lock() else { return };
    let hdf5: &Hdf5 = &locked.setting.hdf5;
    let types = [I32, F32].map(|format| Type::number(hdf5, format));
    let [from, to] = [types[0].id, types[1].id];
    let name = c"sevens".as_ptr();
    assert!(find(locked.setting, &types[0], &types[1]).is_ok());
    // SAFETY: the function has the form that HDF5 requires, and this test holds the lock.
    assert!(unsafe { (hdf5.H5Tregister)(H5T_PERS_HARD, name, from, to, sevens) } >= 0);
    let found = find(locked.setting, &types[0], &types[1]);
    // SAFETY: as above.
    assert!(unsafe { (hdf5.H5Tunregister)(H5T_PERS_HARD, name, from, to, sevens) } >= 0);
    assert!(found.is_err(), "{found:?}");
}
