//! The inflate kernel accesses only its own memory and shared memory, whatever its input.

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

/// The input of the harness.
fn input() -> Vec<u8> {
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

#[test]
fn damaged_streams_pass_the_sanitizers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inflate-harness");
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined"])
        .args(["-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(root.join("../codec/kernels"))
        .arg("-I")
        .arg(root.join("src/kernel"))
        .arg(root.join("tests/inflate/harness.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C++ compiler");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let rounds = env::var("PENSTOCK_CASES").unwrap_or_else(|_| "300".into());
    let mut harness = Command::new(program)
        .arg(rounds)
        // The sanitizer refuses to start after preloaded libraries.
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If the harness ends early, the write fails and stderr says why.
    let _ = harness.stdin.take().unwrap().write_all(&input());
    let done = harness.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}
