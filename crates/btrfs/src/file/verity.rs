//! Verifies contents of files that fs-verity protects against their hash trees when they are read, and reads the items
//! of the trees. Called by `read`, `dir::verity` and `volume::verity`.
//!
//! The checksums of data find what the device changed; the tree, whose root hash names the contents, finds every other
//! change. Each read looks the hashes up anew: a block of them is for 512 KiB of contents.

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::{OnDisk as _, VerityDescriptorItem};
use btrfs_disk::key::item_type;
use btrfs_disk::{Detail, Key};
use btrfs_store::Scan;
use codec::verity::{BLOCK_SIZE, DESCRIPTOR_SIZE_MAX, Tree, Verifier, WrongDescriptor};

use crate::error::{Error, Result, corrupt_inode};
use crate::inode::{Inode, InodeFlags, position};

const BLOCK_BYTES: u64 = 4096;
/// Blocks that are read at a time.
const BLOCKS_AT_ONCE: u64 = 256;

/// Reads bytes of a file without verifying them; returns how many there were.
pub(super) type ReadPlain<'a> = dyn FnMut(u64, &mut [u8]) -> Result<usize> + 'a;

/// True for a file that is protected.
pub(super) fn is_protected(inode: &Inode) -> bool {
    inode.state().flags.contains(InodeFlags::RO_VERITY)
}

/// Reads from `offset`; returns how many bytes there were, fewer than `buf` has only at the end.
///
/// # Errors
/// `Corrupt` for contents that are not those that the tree protects, and for a damaged tree; those of `read_plain`.
pub(super) fn read(inode: &Inode, offset: u64, buf: &mut [u8], read_plain: &mut ReadPlain<'_>) -> Result<usize> {
    let size = inode.state().size;
    let len = buf.len().min(to_usize(size.saturating_sub(offset)));
    let (buf, _) = buf.split_at_mut(len);
    let tree = tree(inode)?;
    let mut verifier = Verifier::new(&tree);
    let (mut done, end) = (0_usize, offset.saturating_add(to_u64(len)));
    while done < len {
        let at = offset.saturating_add(to_u64(done));
        let first = at / BLOCK_BYTES;
        let start = first.saturating_mul(BLOCK_BYTES);
        let wanted =
            end.div_ceil(BLOCK_BYTES).saturating_sub(first).clamp(1, BLOCKS_AT_ONCE).saturating_mul(BLOCK_BYTES);
        let mut data = vec![0; to_usize(wanted.min(size.saturating_sub(start)))];
        let count = read_plain(start, &mut data)?;
        if count < data.len() {
            return Err(wrong(inode, "bytes of a file with verity", to_u64(data.len()), to_u64(count)));
        }
        for (index, block) in (first..).zip(data.chunks(BLOCK_SIZE)) {
            if !verifier.is_right(index, block, &mut |number| tree_block(inode, number))? {
                let (expected, found) = (Detail::Text("contents with the hash in the tree"), Detail::Number(index));
                return Err(corrupt_inode(inode.tree_id(), inode.ino(), "block under fs-verity", expected, found));
            }
        }
        let found = data.get(position(at, start)..).unwrap_or_default();
        let to = buf.get_mut(done..).unwrap_or_default();
        to.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        done = done.saturating_add(found.len().max(1));
    }
    Ok(len)
}

/// The descriptor of a protected file.
///
/// # Errors
/// `Corrupt` for one that is missing or damaged; I/O.
pub(crate) fn descriptor(inode: &Inode) -> Result<Vec<u8>> {
    let (tree, number) = (&inode.root.tree, inode.ino().0);
    let head = tree.get_with(&Key::new(number, item_type::VERITY_DESC_ITEM, 0), |bytes| {
        VerityDescriptorItem::parse(bytes).map(|item| item.size.get())
    })?;
    let size = match head {
        Some(size) => size?,
        None => 0,
    };
    let max = to_u64(DESCRIPTOR_SIZE_MAX);
    if size == 0 || size > max {
        return Err(wrong(inode, "size of the verity descriptor", max, size));
    }
    let descriptor = bytes_at(inode, item_type::VERITY_DESC_ITEM, 1, size)?;
    match descriptor.len() {
        len if to_u64(len) == size => Ok(descriptor),
        len => Err(wrong(inode, "bytes of the verity descriptor", size, to_u64(len))),
    }
}

/// The tree of a protected file.
fn tree(inode: &Inode) -> Result<Tree> {
    let tree = Tree::new(&descriptor(inode)?, inode.state().size);
    tree.map_err(|WrongDescriptor { what, expected, found }| wrong(inode, what, expected, found))
}

fn tree_block(inode: &Inode, number: u64) -> Result<Vec<u8>> {
    bytes_at(inode, item_type::VERITY_MERKLE_ITEM, number.saturating_mul(BLOCK_BYTES), BLOCK_BYTES)
}

/// Adjacent bytes of items of one type, whose keys have the offsets of their first bytes: as many as there are of
/// `len`.
/// Linux writes items of 2048 bytes; longer ones than a block are not looked for.
fn bytes_at(inode: &Inode, item_type: u8, at: u64, len: u64) -> Result<Vec<u8>> {
    let key = |offset| Key::new(inode.ino().0, item_type, offset);
    let end = at.saturating_add(len);
    let first = at.saturating_sub(BLOCK_BYTES.saturating_sub(1)).max(at.min(1));
    let mut bytes = Vec::with_capacity(to_usize(len));
    inode.root.tree.scan(&key(first), &key(end.saturating_sub(1)), |found, item| {
        let next = at.saturating_add(to_u64(bytes.len()));
        if found.offset > next {
            return Ok(Scan::Stop);
        }
        let part = item.get(position(next, found.offset)..).unwrap_or_default();
        let room = to_usize(end.saturating_sub(next));
        bytes.extend(part.iter().take(room));
        Ok(Scan::Continue)
    })?;
    Ok(bytes)
}

#[cold]
fn wrong(inode: &Inode, what: &'static str, expected: u64, found: u64) -> Error {
    corrupt_inode(inode.tree_id(), inode.ino(), what, Detail::Number(expected), Detail::Number(found))
}
