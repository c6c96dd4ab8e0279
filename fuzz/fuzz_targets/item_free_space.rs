#![no_main]

use btrfs_disk::key::item_type as t;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::item(
    &[t::FREE_SPACE_INFO, t::FREE_SPACE_EXTENT, t::FREE_SPACE_BITMAP],
    data
));
