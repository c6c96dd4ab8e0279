//! Reads extended attributes. Called by `vfs_impl` (`xattr`, `file_system`), `verity` and `change/xattrs`.

use f2fs_disk::acl;
use f2fs_disk::node::{self, XATTR_OFFSET};
use f2fs_disk::xattr::{Xattr, entries};
use f2fs_disk::{At, Corrupt};

use crate::error::{CallerError, Result};
use crate::read_volume::{Node, ReadVolume};

/// The name of the attribute that shows an inode's hints; it is not listed.
const ADVISE_NAME: &[u8] = b"system.advise";

/// The names that programs see.
pub(crate) fn names(volume: &ReadVolume, node: &Node) -> Result<Vec<Vec<u8>>> {
    let bytes = stored(volume, node)?;
    let mut names = Vec::new();
    for xattr in entries(&bytes) {
        let xattr = xattr.map_err(|error| at(node, error))?;
        names.extend(xattr.full_name());
    }
    Ok(names)
}

/// The value of an attribute in Linux's form.
///
/// # Errors
/// [`CallerError::NoAttribute`].
pub(crate) fn value(volume: &ReadVolume, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
    if name == ADVISE_NAME {
        return Ok(vec![node.inode.advise().bits()]);
    }
    let bytes = stored(volume, node)?;
    for xattr in entries(&bytes) {
        let xattr = xattr.map_err(|error| at(node, error))?;
        if is_called(&xattr, name) {
            return shown(node, &xattr);
        }
    }
    Err(CallerError::NoAttribute.into())
}

pub(crate) fn is_called(xattr: &Xattr<'_>, name: &[u8]) -> bool {
    let Some(rest) = xattr.namespace.prefix().and_then(|prefix| name.strip_prefix(prefix.as_bytes())) else {
        return false;
    };
    if xattr.namespace.is_acl() { rest.is_empty() } else { rest == xattr.name }
}

fn shown(node: &Node, xattr: &Xattr<'_>) -> Result<Vec<u8>> {
    if xattr.namespace.is_acl() {
        return acl::to_linux(xattr.value).map_err(|error| at(node, error).into());
    }
    Ok(xattr.value.to_vec())
}

fn at(node: &Node, error: Corrupt) -> Corrupt {
    error.at(At::Inode(node.ino()))
}

/// The attribute bytes in the inode, followed by those in the attribute node.
pub(crate) fn stored(volume: &ReadVolume, node: &Node) -> Result<Vec<u8>> {
    let mut bytes = node.inode.inline_xattrs(&node.block).to_vec();
    let block = match (volume.fsynced(node.ino(), XATTR_OFFSET)?, node.inode.xattr_nid()) {
        (Some(block), _) => block,
        (None, Some(nid)) => volume.node(nid, node.ino(), XATTR_OFFSET)?,
        (None, None) => return Ok(bytes),
    };
    bytes.extend_from_slice(node::contents(&block));
    Ok(bytes)
}
