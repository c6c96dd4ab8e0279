//! Lists the cases, by the numbers that the tests have in btrfs-progs 6.19, and then by the names of the callers.

use super::Does::{Not, Run};
use super::{Case, callers, contents, layout};

const fn case(name: &'static str, does: super::Does) -> Case {
    Case { name, does }
}

const ZONED: &str = "zoned devices are refused by name";
const EXPERIMENTAL: &str = "an experimental feature, refused by name";
const MAPPER: &str = "about the device mapper below; nothing is asked of the device but its size";

pub(super) const CASES: &[Case] = &[
    case("001 profiles", Run(layout::profiles)),
    case("002 no mixed groups on small volumes", Run(layout::no_mixed_by_default)),
    case("003 mixed groups need small nodes", Run(layout::mixed_needs_small_nodes)),
    case("004 contents keep the size of the image", Run(contents::keeps_size)),
    case("005 long device name", Not(MAPPER)),
    case("006 partitions of a loop device", Run(layout::part_of_a_file)),
    case("007 node and sector sizes", Run(layout::node_sizes)),
    case("008 invalid sizes", Run(layout::invalid_sizes)),
    case("009 special files", Run(contents::special_files)),
    case("010 minimal size", Run(layout::minimal_size)),
    case("011 contents make the file", Run(contents::makes_file)),
    case("012 shrink only if asked", Run(contents::shrinks_if_asked)),
    case("013 first MiB is reserved", Run(layout::first_mib_is_reserved)),
    case("014 inline extents", Run(contents::inline_extents)),
    case("015 UUID and time of the top level", Run(layout::top_level_has_uuid)),
    case("016 dangling symbolic links", Run(contents::dangling_links)),
    case("017 thin devices", Not(MAPPER)),
    case("018 sum of the devices overflows", Run(layout::sum_overflows)),
    case("019 checksums", Run(layout::checksums)),
    case("020 checksums, mounted", Run(layout::checksums_mounted)),
    case("021 quota with contents", Run(layout::quota_is_refused)),
    case("022 contents near the size", Run(contents::near_the_size)),
    case("023 free-space tree", Run(layout::free_space_tree)),
    case("024 no bitmaps in an empty volume", Run(layout::no_bitmaps)),
    case("025 zoned devices, in parallel", Not(ZONED)),
    case("026 block-group tree converted", Run(layout::converted_groups)),
    case("027 attributes of the top directory", Run(contents::top_attributes)),
    case("028 block-group tree", Run(layout::block_group_tree)),
    case("029 raid-stripe tree", Not(EXPERIMENTAL)),
    case("030 zoned with raid-stripe tree", Not(ZONED)),
    case("031 zoned with block-group tree", Not(ZONED)),
    case("032 zones are reset", Not(ZONED)),
    case("033 zoned refuses raid-stripe tree", Not(ZONED)),
    case("034 hard links that lead out", Run(contents::outside_links)),
    case("035 equal inode numbers", Run(contents::equal_inode_numbers)),
    case("036 subvolumes", Run(contents::subvolumes)),
    case("037 compression", Run(contents::compression)),
    case("038 inode flags", Run(contents::inode_flags)),
    case("039 zoned profiles", Not(ZONED)),
    case("040 remap tree", Not(EXPERIMENTAL)),
    case("systemd-repart, with contents", Run(callers::repart)),
    case("systemd-repart, on a locked device", Run(callers::repart_on_device)),
    case("mkosi", Run(callers::mkosi)),
    case("osbuild", Run(callers::osbuild)),
    case("disko", Run(callers::disko)),
    case("kiwi", Run(callers::kiwi)),
    case("genimage", Run(callers::genimage)),
];
