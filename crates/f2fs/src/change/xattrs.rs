//! Changes extended attributes. Called by `vfs_impl/xattr`, `inodes` and `replay`.

#![expect(clippy::arithmetic_side_effects, reason = "sizes of attributes, bounded by those of their places")]

use f2fs_disk::acl;
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::node::{FOOTER_SIZE, XATTR_OFFSET};
use f2fs_disk::xattr::{END_SIZE, Namespace, Xattr, encode, entries, split_name};
use f2fs_disk::{At, BLOCK_SIZE, Nid};

use super::room::{self, Urgency};
use crate::error::{CallerError, Result};
use crate::write_volume::WriteVolume;
use crate::xattrs::{is_called, stored};

/// Bytes of attributes that fit into an attribute node.
const NODE_BYTES: usize = BLOCK_SIZE - FOOTER_SIZE;

/// Sets an attribute by its name in Linux, or removes it. Nothing else of the inode changes.
///
/// # Errors
/// [`CallerError::AttributesTooLarge`], `NotSupported` for a family of names that the format lacks.
pub(crate) fn put(volume: &mut WriteVolume, ino: Nid, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    let node = volume.inode(ino)?;
    let (namespace, rest) = split_name(name).ok_or(CallerError::NotSupported)?;
    if value.is_some_and(|value| value.len() > NODE_BYTES) {
        return Err(CallerError::AttributesTooLarge(NODE_BYTES).into());
    }
    let bytes = stored(volume, &node)?;
    let value = match value {
        Some(value) if namespace.is_acl() => Some(acl::from_linux(value).map_err(|error| error.at(At::Inode(ino)))?),
        Some(value) => Some(value.to_vec()),
        None => None,
    };
    let all = entries(&bytes).collect::<Result<Vec<_>, _>>().map_err(|error| error.at(At::Inode(ino)))?;
    let mut kept: Vec<Xattr<'_>> = all.into_iter().filter(|xattr| !is_called(xattr, name)).collect();
    if let Some(value) = &value {
        kept.push(Xattr { namespace, name: rest, value });
    }
    // Attributes of the format itself stay first.
    kept.sort_by_key(|xattr| !matches!(xattr.namespace, Namespace::Internal(_)));
    let encoded = encode(&kept);
    store(volume, ino, &encoded)
}

/// Stores attributes: in the inode as far as they fit, and the rest in a node.
pub(super) fn store(volume: &mut WriteVolume, ino: Nid, encoded: &[u8]) -> Result<()> {
    room::make(volume, 1, 2, Urgency::Normal)?;
    let layout = volume.inode(ino)?.inode;
    let has_room = layout.inline().contains(InlineFlags::XATTR);
    let inline = if has_room { layout.inline_xattrs(&volume.inode(ino)?.block).len() } else { 0 };
    let max = inline + NODE_BYTES - END_SIZE;
    if encoded.len() > max {
        return Err(CallerError::AttributesTooLarge(max).into());
    }
    let (here, rest) = encoded.split_at_checked(inline).unwrap_or((encoded, &[]));
    let block = volume.edit_inode(ino)?;
    if has_room {
        let room = layout.inline_xattrs_mut(block);
        room.fill(0);
        room.iter_mut().zip(here).for_each(|(to, from)| *to = *from);
    }
    // Four zeros end the list; if the inode's room is full to its last bytes they are in the node.
    let is_node_wanted = !rest.is_empty() || (inline > 0 && !encoded.is_empty() && encoded.len() + END_SIZE > inline);
    match (layout.xattr_nid(), is_node_wanted) {
        (None, false) => {}
        (Some(nid), false) => {
            volume.node(nid, ino, XATTR_OFFSET)?;
            volume.remove_node(nid)?;
            volume.edit_fields(ino)?.i_xattr_nid = 0.into();
            volume.count_inode_blocks(ino, -1)?;
        }
        (_, true) => fill_node(volume, ino, rest)?,
    }
    Ok(())
}

/// Fills the attribute node of an inode, which is made if missing, with these bytes and zeros.
pub(super) fn fill_node(volume: &mut WriteVolume, ino: Nid, bytes: &[u8]) -> Result<()> {
    let nid = match volume.inode(ino)?.inode.xattr_nid() {
        Some(nid) => nid,
        None => {
            let nid = volume.new_node(ino, XATTR_OFFSET)?;
            volume.edit_fields(ino)?.i_xattr_nid = nid.0.into();
            volume.count_inode_blocks(ino, 1)?;
            nid
        }
    };
    volume.chain.bar(ino);
    let block = volume.edit(nid, ino, XATTR_OFFSET)?;
    let area = block.get_mut(..NODE_BYTES).unwrap_or_default();
    area.fill(0);
    area.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Ok(())
}
