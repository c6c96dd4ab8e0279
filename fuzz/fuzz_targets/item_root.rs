#![no_main]

use btrfs_disk::key::item_type as t;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::item(&[t::ROOT_ITEM, t::ROOT_REF, t::ROOT_BACKREF], data));
