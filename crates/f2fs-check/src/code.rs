//! Lists the findings of a check: stable codes, their consequences for the user's data, and remedies. Every pass
//! reports by these codes; the command line shows them.

use crate::pass::Pass;

// Consequences.
const COPY: &str = "No data is lost: the other copy is whole. With the next failure of that copy it would be.";
const OLD: &str = "Data is as of the last checkpoint; later writes may be missing.";
const FULL: &str = "No data is affected; free space is counted wrongly, so writes may fail early, or space is lost.";
const OVERWRITE: &str = "Data is readable now, but the next writes may overwrite data that is in use.";
const LEAK: &str = "No data is affected; space is taken that nothing uses.";
const LOST: &str = "Blocks below this node cannot be reached, and may be lost.";
const UNREAD: &str = "Data in the affected range cannot be read.";
const SHARED: &str = "Two owners use one block: at least one of them has the data of the other.";
const CLEANER: &str = "Data is readable now; the kernel moves blocks by this entry, and may stop or damage files then.";
const NAMES: &str = "The file is there, but may not be reached, listed, renamed or deleted under all its names.";
const NUMBERS: &str = "The contents are there; a number about them (blocks, links, extents) is wrong.";
const CONTENT: &str = "Reading the file may give zeros, other data or an error in place of its contents.";
const ATTRIBUTES: &str = "Extended attributes and access lists of the file are lost in part.";
const USAGE: &str = "No data is affected; limits may be enforced too early or too late.";
const SYNCED: &str = "Files fsynced after the last checkpoint may be lost; the checkpoint is intact.";

// Remedies.
const SAVE: &str =
    "Copy the files to another device first (`spinney get` reads past damage); do not write to this one.";
const FSCK: &str = "Do not write to it before it is repaired: copy it, then run `fsck.f2fs -f` on the copy.";
const LATER: &str = "Nothing has to be done at once; `fsck.f2fs -f` mends it.";
const COPY_FILE: &str = "Copy the file elsewhere, delete it and copy it back; look at its contents first.";
const RESTORE: &str = "Restore the affected files from a backup.";
const SKIP_LOG: &str = "Mount without it (`-o ro,norecovery`) and save the files, then run `fsck.f2fs -f`.";

checking::codes! {
    SuperCopy "super-copy" Super "a copy of the superblock cannot be used" COPY LATER;
    SuperMirror "super-mirror" Super "the two copies of the superblock differ" COPY LATER;
    SuperSize "super-size" Super "the device is smaller than the file system" UNREAD SAVE;

    CheckpointPack "checkpoint-pack" Checkpoint "a checkpoint pack was written whole, and makes no sense" OLD FSCK;
    CheckpointError "checkpoint-error" Checkpoint "the kernel noted that the file system is damaged" OLD FSCK;
    CheckpointSummary "checkpoint-summary" Checkpoint
        "a summary or journal of the checkpoint cannot be read" OVERWRITE SAVE;
    CheckpointOrphans "checkpoint-orphans" Checkpoint "the list of orphans cannot be read" LEAK FSCK;
    CheckpointCurrent "checkpoint-current" Checkpoint
        "a segment that is being written is another log's, or its next block is in use" OVERWRITE FSCK;

    NatAddress "nat-address" Tables "an entry of the NAT leads out of the main area" LOST SAVE;
    NatInode "nat-inode" Tables "an entry of the NAT names no inode, or another one than the node" LOST SAVE;
    SitEntry "sit-entry" Tables "an entry of the SIT contradicts itself" OVERWRITE FSCK;
    TableRead "table-read" Tables "a block of the NAT or the SIT cannot be read" LOST SAVE;

    NodeNumber "node-number" Files "a number of a node is none that a node can have" LOST SAVE;
    NodeMissing "node-missing" Files "a node is referred to, and is not in the NAT" LOST SAVE;
    NodeRead "node-read" Files "a block of a node or directory cannot be read" LOST SAVE;
    NodeFooter "node-footer" Files "a node is another one than its place says" LOST SAVE;
    NodeTwice "node-twice" Files "two others lead to one node" SHARED SAVE;
    NodeUnreachable "node-unreachable" Files "the NAT has a node that nothing leads to" LEAK FSCK;
    BlockAddress "block-address" Files "an address of data is out of the main area" UNREAD COPY_FILE;
    BlockTwice "block-twice" Files "two addresses lead to one block" SHARED SAVE;

    InodeInvalid "inode-invalid" Files "an inode makes no sense" LOST SAVE;
    InodeChecksum "inode-checksum" Files "an inode's checksum is wrong" CONTENT SAVE;
    InodeBlocks "inode-blocks" Files "an inode's count of blocks is not that of its blocks" NUMBERS LATER;
    InodeLinks "inode-links" Files "an inode's link count is not the number of its names" NUMBERS FSCK;
    InodeName "inode-name" Files "an inode's own name is too long" NUMBERS LATER;
    InodeInline "inode-inline" Files "contents within an inode are marked wrongly" CONTENT COPY_FILE;
    InodeExtent "inode-extent" Files "an inode's longest run of blocks is not there" CONTENT FSCK;
    InodeCompressed "inode-compressed" Files
        "a compressed cluster is out of place, or the blocks that it saves are counted wrongly" CONTENT COPY_FILE;
    InodeXattr "inode-xattr" Files "the extended attributes of an inode cannot be read" ATTRIBUTES RESTORE;
    InodeVerity "inode-verity" Files "the fs-verity data of a file is unusable" UNREAD RESTORE;
    InodeSymlink "inode-symlink" Files "a symbolic link has no target" CONTENT RESTORE;

    DataVerity "data-verity" Files "contents are not those that fs-verity protects (only with --data)" UNREAD RESTORE;
    DirEntry "dir-entry" Files "a name of a directory makes no sense" NAMES FSCK;
    DirSlots "dir-slots" Files "slots of a directory are in use for no name, or free within one" NAMES FSCK;
    DirHash "dir-hash" Files "a name's hash is not that of the name" NAMES FSCK;
    DirPlace "dir-place" Files "a name is in the wrong hash bucket" NAMES FSCK;
    DirDouble "dir-double" Files "a directory has a name twice" NAMES FSCK;
    DirTarget "dir-target" Files "a name leads to an inode that does not exist" NAMES FSCK;
    DirType "dir-type" Files "a name has another type than its inode" NAMES FSCK;
    DirDots "dir-dots" Files "`.` or `..` of a directory is missing or leads elsewhere" NAMES FSCK;
    DirTwice "dir-twice" Files "a directory has several names" NAMES FSCK;
    DirLinks "dir-links" Files "a directory's link count is not that of its directories" NUMBERS FSCK;

    OrphanLinks "orphan-links" Files "an orphan counts names" LEAK FSCK;
    OrphanNamed "orphan-named" Files "an orphan has a name, and is deleted with the next mount" CONTENT SAVE;
    OrphanMissing "orphan-missing" Files "an orphan is listed that does not exist" LEAK FSCK;
    QuotaInode "quota-inode" Files "a quota file does not exist" NUMBERS FSCK;
    QuotaFile "quota-file" Files "a quota file cannot be read" USAGE LATER;
    QuotaUsage "quota-usage" Files "a quota file counts other inodes or bytes than there are" USAGE LATER;

    SitMissing "sit-missing" Space "blocks are in use, and the SIT has them as free" OVERWRITE FSCK;
    SitExtra "sit-extra" Space "the SIT has blocks as in use that nothing uses" LEAK FSCK;
    SitType "sit-type" Space "a segment for data has nodes, or one for nodes has data" CLEANER FSCK;
    SummaryOwner "summary-owner" Space "the summary of a segment names another owner of a block" CLEANER FSCK;
    SummaryType "summary-type" Space "the summary of a segment is of the other kind, nodes or data" CLEANER FSCK;
    SummaryRead "summary-read" Space "a summary of a segment cannot be read" CLEANER FSCK;
    CountBlocks "count-blocks" Space "the checkpoint counts another number of blocks than are in use" FULL FSCK;
    CountNodes "count-nodes" Space "the checkpoint counts another number of nodes than there are" FULL FSCK;
    CountInodes "count-inodes" Space "the checkpoint counts another number of inodes than there are" FULL FSCK;
    CountFree "count-free" Space "the checkpoint counts another number of free segments than there are" FULL FSCK;

    LogLoop "log-loop" Log "the chain of fsynced nodes leads back into itself" SYNCED SKIP_LOG;
    LogRead "log-read" Log "a node of the chain of fsyncs cannot be read" SYNCED SKIP_LOG;
}

#[cfg(test)]
mod tests {
    use super::*;
    use checking::CodeTable as _;
    use std::collections::BTreeSet;

    #[test]
    fn codes_have_names_of_their_own() {
        let ids: BTreeSet<_> = TABLE.iter().map(|info| info.id).collect();
        assert_eq!(ids.len(), TABLE.len());
        assert!(TABLE.iter().all(|info| Code::from_id(info.id) == Some(info.code) && info.code.id() == info.id));
        assert!(TABLE.is_sorted_by_key(|info| (info.pass, info.code)));
    }
}
