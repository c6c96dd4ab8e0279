//! Lists the repair steps: which findings each step repairs, how, and which data it may lose. Used by `plan`, by
//! `round`, which takes the steps, and by the library `spinney` and the command line, which name them.

use btrfs_check::{Code, CodeTable as _, Finding};
use btrfs_disk::TreeId;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident $id:literal $about:literal $loses:literal [$($code:ident)*];)*) => {
        /// A step of a repair. Steps are taken in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Step {
            $($(#[$doc])* $name,)*
        }

        const TABLE: &[StepInfo] = &[$(StepInfo {
            step: Step::$name, id: $id, about: $about, loses: $loses, codes: &[$(Code::$code),*],
        }),*];
    };
}

/// The description of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepInfo {
    /// The step.
    pub step: Step,
    /// Its name, which does not change from version to version.
    pub id: &'static str,
    /// Its action.
    pub about: &'static str,
    /// Possible losses; empty where there are none.
    pub loses: &'static str,
    /// The codes that it repairs. Codes of single blocks belong to the step of their tree: see [`Step::for_finding`].
    pub codes: &'static [Code],
}

steps! {
    /// Superblocks.
    Superblock "superblock"
        "rewrite the superblocks from the best copy, with the devices and system chunks of the chunk tree"
        "where the first copy is the bad one: the log of fsyncs, which only that copy names"
        [SuperCopy SuperMirror SuperBackup SuperDevice SuperDeviceCount SuperTotalBytes SuperSystemChunks];
    /// The log.
    Log "log"
        "drop the log of fsyncs"
        "data synced after the last commit; everything committed is there"
        [LogBlock LogRoot LogCsum LogOverlap];
    /// Bad copies of blocks.
    Mirrors "mirrors"
        "rewrite bad copies of tree blocks, in place, from the good ones"
        ""
        [BlockMirror BlockMirrorsDiffer];
    /// Devices.
    Devices "devices"
        "rebuild the device tree and the devices' usage from the chunks; forget devices without data, and space \
            beyond the end of a device if no data is there"
        "counters of device errors, where the device tree cannot be read"
        [DeviceMissing DeviceSmall ChunkNoDevExtent DevExtentNoChunk DevExtentLength DevExtentOverlap DeviceUsed];
    /// Damaged blocks that can be read.
    Blocks "blocks"
        "copy damaged tree blocks that can be read, in the order of their keys, without invalid items"
        "names, modes and attributes in invalid items, unless other items have them too"
        [BlockFirstKey BlockLastKey BlockKeys BlockItem BlockOwner BlockGeneration];
    /// Names and links.
    Names "names"
        "make names and links agree in directories and inodes; inodes without a name go to lost+found"
        "names that only one of their three items has; size, owner, mode and times of inodes whose item is invalid; \
            items of types that no subvolume has; caches of free inode numbers"
        [FileInodeMissing FileLinkCount FileRefNoEntry FileEntryNoRef FileEntryNoInode FileEntryType FileDirItemMissing
            FileDirIndexMissing FileDirSize FileDirLinks FileDirDouble FileRootDir FileOrphan FileOrphanItem
            FileKindItems FileItem FileInodeCache];
    /// Numbers and extents of files.
    Files "files"
        "make sizes, byte counts, flags, holes and overlapping extents of files right"
        "of two overlapping extents of a file, the part of the first beyond the start of the second"
        [FileNbytes FileHole FileSymlink FileFlags FileCompressed FileExtentOverlap];
    /// Subvolumes.
    Subvolumes "subvolumes"
        "make subvolumes, their parents and directories agree; make trees that are missing and were empty"
        ""
        [RootMissing RootRefMissing RootBackrefMissing RootRefName RootRefEntry RootRefs RootNoTree RootOrphan
            RootDefault];
    /// The UUID tree.
    Uuids "uuids"
        "make the UUID tree match the subvolumes"
        ""
        [UuidMissing UuidExtra];
    /// Quotas.
    Quotas "quotas"
        "mark quotas as inconsistent, so that they are counted again; add groups that are missing"
        "numbers of quota groups, until they are counted again"
        [QuotaMissing QuotaReferenced QuotaExclusive QuotaRelation];
    /// Checksums of data.
    Checksums "checksums"
        "make missing checksums from the data as it is now, and remove those of no data"
        "the chance to notice earlier damage to data without checksums: the new checksums match the data as it is"
        [CsumMissing CsumOrphan CsumOverlap];
    /// Extents and block groups.
    Extents "extents"
        "rebuild the extent tree and the block groups from the references of the other trees"
        "data that only extent items refer to, such as the data of files whose own items were damaged before"
        [ExtentMissing ExtentUnreferenced ExtentRefMissing ExtentRefExtra ExtentRefCount ExtentRefTotal ExtentOverlap
            ExtentKind ExtentLength ExtentLevel ExtentGeneration ExtentOutside ExtentGroupKind ExtentOwner ChunkNoGroup
            GroupNoChunk GroupLength GroupFlags GroupUsed SuperUsed];
    /// Free space.
    FreeSpace "free-space"
        "rebuild the free-space tree from the extents"
        ""
        [FreeSpaceGroup FreeSpaceCount FreeSpaceMissing FreeSpaceUsed FreeSpaceForm];
    /// An older state.
    OlderState "older-state"
        "go back to the newest earlier commit that a backup root names and that a check finds whole"
        "everything that was committed or fsynced after it; files without checksums may have later contents"
        [];
}

impl Step {
    /// Every step.
    #[must_use]
    pub fn all() -> &'static [StepInfo] {
        TABLE
    }

    /// The step with this name.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        TABLE.iter().find(|info| info.id == id).map(|info| info.step)
    }

    /// Its description.
    #[must_use]
    pub fn info(self) -> Option<&'static StepInfo> {
        TABLE.iter().find(|info| info.step == self)
    }

    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.info().map_or("", |info| info.id)
    }

    /// The step that repairs a finding, if there is one: by its code, and for a tree block by its tree. Otherwise
    /// [`Step::OlderState`] may help.
    #[must_use]
    pub fn for_finding(finding: &Finding) -> Option<Self> {
        let is_of_block = finding.code.id().starts_with("block-");
        let is_copy = matches!(finding.code, Code::BlockMirror | Code::BlockMirrorsDiffer);
        let of_tree = match finding.place.tree.map(TreeId) {
            Some(TreeId::EXTENT | TreeId::BLOCK_GROUP) => Some(Self::Extents),
            Some(TreeId::FREE_SPACE) => Some(Self::FreeSpace),
            Some(TreeId::CSUM) => Some(Self::Checksums),
            Some(TreeId::UUID) => Some(Self::Uuids),
            Some(TreeId::DEV) => Some(Self::Devices),
            _ => None,
        };
        if is_of_block && !is_copy && of_tree.is_some() {
            return of_tree;
        }
        if finding.code == Code::RootMissing {
            return match finding.place.tree.map(TreeId) {
                Some(TreeId::FS) => None,
                Some(TreeId::DATA_RELOC) => Some(Self::Subvolumes),
                _ => of_tree,
            };
        }
        TABLE.iter().find(|info| info.codes.contains(&finding.code)).map(|info| info.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_step_at_most() {
        let mut codes: Vec<Code> = TABLE.iter().flat_map(|info| info.codes).copied().collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
        assert_eq!(Step::from_id("free-space"), Some(Step::FreeSpace));
        assert!(TABLE.iter().map(|info| info.step).is_sorted());
    }
}
