#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::backup_manifest(data));
