//! Lists the findings of a check: stable codes, the consequence of each for the user's data, and the advice. Every pass
//! reports by these codes; the command line and `btrfs-repair` look them up.

use crate::pass::Pass;

// Consequences.
const NONE: &str = "No data is affected.";
const COPY: &str = "No data is lost: another copy is whole. With the next failure of that copy it would be.";
const LOST: &str = "The contents of this block cannot be trusted, and may be lost.";
const OVERWRITE: &str = "Data is readable now, but the next writes may overwrite data that is in use.";
const LEAK: &str = "No data is affected; space is taken that nothing uses, or may not be freed later.";
const FULL: &str = "No data is affected; free space is counted wrongly, so writes may fail early, or space is lost.";
const UNREAD: &str = "Data in the affected range cannot be read.";
const ABSENT: &str = "Only data with a copy on the devices that are there can be read.";
const NAMES: &str = "The file is there, but may not be reached, listed, renamed or deleted under all its names.";
const NUMBERS: &str = "The contents are there; a number about them (size, links, blocks) is wrong.";
const CONTENT: &str = "Reading the file may give zeros or an error in place of its contents.";
const UNVERIFIED: &str = "Data is readable or fails with an I/O error; damage to it would not be noticed.";
const TREE: &str = "A subvolume may not be found, listed or deleted.";
const WRONG_QUOTA: &str = "No data is affected; quotas refuse too early or too late.";
const SYNCED: &str = "Data synced after the last commit may be lost; everything committed is there.";

// Advice.
const MIRROR: &str =
    "Run `spinney scrub start IMAGE`, which rewrites bad copies; find out why the device returned this.";
const SAVE: &str =
    "Copy the files to another device first (`spinney get` reads past damage); do not write to this one.";
const SHORTEN: &str = "Copy the files to another device first (`spinney get` reads past damage); `spinney repair \
    IMAGE` shrinks the file system if no chunk lies beyond the end.";
const REBUILD: &str = "Do not write to it before it is repaired: `spinney repair IMAGE` shows how, and can be undone.";
const CACHE: &str =
    "`spinney repair IMAGE` rebuilds it from the extents; so does a mount by the kernel with `clear_cache`.";
const RESCAN: &str = "`spinney quota rescan IMAGE` counts them anew.";
const COPY_FILE: &str = "Copy the file elsewhere, delete it and copy it back; look at its contents first.";
const UNSUMMED: &str = "`spinney rescue get` copies the file unverified: look at its contents; `spinney repair IMAGE` \
    makes checksums of the data as it is.";
const RESCUE: &str = "`spinney rescue get` copies what can be read: look at the contents of the file; `spinney repair \
    IMAGE` mends it.";
const LATER: &str = "Nothing has to be done at once; `spinney repair IMAGE` mends it.";
const ZERO_LOG: &str =
    "Save what is there without it (`spinney get --nologreplay`), then `spinney repair IMAGE` drops it.";
const MOVE: &str = "Nothing has to be done at once; `spinney balance start IMAGE -m all` moves it.";
const FINISH: &str =
    "Finish the conversion, or take it back, with the program that began it; until then nothing else can write to it.";
const RESTORE: &str = "Restore the affected files from a backup; other copies of them may be whole.";

checking::codes! {
    SuperCopy "super-copy" Super "a copy of the superblock cannot be used" COPY MIRROR;
    SuperMirror "super-mirror" Super "a copy of the superblock differs from the one in use" COPY LATER;
    SuperBackup "super-backup" Super "the newest backup root disagrees with the superblock" NONE LATER;
    SuperFlags "super-flags" Super "a conversion of the whole file system was begun and not finished" UNREAD FINISH;
    SuperDevice "super-device" Super "the superblock's device item disagrees with the chunk tree" NONE REBUILD;
    SuperDeviceCount "super-device-count" Super "the number of devices is wrong" NONE REBUILD;
    SuperTotalBytes "super-total-bytes" Super "the size of the file system is not that of its devices" FULL REBUILD;
    SuperSystemChunks "super-system-chunks" Super
        "the superblock's system chunks are not those of the chunk tree" LOST SAVE;
    DeviceMissing "device-missing" Super "a device is not there" ABSENT SAVE;
    DeviceSmall "device-small" Super "a device is smaller than the file system believes" UNREAD SHORTEN;

    ChunkInvalid "chunk-invalid" Chunks "a chunk makes no sense" UNREAD SAVE;
    ChunkOverlap "chunk-overlap" Chunks "two chunks overlap" OVERWRITE SAVE;
    ChunkDevice "chunk-device" Chunks "a chunk lies on a device that does not exist, or beyond its end" UNREAD SAVE;
    ChunkNoDevExtent "chunk-no-dev-extent" Chunks "a chunk's place is not reserved on its device" OVERWRITE REBUILD;
    ChunkNoGroup "chunk-no-group" Chunks "a chunk has no block group" OVERWRITE REBUILD;
    DevExtentNoChunk "dev-extent-no-chunk" Chunks "space of a device is reserved for no chunk" LEAK REBUILD;
    DevExtentLength "dev-extent-length" Chunks "a device extent is not as long as its chunk's stripe" OVERWRITE REBUILD;
    DevExtentOverlap "dev-extent-overlap" Chunks "two device extents overlap" OVERWRITE REBUILD;
    GroupNoChunk "group-no-chunk" Chunks "a block group has no chunk" FULL REBUILD;
    GroupLength "group-length" Chunks "a block group is not as long as its chunk" FULL REBUILD;
    GroupFlags "group-flags" Chunks "a block group's use or profile is not its chunk's" FULL REBUILD;
    DeviceUsed "device-used" Chunks "a device's used bytes are not those of its extents" FULL REBUILD;

    BlockRead "block-read" Trees "a tree block cannot be read" LOST SAVE;
    BlockUnmapped "block-unmapped" Trees "a tree block's address is in no chunk" LOST SAVE;
    BlockChecksum "block-checksum" Trees "a tree block's checksum is wrong on all mirrors" LOST SAVE;
    BlockAddress "block-address" Trees "a tree block is another one than its address says" LOST SAVE;
    BlockUuid "block-uuid" Trees "a tree block belongs to another file system" LOST SAVE;
    BlockGeneration "block-generation" Trees "a tree block is of another generation than its parent says" LOST SAVE;
    BlockLevel "block-level" Trees "a tree block has another level than its parent says" LOST SAVE;
    BlockOwner "block-owner" Trees "a tree leads to a block of another tree" LOST SAVE;
    BlockFirstKey "block-first-key" Trees "a tree block does not begin with the key its parent says" LOST SAVE;
    BlockLastKey "block-last-key" Trees "a tree block reaches beyond the next one's first key" LOST SAVE;
    BlockKeys "block-keys" Trees "keys of a tree block are out of order" LOST SAVE;
    BlockItem "block-item" Trees "an item or pointer of a tree block makes no sense" LOST SAVE;
    BlockMirror "block-mirror" Trees "one copy of a tree block is bad; another is good" COPY MIRROR;
    BlockMirrorsDiffer "block-mirrors-differ" Trees "the copies of a tree block are valid and differ" COPY MIRROR;

    ExtentMissing "extent-missing" Extents "an extent is in use, and has no extent item" OVERWRITE REBUILD;
    ExtentUnreferenced "extent-unreferenced" Extents
        "an extent item stands for an extent that nothing uses" LEAK REBUILD;
    ExtentRefMissing "extent-ref-missing" Extents
        "a reference to an extent is not in its extent item" OVERWRITE REBUILD;
    ExtentRefExtra "extent-ref-extra" Extents "an extent item lists a reference that does not exist" LEAK REBUILD;
    ExtentRefCount "extent-ref-count" Extents
        "a reference is counted another number of times than it exists" OVERWRITE REBUILD;
    ExtentRefTotal "extent-ref-total" Extents
        "an extent item's total is not the sum of its references" OVERWRITE REBUILD;
    ExtentOverlap "extent-overlap" Extents "two extents overlap" OVERWRITE SAVE;
    ExtentKind "extent-kind" Extents "an extent item says data for a tree block, or the reverse" OVERWRITE REBUILD;
    ExtentLength "extent-length" Extents
        "a file uses an extent of another length than the extent item has" OVERWRITE REBUILD;
    ExtentLevel "extent-level" Extents "an extent item has another level than its tree block" NONE REBUILD;
    ExtentGeneration "extent-generation" Extents
        "an extent item has another generation than its tree block" NONE REBUILD;
    ExtentOutside "extent-outside" Extents "an extent is not inside one block group" OVERWRITE SAVE;
    ExtentGroupKind "extent-group-kind" Extents "an extent is in a block group for another use" NONE REBUILD;
    ExtentStripe "extent-stripe" Extents "a tree block lies on two stripes, which old kernels could not scrub" NONE
        MOVE;
    ExtentOwner "extent-owner" Extents
        "a tree block's owner does not refer to it, and it has no full back references" LEAK REBUILD;

    GroupUsed "group-used" Space "a block group's used bytes are not those of its extents" FULL REBUILD;
    SuperUsed "super-used" Space "the superblock's used bytes are not those of the block groups" FULL REBUILD;
    FreeSpaceGroup "free-space-group" Space
        "the free-space tree lacks a block group, or has another size for it" FULL CACHE;
    FreeSpaceCount "free-space-count" Space "the free-space tree counts its ranges wrongly" FULL CACHE;
    FreeSpaceMissing "free-space-missing" Space "free space is not in the free-space tree" FULL CACHE;
    FreeSpaceUsed "free-space-used" Space "the free-space tree says that space in use is free" OVERWRITE CACHE;
    FreeSpaceForm "free-space-form" Space "the free-space tree holds ranges in another form than it says" FULL CACHE;

    CsumMissing "csum-missing" Csums "data has no checksum" UNVERIFIED UNSUMMED;
    CsumOrphan "csum-orphan" Csums "there are checksums for data that does not exist" LEAK REBUILD;
    CsumOverlap "csum-overlap" Csums "two checksum items cover the same data" UNVERIFIED REBUILD;

    FileInodeMissing "file-inode-missing" Files "an inode's items are there without the inode" NAMES REBUILD;
    FileLinkCount "file-link-count" Files "an inode's link count is not the number of its names" NUMBERS REBUILD;
    FileRefNoEntry "file-ref-no-entry" Files "an inode has a name that no directory has" NAMES REBUILD;
    FileEntryNoRef "file-entry-no-ref" Files "a directory has a name that its inode does not know" NAMES REBUILD;
    FileEntryNoInode "file-entry-no-inode" Files "a name leads to an inode that does not exist" NAMES REBUILD;
    FileEntryType "file-entry-type" Files "a directory entry has another type than its inode" NAMES REBUILD;
    FileDirItemMissing "file-dir-item-missing" Files
        "a name is in the list of its directory, but is not found" NAMES REBUILD;
    FileDirIndexMissing "file-dir-index-missing" Files "a name is found in its directory, but not listed" NAMES REBUILD;
    FileDirSize "file-dir-size" Files "a directory's size is not that of its names" NUMBERS LATER;
    FileDirLinks "file-dir-links" Files "a directory has several names" NAMES REBUILD;
    FileDirDouble "file-dir-double" Files "a directory has one name twice" NAMES REBUILD;
    FileRootDir "file-root-dir" Files "a subvolume's root directory is missing or no directory" NAMES REBUILD;
    FileNbytes "file-nbytes" Files "an inode's count of bytes is not that of its extents" NUMBERS LATER;
    FileExtentOverlap "file-extent-overlap" Files "two extents of a file overlap" CONTENT RESCUE;
    FileHole "file-hole" Files "a file lacks an item for a hole" NUMBERS LATER;
    FileKindItems "file-kind-items" Files "an inode has items that its type does not have" CONTENT REBUILD;
    FileItem "file-item" Files "an item is of a type that no subvolume has" NONE LATER;
    FileFlags "file-flags" Files "a symbolic link has flags that it cannot have" NUMBERS LATER;
    FileCompressed "file-compressed" Files "a compressed extent of a file has no checksums" UNVERIFIED REBUILD;
    FileInodeCache "file-inode-cache" Files "a cache of free inode numbers is left, which no kernel uses any more" LEAK
        LATER;
    FileSymlink "file-symlink" Files "a symbolic link's size is not that of its target" CONTENT COPY_FILE;
    FileStream "file-stream" Files "a compressed extent of a file cannot be decompressed" CONTENT RESTORE;
    FileVerity "file-verity" Files "the fs-verity data of a file is unusable" UNREAD RESTORE;
    FileOrphan "file-orphan" Files "an inode without names is not listed as an orphan" LEAK REBUILD;
    FileOrphanItem "file-orphan-item" Files "an orphan item names an inode that does not exist" NONE LATER;

    RootMissing "root-missing" Roots "a tree that every file system has is not there" LOST SAVE;
    RootRefMissing "root-ref-missing" Roots "a subvolume's parent does not list it" TREE REBUILD;
    RootBackrefMissing "root-backref-missing" Roots "a subvolume does not know the parent that lists it" TREE REBUILD;
    RootRefName "root-ref-name" Roots "a subvolume and its parent disagree about its name" TREE REBUILD;
    RootRefEntry "root-ref-entry" Roots "a subvolume's name is not in the directory that should have it" TREE REBUILD;
    RootRefs "root-refs" Roots "a subvolume counts its names wrongly" TREE REBUILD;
    RootNoTree "root-no-tree" Roots "a reference or an orphan item names a subvolume that does not exist" TREE REBUILD;
    RootOrphan "root-orphan" Roots "a subvolume without a name is not listed as an orphan" LEAK REBUILD;
    RootDefault "root-default" Roots "the default subvolume does not exist" TREE REBUILD;
    UuidMissing "uuid-missing" Roots "a subvolume is not in the UUID tree" TREE LATER;
    UuidExtra "uuid-extra" Roots "the UUID tree names a subvolume that has not this UUID" TREE LATER;

    QuotaMissing "quota-missing" Quota "a subvolume has no quota group" WRONG_QUOTA RESCAN;
    QuotaReferenced "quota-referenced" Quota "a quota group's referenced bytes are wrong" WRONG_QUOTA RESCAN;
    QuotaExclusive "quota-exclusive" Quota "a quota group's exclusive bytes are wrong" WRONG_QUOTA RESCAN;
    QuotaRelation "quota-relation" Quota "a relation of quota groups is known on one side only" WRONG_QUOTA RESCAN;

    LogBlock "log-block" Log "a block of the log cannot be used" SYNCED ZERO_LOG;
    LogRoot "log-root" Log "the log is for a subvolume that does not exist" SYNCED ZERO_LOG;
    LogCsum "log-csum" Log "data that the log brings has no checksum" SYNCED ZERO_LOG;
    LogOverlap "log-overlap" Log "a block of the log lies in an extent that is in use" OVERWRITE ZERO_LOG;

    DataChecksum "data-checksum" Data "data does not match its checksum, on any mirror" UNREAD RESTORE;
    DataMirror "data-mirror" Data "one copy of data does not match its checksum; another does" COPY MIRROR;
    DataRead "data-read" Data "data cannot be read" UNREAD RESTORE;
    DataStream "data-stream" Data "compressed data matches its checksums, but cannot be decompressed" UNREAD RESTORE;
}

#[cfg(test)]
mod tests {
    use super::*;
    use checking::CodeTable as _;

    #[test]
    fn names_are_unique_and_stand_in_the_order_of_passes() {
        let mut ids: Vec<&str> = TABLE.iter().map(|info| info.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), TABLE.len());
        assert!(TABLE.iter().map(|info| info.pass).is_sorted_by(|a, b| a <= b));
        assert_eq!(Code::from_id("extent-missing"), Some(Code::ExtentMissing));
    }
}
