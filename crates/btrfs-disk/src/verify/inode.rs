//! Verifies inode items. `tree_block` calls it for each such item.

use super::{Context, dir, require};
use crate::error::{Corrupt, Detail};
use crate::flags::InodeFlags;
use crate::items::{FileKind, InodeItem, OnDisk, mode};

/// The half of the flags that a reader must know. The other half it may ignore.
const FLAGS_TO_KNOW: u64 = 0xffff_ffff;

/// Largest file: offsets are signed numbers to every caller.
const FILE_SIZE_MAX: u64 = u64::MAX >> 1;

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    dir::inode_key(&context.key)?;
    let item = InodeItem::parse(context.data)?;
    context.generation("inode generation", item.generation.get())?;
    context.generation("inode transaction", item.transid.get())?;
    let bits = item.mode.get();
    let kind = FileKind::from_mode(bits);
    require(
        kind.is_some() && bits & !(mode::S_IFMT | mode::PERMISSIONS) == 0,
        "inode mode",
        Detail::Text("one file type and permissions"),
        Detail::Octal(u64::from(bits)),
    )?;
    // Not checked for directories: old kernels left wrong sizes there.
    let size = item.size.get();
    require(
        size <= FILE_SIZE_MAX || !matches!(kind, Some(FileKind::File | FileKind::Symlink)),
        "file size",
        Detail::AtMost(FILE_SIZE_MAX),
        Detail::Number(size),
    )?;
    let nlink = item.nlink.get();
    require(
        nlink <= 1 || kind != Some(FileKind::Directory),
        "links to a directory",
        Detail::AtMost(1),
        Detail::Number(u64::from(nlink)),
    )?;
    let flags = item.inode_flags();
    let unknown = flags.bits() & !InodeFlags::NAMED.bits() & FLAGS_TO_KNOW;
    require(
        unknown == 0,
        "inode flags",
        Detail::Hex(InodeFlags::NAMED.bits() & FLAGS_TO_KNOW),
        Detail::Hex(flags.bits()),
    )
}
