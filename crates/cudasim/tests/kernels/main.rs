//! The kernels access only their own memory and shared memory, whatever their input.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use libdeflater::{CompressionLvl, Compressor};

/// Bytes without a pattern.
fn noise(length: usize) -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..length).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

fn data() -> Vec<Vec<u8>> {
    let text = b"the water falls through the penstock onto the turbine; ";
    vec![
        vec![],
        vec![1],
        vec![0; 3000],
        text.iter().copied().cycle().take(2000).collect(),
        noise(1500).collect(),
        noise(4000).map(|byte| byte.leading_zeros() as u8).collect(),
        noise(3000).map(|byte| byte & 0x1f).collect(),
        (0..5000_u32).map(|i| (i / 3 % 7 * 40) as u8).collect(),
    ]
}

/// Streams and what they decode to.
fn streams() -> Vec<u8> {
    let mut input = Vec::new();
    for level in [0, 1, 6, 12] {
        let mut encoder = Compressor::new(CompressionLvl::new(level).unwrap());
        for data in data() {
            let mut stream = vec![0; encoder.deflate_compress_bound(data.len())];
            let length = encoder.deflate_compress(&data, &mut stream).unwrap();
            input.extend((length as u32).to_ne_bytes());
            input.extend((data.len() as u32).to_ne_bytes());
            input.extend(&stream[..length]);
            input.extend(data);
        }
    }
    input
}

/// Chunks of many lengths, around the ends of words, tiles and segments.
fn chunks() -> Vec<u8> {
    let mut input = Vec::new();
    for length in [1, 7, 8, 9, 31, 33, 300, 32_767, 32_768, 32_769, 70_000] {
        for data in data().into_iter().filter(|data| !data.is_empty()) {
            input.extend((length as u32).to_ne_bytes());
            input.extend(data.iter().cycle().take(length));
        }
    }
    input.extend(100_000_u32.to_ne_bytes());
    input.extend(noise(100_000));
    input
}

/// Compiles a harness with the sanitizers, and runs it on this input.
fn passes_the_sanitizers(name: &str, arguments: &[String], input: &[u8]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined"])
        .args(["-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(root.join("../codec/kernels"))
        .arg("-I")
        .arg(root.join("src/kernel"))
        .arg(root.join("tests/kernels").join(name).with_extension("cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C++ compiler");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let mut harness = Command::new(program)
        .args(arguments)
        // The sanitizer refuses to start after preloaded libraries.
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If the harness ends early, the write fails and stderr says why.
    let _ = harness.stdin.take().unwrap().write_all(input);
    let done = harness.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

#[test]
fn damaged_streams_are_decoded_without_an_illegal_access() {
    let rounds = env::var("PENSTOCK_CASES").unwrap_or_else(|_| "300".into());
    passes_the_sanitizers("inflate", &[rounds], &streams());
}

#[test]
fn chunks_are_encoded_without_an_illegal_access() {
    passes_the_sanitizers("deflate", &[], &chunks());
}
