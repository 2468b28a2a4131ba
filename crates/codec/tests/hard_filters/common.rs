//! The chunks that scripts/make-hard-fixtures.py stores.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use penstock_codec::CodecError;
use penstock_codec::filters::{Codec, codec};

pub const SZIP: u32 = 4;
pub const NBIT: u32 = 5;
pub const SCALEOFFSET: u32 = 6;
pub const BLOSC: u32 = 32001;
pub const BLOSC2: u32 = 32026;
pub const ALL: [u32; 5] = [SZIP, NBIT, SCALEOFFSET, BLOSC, BLOSC2];

pub struct Fixture {
    pub name: String,
    pub id: u32,
    pub values: Vec<u32>,
    /// The size of the decoded chunk in bytes, and its hash.
    pub size: usize,
    pub hash: u64,
    pub stored: Vec<u8>,
}

impl Fixture {
    pub fn decode(&self) -> Result<Vec<u8>, CodecError> {
        decode(self.id, &self.values, &self.stored, self.size)
    }
}

pub fn known(id: u32) -> &'static dyn Codec {
    codec(id).expect("a filter of this crate")
}

pub fn decode(id: u32, values: &[u32], stored: &[u8], size: usize) -> Result<Vec<u8>, CodecError> {
    let mut output = vec![0xee; size];
    known(id).decode_into(values, stored, &mut output)?;
    Ok(output)
}

pub fn encode(id: u32, values: &[u32], data: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut output = Vec::new();
    known(id).encode(values, data, &mut output)?;
    Ok(output)
}

pub fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hard_chunks")
}

fn parse(line: &str) -> Fixture {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, id, values, size, hash] = fields[..] else {
        panic!("a line of chunks.tsv does not have five fields: {line}");
    };
    Fixture {
        name: name.into(),
        id: id.parse().unwrap(),
        values: values.split(',').map(|v| v.parse().unwrap()).collect(),
        size: size.parse().unwrap(),
        hash: hash.parse().unwrap(),
        stored: std::fs::read(folder().join(format!("{name}.bin"))).unwrap(),
    }
}

static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(|| {
    let table = std::fs::read_to_string(folder().join("chunks.tsv")).unwrap();
    table.lines().map(parse).collect()
});

pub fn fixtures() -> impl Iterator<Item = &'static Fixture> {
    FIXTURES.iter()
}

pub fn fixture(name: &str) -> &'static Fixture {
    let found = fixtures().find(|f| f.name == name);
    found.unwrap_or_else(|| panic!("no fixture {name}"))
}
