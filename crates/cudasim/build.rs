//! Compiles the kernels as C++, and keeps the stand-in in memory after `dlclose`: its stream threads
//! run until the process ends.

const KERNELS: &str = "../codec/kernels";
const TWIN: &str = "src/twin";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-changed={TWIN}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Optimised in debug builds too: every thread of a launch is one call.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .include(KERNELS)
        .include(TWIN)
        .file(format!("{TWIN}/twin.cpp"))
        .compile("cudasim_twin");
}
