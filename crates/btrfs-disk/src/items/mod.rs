//! Defines the items of the trees, one file each.
//!
//! Every fixed part is a `#[repr(C)]` struct of little-endian fields that is read in place from
//! an item's bytes and written with [`OnDisk::bytes`]; items that hold several entries (names,
//! references, stripes) have an iterator and a builder beside them. Names and meanings are the
//! kernel's.
//!
//! Invariants: sizes are asserted at compile time; reserved bytes are kept when a struct is
//! rewritten and are zeros in a new one; unknown flag bits survive.
//!
//! Failure: parsing checks bounds only, and fails with [`Corrupt`] at [`crate::error::At::Unknown`]. [`crate::verify`]
//! checks the values of every item before a block is used.
//!
//! Callers: `btrfs-store` and `btrfs` for everything they read and write; check, rescue and repair.

use crate::error::{Corrupt, Detail};

mod balance;
mod block_group;
mod chunk;
mod csum;
mod device;
mod dir;
mod extent;
mod file_extent;
mod free_space;
mod inode;
mod inode_ref;
mod log;
mod persistent;
mod quota;
mod root;
mod root_ref;
mod show;
mod uuid_key;
mod verity;

pub use balance::{BalanceArgs, BalanceItem};
pub use block_group::BlockGroupItem;
pub use chunk::{Chunk, ChunkItem, STRIPE_LEN, Stripe, system_chunks};
pub use csum::CsumGeometry;
pub use device::{DevExtent, DevItem};
pub use dir::{DIR_INDEX_FIRST, DIR_TYPE_XATTR, DirEntry, DirItem, NAME_LEN_MAX};
pub use extent::{ExtentDataRef, ExtentItem, ExtentView, InlineRef, SharedDataRef, TreeBlockInfo};
pub use file_extent::{
    COMPRESSION_MAX, FILE_EXTENT_INLINE, FILE_EXTENT_INLINE_START, FILE_EXTENT_PREALLOC, FILE_EXTENT_REG, FileExtent,
    FileExtentHead, FileExtentItem, LinkSizes, NewFileExtent, link_target,
};
pub use free_space::{
    FREE_SPACE_BITMAP_BITS, FREE_SPACE_BITMAP_SIZE, FreeSpaceHeader, FreeSpaceInfo, bitmap_get, bitmap_runs,
    bitmap_set, bitmap_size,
};
pub use inode::{FileKind, InodeItem, Timespec, mode, rdev_from_disk, rdev_to_disk};
pub use inode_ref::{InodeExtref, InodeExtrefEntry, InodeRef, InodeRefEntry};
pub use log::DirLogItem;
pub use persistent::DevStatsItem;
pub use quota::{QgroupInfoItem, QgroupLimitItem, QgroupStatusItem};
pub use root::RootItem;
pub use root_ref::{RootRef, RootRefEntry};
pub use show::ShowItem;
pub use uuid_key::{uuid_key, uuid_of_key, uuid_subvolumes};
pub use verity::VerityDescriptorItem;

pub use crate::on_disk::OnDisk;

/// Iterates over the consecutive entries of an item. After an error the iterator is at its end.
fn entries<'a, T: 'a>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<(T, &'a [u8]), Corrupt>,
) -> impl Iterator<Item = Result<T, Corrupt>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = parse(rest);
        rest = parsed.as_ref().map_or(&[], |(_, after)| *after);
        Some(parsed.map(|(entry, _)| entry))
    })
}

/// Finds the first entry that matches, and its byte range in the item.
fn find_entry<'a, T: 'a>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<(T, &'a [u8]), Corrupt>,
    is_wanted: impl Fn(&T) -> bool,
) -> Result<Option<(T, std::ops::Range<usize>)>, Corrupt> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let start = bytes.len().saturating_sub(rest.len());
        let (entry, after) = parse(rest)?;
        if is_wanted(&entry) {
            return Ok(Some((entry, start..bytes.len().saturating_sub(after.len()))));
        }
        rest = after;
    }
    Ok(None)
}

/// Replaces the bytes in `range` (from [`DirEntry::find`] and the like) of an item with `new`.
#[must_use]
pub fn splice(item: &[u8], range: &std::ops::Range<usize>, new: &[u8]) -> Vec<u8> {
    let before = item.get(..range.start).unwrap_or(item);
    let behind = item.get(range.end..).unwrap_or_default();
    [before, new, behind].concat()
}

/// The error for a name or value whose length exceeds the `left` remaining bytes of its item.
#[cold]
fn name_out_of_bounds(what: &'static str, len: usize, left: usize) -> Corrupt {
    Corrupt::new(what, Detail::AtMost(crate::convert::to_u64(left)), Detail::size(len))
}
