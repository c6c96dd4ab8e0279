#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::nfs_wire(data));
