//! Compiles the kernels as C++, and links the stand-in with `nodelete`, so that it stays mapped after
//! `dlclose`: its stream threads run until the process ends.

const KERNELS: &str = "../codec/kernels";
const HOST: &str = "src/kernel";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-changed={HOST}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    compile("cudasim_kernel", &[]);
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        compile("cudasim_warp_kernel", &["CUDASIM_WARP"]);
    }
}

fn compile(library: &str, definitions: &[&str]) {
    let mut build = cc::Build::new();
    for definition in definitions {
        build.define(definition, None);
    }
    // Optimized in debug builds too, since every thread of a launch is one call.
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-ffp-contract=off")
        // Variables of a thread are found without a call where the system can.
        .flag_if_supported("-mtls-dialect=gnu2")
        .include(KERNELS)
        .include(HOST)
        .file(format!("{HOST}/kernel.cpp"))
        .compile(library);
}
