//! Verifies contents of files protected by fs-verity against the hash tree when they are read. Called by `file`.

use codec::verity::{BLOCK_SIZE, Tree, Verifier};
use f2fs_disk::convert::{to_u64, to_usize, usize_from};
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::{At, Corrupt, Detail, verity};

use crate::error::{Error, Result};
use crate::read_volume::{Node, ReadVolume};
use crate::xattrs;

const BLOCK_BYTES: u64 = 4096;
/// Blocks that are read at a time.
const BLOCKS_AT_ONCE: u64 = 64;

/// Reads bytes of a file without verifying them, even behind its end.
pub(crate) type ReadRaw<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;

/// True for a file that is protected.
pub(crate) fn is_protected(node: &Node) -> bool {
    node.inode.advise().contains(Advise::VERITY)
}

/// Reads bytes within a protected file from `offset` on, all of them.
///
/// # Errors
/// [`Error::Verity`] for a block with a wrong hash; `Corrupt` for a malformed descriptor.
pub(crate) fn read(
    volume: &ReadVolume,
    node: &Node,
    offset: u64,
    buf: &mut [u8],
    read_raw: &mut ReadRaw<'_>,
) -> Result<()> {
    let size = node.inode.size();
    let tree = tree(volume, node, read_raw)?;
    let tree_at = verity::tree_offset(size);
    let mut verifier = Verifier::new(&tree);
    let (mut done, end) = (0_usize, offset.saturating_add(to_u64(buf.len())));
    while done < buf.len() {
        let at = offset.saturating_add(to_u64(done));
        let first = at / BLOCK_BYTES;
        let start = first.saturating_mul(BLOCK_BYTES);
        let wanted =
            end.div_ceil(BLOCK_BYTES).saturating_sub(first).clamp(1, BLOCKS_AT_ONCE).saturating_mul(BLOCK_BYTES);
        // Behind the end of the file zeros are hashed, whatever its last block contains.
        let mut data = vec![0; to_usize(wanted.min(size.saturating_sub(start)))];
        read_raw(start, &mut data)?;
        for (index, block) in (first..).zip(data.chunks(BLOCK_SIZE)) {
            let mut read_tree = |number: u64| {
                let mut block = vec![0; BLOCK_SIZE];
                read_raw(tree_at.saturating_add(number.saturating_mul(BLOCK_BYTES)), &mut block)?;
                Ok::<_, Error>(block)
            };
            if !verifier.is_right(index, block, &mut read_tree)? {
                return Err(Error::Verity { ino: node.ino(), index });
            }
        }
        let found = data.get(to_usize(at.saturating_sub(start))..).unwrap_or_default();
        let to = buf.get_mut(done..).unwrap_or_default();
        to.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        done = done.saturating_add(found.len().max(1));
    }
    Ok(())
}

/// The tree of a protected file.
fn tree(volume: &ReadVolume, node: &Node, read_raw: &mut ReadRaw<'_>) -> Result<Tree> {
    let (ino, size) = (node.ino(), node.inode.size());
    let at = |corrupt: Corrupt| corrupt.at(At::Inode(ino));
    if node.inode.inline().contains(InlineFlags::DATA) {
        let (expected, found) = (Detail::Text("blocks"), Detail::Text("inline"));
        return Err(at(Corrupt::new("contents of a file with verity", expected, found)).into());
    }
    let location = verity::descriptor(&xattrs::stored(volume, node)?, size).map_err(at)?;
    let mut descriptor = vec![0; usize_from(location.size.get())];
    read_raw(location.pos.get(), &mut descriptor)?;
    let tree = Tree::new(&descriptor, size);
    Ok(tree
        .map_err(|wrong| at(Corrupt::new(wrong.what, Detail::Number(wrong.expected), Detail::Number(wrong.found))))?)
}
