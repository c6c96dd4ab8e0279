#![no_main]

use btrfs_disk::key::item_type as t;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spinney_fuzz::item(
    &[
        t::ORPHAN_ITEM,
        t::DIR_LOG_INDEX,
        t::UUID_KEY_SUBVOL,
        t::UUID_KEY_RECEIVED_SUBVOL,
        t::QGROUP_STATUS,
        t::QGROUP_INFO,
        t::QGROUP_LIMIT,
        t::QGROUP_RELATION,
        t::VERITY_DESC_ITEM,
        t::RAID_STRIPE,
        t::TEMPORARY_ITEM
    ],
    data
));
