//! Chunks that scripts/make-codec-fixtures.py wrote with h5py and hdf5plugin.

use std::path::{Path, PathBuf};

use crate::common::{noise, sample};
use penstock_codec::{Filter, Pipeline, Scratch};

struct Fixture {
    name: String,
    data: Vec<u8>,
    mask: u32,
    pipeline: Pipeline,
    stored: Vec<u8>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn parse(line: &str) -> Fixture {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, kind, count, size, mask, filters @ ..] = fields.as_slice() else {
        panic!("a line of chunks.tsv has too few fields: {line}");
    };
    let (count, size) = (count.parse().unwrap(), size.parse().unwrap());
    let data = match *kind {
        "sample" => sample(count, size),
        "noise" => noise(count, size),
        "zeros" => vec![0; count * size],
        "ones" => vec![255; count * size],
        other => panic!("unknown data {other}"),
    };
    let filters = filters.iter().map(|text| {
        let parts: Vec<&str> = text.split(':').collect();
        let values = parts[2].split(',').filter(|value| !value.is_empty());
        Filter {
            id: parts[0].parse().unwrap(),
            optional: parts[1] == "1",
            values: values.map(|value| value.parse().unwrap()).collect(),
        }
    });
    Fixture {
        name: name.to_string(),
        data,
        mask: mask.parse().unwrap(),
        pipeline: Pipeline {
            filters: filters.collect(),
        },
        stored: std::fs::read(folder().join(format!("{name}.bin"))).unwrap(),
    }
}

fn fixtures() -> Vec<Fixture> {
    let table = std::fs::read_to_string(folder().join("chunks.tsv")).unwrap();
    table.lines().map(parse).collect()
}

/// Decodes all fixtures with this filter.
fn check_decode(id: u32, at_least: usize) {
    let mut scratch = Scratch::default();
    let mut seen = 0;
    for fixture in fixtures() {
        if !fixture.pipeline.filters.iter().any(|f| f.id == id) {
            continue;
        }
        seen += 1;
        let mut output = vec![0xee; fixture.data.len()];
        fixture
            .pipeline
            .decode(fixture.mask, &fixture.stored, &mut output, &mut scratch)
            .unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
        assert!(output == fixture.data, "{} decodes wrongly", fixture.name);
    }
    assert!(seen >= at_least, "only {seen} fixtures");
}

#[test]
fn deflate_reads_what_h5py_wrote() {
    check_decode(1, 7);
}

#[test]
fn shuffle_reads_what_h5py_wrote() {
    check_decode(2, 9);
}

#[test]
fn fletcher32_reads_what_h5py_wrote() {
    check_decode(3, 8);
}

#[test]
fn lzf_reads_what_h5py_wrote() {
    check_decode(32000, 6);
}

#[test]
fn lz4_reads_what_hdf5plugin_wrote() {
    check_decode(32004, 4);
}

#[test]
fn bitshuffle_reads_what_hdf5plugin_wrote() {
    check_decode(32008, 20);
}

#[test]
fn zstd_reads_what_hdf5plugin_wrote() {
    check_decode(32015, 5);
}

/// The encoded form of shuffle, checksum and bit planes is unique; that of compressors is not.
#[test]
fn filters_with_a_unique_encoding_write_the_bytes_that_hdf5_writes() {
    let mut scratch = Scratch::default();
    let mut seen = 0;
    for fixture in fixtures() {
        let fixed = |f: &Filter| matches!(f.id, 2 | 3) || f.id == 32008 && f.values[4] == 0;
        if !fixture.pipeline.filters.iter().all(fixed) {
            continue;
        }
        seen += 1;
        let (stored, mask) = fixture
            .pipeline
            .encode(&fixture.data, &mut scratch)
            .unwrap();
        assert!(
            stored == fixture.stored,
            "{} is encoded otherwise",
            fixture.name
        );
        assert_eq!(mask, fixture.mask, "{}", fixture.name);
    }
    assert!(seen >= 20, "only {seen} fixtures");
}

#[test]
fn all_fixtures_survive_encoding() {
    let mut scratch = Scratch::default();
    for fixture in fixtures() {
        let (stored, mask) = fixture
            .pipeline
            .encode(&fixture.data, &mut scratch)
            .unwrap();
        let mut output = vec![0xee; fixture.data.len()];
        fixture
            .pipeline
            .decode(mask, &stored, &mut output, &mut scratch)
            .unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
        assert!(
            output == fixture.data,
            "{} is encoded wrongly",
            fixture.name
        );
    }
}
