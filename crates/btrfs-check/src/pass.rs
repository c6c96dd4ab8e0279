//! The passes: what is looked at, in which order, and what each needs.

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
    /// Free space and what block groups say is in use.
    Space,
    /// Coverage of data by checksums.
    Csums,
    /// Inodes, names, file extents.
    Files,
    /// Subvolumes and how they hang together.
    Roots,
    /// The numbers of quota groups.
    Quota,
    /// What an fsync left in a log.
    Log,
    /// The data itself against its checksums, on every mirror.
    Data,
}

/// What is said of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassInfo {
    /// The pass.
    pub pass: Pass,
    /// Its name, which does not change from version to version.
    pub id: &'static str,
    /// Passes that run before it.
    pub needs: &'static [Pass],
    /// What it looks at, one line.
    pub about: &'static str,
}

const fn info(pass: Pass, id: &'static str, needs: &'static [Pass], about: &'static str) -> PassInfo {
    PassInfo { pass, id, needs, about }
}

const TABLE: &[PassInfo] = &[
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
    info(Pass::Data, "data", &[Pass::Csums], "all data against its checksums, on every mirror (only with --data)"),
];

impl Pass {
    /// Every pass, in the order in which they report.
    #[must_use]
    pub fn all() -> &'static [PassInfo] {
        TABLE
    }

    /// The pass with this name.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        TABLE.iter().find(|info| info.id == id).map(|info| info.pass)
    }

    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        TABLE.iter().find(|info| info.pass == self).map_or("", |info| info.id)
    }

    /// These passes and all that they need; every pass but [`Pass::Data`] where none is named.
    #[must_use]
    pub fn with_needs(named: &[Self]) -> Vec<Self> {
        let mut wanted: Vec<Self> = if named.is_empty() {
            TABLE.iter().map(|info| info.pass).filter(|pass| *pass != Self::Data).collect()
        } else {
            named.to_vec()
        };
        // A need may have needs of its own.
        loop {
            let needs = TABLE.iter().filter(|info| wanted.contains(&info.pass)).flat_map(|info| info.needs);
            let missing: Vec<Self> = needs.copied().filter(|pass| !wanted.contains(pass)).collect();
            if missing.is_empty() {
                wanted.sort_unstable();
                wanted.dedup();
                return wanted;
            }
            wanted.extend(missing);
        }
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
