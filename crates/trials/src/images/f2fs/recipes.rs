//! Lists the f2fs images that are made: for each the options of its `mkfs` and mount, and its scenes. Called by
//! `images/f2fs`, on the host and in the guest.

use super::scene::Scene;
use super::{contents, cuts, scenes};

/// The recipe of one image.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) seed: u32,
    pub(super) megabytes: u32,
    /// Options of `mkfs.f2fs`.
    pub(super) mkfs: &'static [&'static str],
    /// Number of files of a random tree that `sload.f2fs` adds before the first mount.
    pub(super) loaded: u32,
    /// Mounts, one after the other.
    pub(super) sessions: &'static [Session],
    pub(super) end: End,
}

/// One mount, and the changes made in it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) options: &'static str,
    /// Number of files of the random tree.
    pub(super) files: u32,
    pub(super) scenes: &'static [Scene],
}

/// How the last mount ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Properly.
    Unmounted,
    /// The guest is killed as soon as it prints [`cuts::MARK`].
    PowerCut,
    /// Likewise; the promised files are not in the last checkpoint.
    PowerCutAfterFsync,
    /// Checkpoints were off: a mount that may neither write nor recover refuses the image.
    PowerCutWithoutCheckpoints,
}

const fn session(options: &'static str, files: u32, scenes: &'static [Scene]) -> Session {
    Session { options, files, scenes }
}

const fn recipe(name: &'static str, seed: u32, mkfs: &'static [&'static str], sessions: &'static [Session]) -> Recipe {
    Recipe { name, seed, megabytes: 128, mkfs, loaded: 0, sessions, end: End::Unmounted }
}

const fn cut(name: &'static str, seed: u32, mkfs: &'static [&'static str], sessions: &'static [Session]) -> Recipe {
    Recipe { end: End::PowerCut, ..recipe(name, seed, mkfs, sessions) }
}

const fn fsynced(name: &'static str, seed: u32, mkfs: &'static [&'static str], sessions: &'static [Session]) -> Recipe {
    Recipe { end: End::PowerCutAfterFsync, ..recipe(name, seed, mkfs, sessions) }
}

/// All features that enlarge inodes and add checksums.
const EXTRA: &[&str] =
    &["-O", "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,project_quota,quota"];

const COMPRESSION: &[&str] = &["-O", "extra_attr,inode_checksum,inode_crtime,compression"];

/// Scenes of most images, beside their random tree.
const COMMON: &[Scene] = &[scenes::NODES, contents::LAYOUTS, scenes::XATTRS];

pub(super) const RECIPES: &[Recipe] = &[
    recipe("plain", 1, &[], &[session("rw", 600, COMMON), session("rw", 100, &[scenes::LINKS])]),
    recipe("extra", 2, EXTRA, &[session("rw", 400, COMMON), session("rw", 50, &[scenes::LINKS, contents::DEEP])]),
    recipe("no-inline", 3, &[], &[session("rw,noinline_data,noinline_dentry,noinline_xattr", 300, COMMON)]),
    recipe(
        "inline-then-not",
        4,
        EXTRA,
        &[
            session("rw,inline_xattr_size=100", 200, COMMON),
            session("rw,noinline_data,noinline_dentry", 200, &[scenes::MORE_XATTRS]),
        ],
    ),
    recipe(
        "xattrs",
        5,
        &["-O", "extra_attr,flexible_inline_xattr"],
        &[session("rw,inline_xattr_size=200", 50, &[scenes::XATTRS, scenes::MORE_XATTRS])],
    ),
    recipe("directories", 6, &[], &[session("rw", 20, &[scenes::DIRECTORIES]), session("rw", 0, &[scenes::LEVELS])]),
    recipe("deep", 7, &[], &[session("rw", 20, &[contents::DEEP])]),
    recipe("aged", 8, &[], &[session("rw", 100, &[contents::AGED]), session("rw", 100, &[contents::AGED_AGAIN])]),
    recipe("collected", 9, &[], &[session("rw", 50, &[contents::AGED, contents::COLLECTED])]),
    Recipe { megabytes: 64, ..recipe("half-full", 10, &[], &[session("rw", 50, &[contents::HALF_FULL])]) },
    Recipe {
        megabytes: 256,
        ..recipe("lfs", 11, &[], &[session("rw,mode=lfs", 200, &[contents::LAYOUTS, contents::AGED])])
    },
    Recipe {
        megabytes: 512,
        ..recipe("sections", 12, &["-s", "4"], &[session("rw", 200, COMMON), session("rw", 50, &[contents::AGED])])
    },
    recipe("casefold", 13, &["-O", "casefold", "-C", "utf8"], &[session("rw", 100, &[scenes::CASEFOLD])]),
    recipe(
        "casefold-strict",
        14,
        &["-O", "extra_attr,inode_checksum,casefold", "-C", "utf8:strict"],
        &[session("rw", 50, &[scenes::CASEFOLD])],
    ),
    recipe(
        "compress-lz4",
        15,
        COMPRESSION,
        &[session("rw,compress_algorithm=lz4,compress_extension=*,compress_log_size=2", 50, &[contents::COMPRESSED])],
    ),
    recipe(
        "compress-zstd",
        16,
        COMPRESSION,
        &[session(
            "rw,compress_algorithm=zstd:6,compress_extension=*,compress_log_size=4,compress_chksum",
            50,
            &[contents::COMPRESSED],
        )],
    ),
    recipe(
        "compress-lzo",
        17,
        COMPRESSION,
        &[session(
            "rw,compress_algorithm=lzo,compress_extension=txt,nocompress_extension=raw",
            50,
            &[contents::COMPRESSED],
        )],
    ),
    recipe(
        "compress-lzo-rle",
        18,
        COMPRESSION,
        &[session(
            "rw,compress_algorithm=lzo-rle,compress_extension=*,compress_log_size=8",
            50,
            &[contents::COMPRESSED],
        )],
    ),
    recipe("flags", 19, EXTRA, &[session("rw", 50, &[scenes::FLAGS])]),
    recipe(
        "checkpoint-enabled",
        20,
        &[],
        &[session("rw", 100, &[]), session("rw,checkpoint=disable", 200, &[scenes::ENABLE_CHECKPOINT, scenes::NODES])],
    ),
    Recipe {
        loaded: 300,
        ..recipe("large-nat-bitmap", 21, &["-i", "-l", "spinney \u{e9}\u{1f332}"], &[session("rw", 50, COMMON)])
    },
    recipe("verity", 22, &["-O", "verity"], &[session("rw", 20, &[contents::VERITY])]),
    cut("orphans", 23, &[], &[session("rw", 50, &[cuts::ORPHANS])]),
    cut("cut-checkpointed", 24, EXTRA, &[session("rw", 200, &[scenes::NODES, cuts::CHECKPOINTED])]),
    fsynced("cut-fsynced", 25, &[], &[session("rw", 50, &[cuts::FSYNCED])]),
    fsynced("cut-fsynced-extra", 26, EXTRA, &[session("rw", 50, &[cuts::FSYNCED])]),
    Recipe { megabytes: 256, ..fsynced("cut-fsynced-lfs", 27, &[], &[session("rw,mode=lfs", 50, &[cuts::FSYNCED])]) },
    fsynced(
        "cut-fsynced-plain",
        28,
        &[],
        &[session("rw,noinline_data,noinline_dentry,noinline_xattr", 50, &[cuts::FSYNCED])],
    ),
    fsynced("cut-writing", 29, &[], &[session("rw", 50, &[cuts::WRITING])]),
    Recipe {
        end: End::PowerCutWithoutCheckpoints,
        ..recipe(
            "cut-checkpoint-disabled",
            30,
            &[],
            &[session("rw", 100, &[]), session("rw,checkpoint=disable", 100, &[cuts::CHECKPOINTED])],
        )
    },
];
