#![no_main]

use btrfs_disk::key::item_type as t;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::item(
    &[t::EXTENT_ITEM, t::METADATA_ITEM, t::EXTENT_DATA_REF, t::TREE_BLOCK_REF, t::SHARED_BLOCK_REF, t::SHARED_DATA_REF],
    data
));
