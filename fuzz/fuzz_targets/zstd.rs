#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| penstock_codec::fuzz::fuzz_filter(32015, data));
