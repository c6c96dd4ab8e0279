//! Verifies back references from inodes to names. `tree_block` calls it for each such item.

use super::{Context, dir, require};
use crate::error::{Corrupt, Detail};
use crate::hash::extref_hash;
use crate::items::{InodeExtrefEntry, InodeRefEntry};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    context.follows_its_inode()?;
    not_empty(context)?;
    // The root directory of a subvolume is its own parent, under this name.
    let is_root = context.key.objectid == context.key.offset;
    let mut rest = context.data;
    while !rest.is_empty() {
        let (entry, after) = InodeRefEntry::parse_prefix(rest)?;
        if !(is_root && entry.name == b"..") {
            dir::file_name(entry.name)?;
        }
        rest = after;
    }
    Ok(())
}

pub(super) fn verify_extref(context: &Context<'_>) -> Result<(), Corrupt> {
    context.follows_its_inode()?;
    not_empty(context)?;
    let mut rest = context.data;
    while !rest.is_empty() {
        let (entry, after) = InodeExtrefEntry::parse_prefix(rest)?;
        dir::file_name(entry.name)?;
        let hash = extref_hash(entry.parent.0, entry.name);
        require(
            hash == context.key.offset,
            "hash of an extended inode reference",
            Detail::Hex(hash),
            Detail::Hex(context.key.offset),
        )?;
        rest = after;
    }
    Ok(())
}

fn not_empty(context: &Context<'_>) -> Result<(), Corrupt> {
    require(!context.data.is_empty(), "size of an inode reference", Detail::AtLeast(11), Detail::Number(0))
}
