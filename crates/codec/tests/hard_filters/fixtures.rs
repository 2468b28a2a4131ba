//! Chunks that HDF5 and hdf5plugin wrote.

use crate::common::{
    BLOSC, BLOSC2, NBIT, SCALEOFFSET, SZIP, decode, encode, fixtures, fnv1a, known,
};

/// Decodes all fixtures of this filter with both functions.
fn check_decode(id: u32, at_least: usize) {
    let mut seen = 0;
    for f in fixtures().filter(|f| f.id == id) {
        seen += 1;
        let placed = f.decode().unwrap_or_else(|e| panic!("{}: {e}", f.name));
        assert_eq!(fnv1a(&placed), f.hash, "{} decodes wrongly", f.name);
        let mut appended = Vec::new();
        known(id)
            .decode(&f.values, &f.stored, &mut appended, f.size)
            .unwrap_or_else(|e| panic!("{}: {e}", f.name));
        assert!(appended == placed, "{}: `decode` differs", f.name);
    }
    assert!(seen >= at_least, "only {seen} fixtures");
}

#[test]
fn szip_reads_what_hdf5_wrote() {
    check_decode(SZIP, 20);
}

#[test]
fn nbit_reads_what_hdf5_wrote() {
    check_decode(NBIT, 20);
}

#[test]
fn scaleoffset_reads_what_hdf5_wrote() {
    check_decode(SCALEOFFSET, 55);
}

#[test]
fn blosc_reads_what_hdf5plugin_wrote() {
    check_decode(BLOSC, 30);
}

#[test]
fn blosc2_reads_what_hdf5plugin_wrote() {
    check_decode(BLOSC2, 45);
}

/// The encoded form of n-bit and of scale-offset integers is unique.
#[test]
fn filters_with_a_unique_encoding_write_the_bytes_that_hdf5_writes() {
    let mut seen = 0;
    for f in fixtures() {
        let float = f.id == SCALEOFFSET && f.values[3] == 1;
        if !(f.id == NBIT || f.id == SCALEOFFSET) || float {
            continue;
        }
        seen += 1;
        let stored = encode(f.id, &f.values, &f.decode().unwrap()).unwrap();
        assert!(stored == f.stored, "{} is encoded otherwise", f.name);
    }
    assert!(seen >= 55, "only {seen} fixtures");
}

#[test]
fn all_fixtures_survive_encoding() {
    for f in fixtures() {
        let data = f.decode().unwrap();
        let stored = encode(f.id, &f.values, &data).unwrap_or_else(|e| panic!("{}: {e}", f.name));
        let again =
            decode(f.id, &f.values, &stored, f.size).unwrap_or_else(|e| panic!("{}: {e}", f.name));
        assert!(again == data, "{} is encoded wrongly", f.name);
    }
}

#[test]
fn szip_chunks_are_not_longer_than_those_of_hdf5() {
    for f in fixtures().filter(|f| f.id == SZIP) {
        let stored = encode(f.id, &f.values, &f.decode().unwrap()).unwrap();
        assert!(stored.len() <= f.stored.len(), "{}", f.name);
    }
}
