//! Lists the passes of a check, in their order, with the passes that each needs. Used by `run` and the command line.

use checking::{PassInfo, PassTable};

/// One part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Superblocks, their mirrors and the backup roots.
    Super,
    /// Chunks, device extents, block groups and devices.
    Chunks,
    /// Every tree block, on every mirror.
    Trees,
    /// Extent items against the references that trees hold.
    Extents,
    /// Free space, and the used bytes of block groups.
    Space,
    /// Coverage of data by checksums.
    Csums,
    /// Inodes, names, file extents.
    Files,
    /// Subvolumes and their parents, directories and UUIDs.
    Roots,
    /// The numbers of quota groups.
    Quota,
    /// The log of fsyncs.
    Log,
    /// All data: checksums on every mirror, and decompression.
    Data,
}

const fn info(pass: Pass, id: &'static str, needs: &'static [Pass], about: &'static str) -> PassInfo<Pass> {
    PassInfo { pass, id, needs, about }
}

const TABLE: &[PassInfo<Pass>] = &[
    info(Pass::Super, "super", &[], "the superblock, its mirrors and its backup roots"),
    info(
        Pass::Chunks,
        "chunks",
        &[Pass::Super],
        "chunks, device extents, block groups and devices, against each other",
    ),
    info(
        Pass::Trees,
        "trees",
        &[Pass::Chunks],
        "every block of every tree, on every mirror: checksum, identity, keys, each item's own rules",
    ),
    info(
        Pass::Extents,
        "extents",
        &[Pass::Trees],
        "extent items against the references that the trees hold, both ways",
    ),
    info(
        Pass::Space,
        "space",
        &[Pass::Extents],
        "free space, block groups' and the superblock's usage, against extents",
    ),
    info(Pass::Csums, "csums", &[Pass::Files], "whether data has checksums where it should, and only there"),
    info(
        Pass::Files,
        "files",
        &[Pass::Extents],
        "inodes: names both ways, link counts, sizes, file extents, holes, orphans",
    ),
    info(Pass::Roots, "roots", &[Pass::Files], "subvolumes: references both ways, UUID tree, deletions"),
    info(Pass::Quota, "quota", &[Pass::Extents], "quota groups' numbers against what is counted"),
    info(Pass::Log, "log", &[Pass::Extents], "the log of fsyncs, if a crash left one"),
    info(
        Pass::Data,
        "data",
        &[Pass::Csums],
        "all data against its checksums, on every mirror, and compressed data decompressed (only with --data)",
    ),
];

impl PassTable for Pass {
    fn all() -> &'static [PassInfo<Self>] {
        TABLE
    }
}

impl Pass {
    /// These passes and all that they need; every pass but [`Pass::Data`] where none is named.
    #[must_use]
    pub fn with_needs(named: &[Self]) -> Vec<Self> {
        Self::and_needs(match named {
            [] => TABLE.iter().map(|info| info.pass).filter(|pass| *pass != Self::Data).collect(),
            named => named.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_come_along() {
        assert_eq!(Pass::with_needs(&[Pass::Super]), [Pass::Super]);
        let space = Pass::with_needs(&[Pass::Space]);
        assert_eq!(space, [Pass::Super, Pass::Chunks, Pass::Trees, Pass::Extents, Pass::Space]);
        assert!(!Pass::with_needs(&[]).contains(&Pass::Data));
        assert_eq!(Pass::from_id("roots"), Some(Pass::Roots));
    }
}
