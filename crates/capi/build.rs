//! Gives the library its soname, so that what links to it finds it under that name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpenstock.so");
    // Threads of the library run until the process ends: it must never be unmapped under them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
