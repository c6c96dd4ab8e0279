#![no_main]

use btrfs_disk::key::item_type as t;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::item(&[t::DIR_ITEM, t::DIR_INDEX, t::XATTR_ITEM], data));
