//! Sets the soname of the library, and keeps it mapped after `dlclose`.

use std::fs;

const HEADER: &str = "include/penstock.h";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={HEADER}");
    // A program that is linked with another version of the interface must not start.
    let header = fs::read_to_string(HEADER).expect("the header can be read");
    let version = header
        .lines()
        .find_map(|line| line.strip_prefix("#define PENSTOCK_API_VERSION "))
        .expect("the header has PENSTOCK_API_VERSION");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpenstock.so.{version}");
    // Threads of the library run until the process ends, so it must never be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
