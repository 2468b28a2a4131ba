//! Compiles the kernels as C++, and links the stand-in with `nodelete`, so that it stays mapped after
//! `dlclose`: its stream threads run until the process ends.

const KERNELS: &str = "../codec/kernels";
const HOST: &str = "src/kernel";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-changed={HOST}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Optimized in debug builds too, since every thread of a launch is one call.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        // Variables of a thread are found without a call where the system can.
        .flag_if_supported("-mtls-dialect=gnu2")
        .include(KERNELS)
        .include(HOST)
        .file(format!("{HOST}/kernel.cpp"))
        .compile("cudasim_kernel");
}
