//! How often tests repeat what they do. PENSTOCK_CASES sets a long run, or a quick one.

// Not each test program uses both.
#![allow(dead_code)]

/// Cases of a property whose cases are alike: PENSTOCK_CASES, or as many as usual.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PENSTOCK_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

/// As often as usual, or more often in a long run: if PENSTOCK_CASES is set.
pub fn or_more<T>(usual: T, more: T) -> T {
    std::env::var_os("PENSTOCK_CASES").map_or(usual, |_| more)
}
