//! Parses the list of features of `mkfs -O` for btrfs, by the names that mkfs.btrfs gives them, and prints the list of
//! known ones. Called by `mkfs` of btrfs.

use std::io::Write as _;

use anyhow::Result;
use spinney::btrfs::disk::flags::{CompatRo, Incompat};
use spinney::btrfs::store::MakeOptions;

use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;

/// The flags or option that a feature's name stands for.
#[derive(Clone, Copy)]
enum Bits {
    Incompat(Incompat),
    CompatRo(CompatRo),
    /// The option `--mixed`.
    Mixed,
    /// A known feature that this program cannot make.
    Unsupported,
}

struct Feature {
    name: &'static str,
    bits: Bits,
    about: &'static str,
}

const fn feature(name: &'static str, bits: Bits, about: &'static str) -> Feature {
    Feature { name, bits, about }
}

const FEATURES: &[Feature] = &[
    feature("mixed-bg", Bits::Mixed, "data and metadata share block groups"),
    feature("extref", Bits::Incompat(Incompat::EXTENDED_IREF), "many hard links to one file"),
    feature("skinny-metadata", Bits::Incompat(Incompat::SKINNY_METADATA), "small metadata items"),
    feature("no-holes", Bits::Incompat(Incompat::NO_HOLES), "no items for holes in files"),
    feature(
        "free-space-tree",
        Bits::CompatRo(CompatRo::FREE_SPACE_TREE.union(CompatRo::FREE_SPACE_TREE_VALID)),
        "free space kept in a tree",
    ),
    feature("fst", Bits::CompatRo(CompatRo::FREE_SPACE_TREE.union(CompatRo::FREE_SPACE_TREE_VALID)), "the same"),
    feature(
        "block-group-tree",
        Bits::CompatRo(CompatRo::BLOCK_GROUP_TREE),
        "block groups in a tree of their own, for fast mounting",
    ),
    feature("bgt", Bits::CompatRo(CompatRo::BLOCK_GROUP_TREE), "the same"),
    feature("quota", Bits::Unsupported, "quotas"),
    feature("squota", Bits::Unsupported, "simple quotas"),
    feature("raid56", Bits::Unsupported, "RAID5 and RAID6"),
    feature("raid1c34", Bits::Unsupported, "three or four copies"),
    feature("zoned", Bits::Unsupported, "zoned devices"),
    feature("raid-stripe-tree", Bits::Unsupported, "tree of RAID stripes"),
];

/// Changes `make` as a list such as `^no-holes,mixed-bg` says.
///
/// # Errors
/// Unknown names, features that Spinney cannot make, and features whose prerequisites are left out.
pub(super) fn apply(list: &[String], make: &mut MakeOptions) -> Result<()> {
    for word in list.iter().flat_map(|words| words.split(',')).filter(|word| !word.is_empty()) {
        let (name, is_on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let Some(feature) = FEATURES.iter().find(|feature| feature.name == name) else {
            let text = format!("-O {name}: no such feature; `-O list-all` shows them");
            return Err(Failure::usage(text).into());
        };
        match feature.bits {
            Bits::Incompat(bits) => make.incompat.set(bits, is_on),
            Bits::CompatRo(bits) => make.compat_ro.set(bits, is_on),
            Bits::Mixed => make.mixed = is_on,
            Bits::Unsupported if is_on => {
                let text = format!("-O {name}: not supported");
                return Err(Failure::new(Status::Unsupported, text).into());
            }
            Bits::Unsupported => {}
        }
    }
    check(make)
}

fn check(make: &MakeOptions) -> Result<()> {
    let needs = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
    let has_needs = make.compat_ro.contains(needs) && make.incompat.contains(Incompat::NO_HOLES);
    if make.compat_ro.contains(CompatRo::BLOCK_GROUP_TREE) && !has_needs {
        let text = "-O: block-group-tree needs free-space-tree and no-holes; \
                    add ^block-group-tree to leave it out";
        return Err(Failure::usage(text).into());
    }
    Ok(())
}

/// True if the list asks for the known features.
pub(super) fn asks_for_list(list: &[String]) -> bool {
    list.iter().any(|word| word == "list-all")
}

/// Writes the table of features.
pub(super) fn print_list(out: &mut Output) -> Result<()> {
    let default = MakeOptions::default();
    for feature in FEATURES {
        let state = match feature.bits {
            Bits::Incompat(bits) if default.incompat.contains(bits) => " (default)",
            Bits::CompatRo(bits) if default.compat_ro.contains(bits) => " (default)",
            Bits::Unsupported => " (not supported)",
            _ => "",
        };
        writeln!(out, "{:<18} {}{state}", feature.name, feature.about)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(list: &str) -> Result<MakeOptions> {
        let mut make = MakeOptions::default();
        apply(&[list.to_owned()], &mut make).map(|()| make)
    }

    #[test]
    fn features_are_switched_by_name() {
        let make = applied("^block-group-tree,^no-holes,mixed-bg").unwrap();
        assert!(make.mixed);
        assert!(!make.incompat.contains(Incompat::NO_HOLES));
        assert!(!make.compat_ro.contains(CompatRo::BLOCK_GROUP_TREE));
        assert!(applied("^no-holes").is_err());
        assert!(applied("nonsense").is_err());
        assert!(applied("raid56").is_err());
        assert!(applied("^raid56").is_ok());
    }
}
