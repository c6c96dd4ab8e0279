//! Verifies directory entries and extended attributes. `tree_block` calls it for each such item; other rules use the
//! checks of names and inode keys.

use super::{Context, equal, require};
use crate::convert::{to_u64, usize_from};
use crate::error::{Corrupt, Detail};
use crate::hash::name_hash;
use crate::items::{DIR_TYPE_XATTR, DirEntry, NAME_LEN_MAX};
use crate::key::{item_type, objectid};
use crate::node::item_data_max;
use crate::{Key, TreeId};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    context.follows_its_inode()?;
    let mut rest = context.data;
    while !rest.is_empty() {
        let (entry, after) = DirEntry::parse_prefix(rest)?;
        location(&entry.location())?;
        let dir_type = entry.item.dir_type;
        require(
            entry.kind().is_some(),
            "type of a directory entry",
            Detail::Range(1, 7),
            Detail::Number(u64::from(dir_type)),
        )?;
        equal("data size of a directory entry", to_u64(entry.data.len()), 0)?;
        file_name(entry.name)?;
        if context.key.item_type == item_type::DIR_ITEM {
            hash(context, entry.name)?;
        }
        rest = after;
    }
    Ok(())
}

pub(super) fn verify_xattr(context: &Context<'_>) -> Result<(), Corrupt> {
    context.follows_its_inode()?;
    let size_max = usize_from(item_data_max(context.format.nodesize));
    let mut rest = context.data;
    while !rest.is_empty() {
        let (entry, after) = DirEntry::parse_prefix(rest)?;
        require(entry.location() == Key::MIN, "location of an attribute", Key::MIN.into(), entry.location().into())?;
        let dir_type = u64::from(entry.item.dir_type);
        equal("type of an attribute", dir_type, u64::from(DIR_TYPE_XATTR))?;
        name_bytes(entry.name)?;
        let size = rest.len().saturating_sub(after.len());
        require(size <= size_max, "size of an attribute", Detail::AtMost(to_u64(size_max)), Detail::size(size))?;
        hash(context, entry.name)?;
        rest = after;
    }
    Ok(())
}

/// A name refers to an inode of the same subvolume or to another subvolume.
fn location(key: &Key) -> Result<(), Corrupt> {
    match key.item_type {
        item_type::ROOT_ITEM => require(
            TreeId(key.objectid).is_subvolume(),
            "subvolume that a name leads to",
            Detail::Text("a subvolume's number"),
            (*key).into(),
        ),
        item_type::INODE_ITEM | 0 => inode_key(key),
        other => Err(Corrupt::new(
            "type of a name's location",
            Detail::Text("1 (inode) or 132 (subvolume)"),
            Detail::Number(u64::from(other)),
        )),
    }
}

/// The key of an inode item.
pub(super) fn inode_key(key: &Key) -> Result<(), Corrupt> {
    let number = key.objectid;
    let is_inode = (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&number)
        || number == objectid::ROOT_TREE_DIR
        || number == objectid::FREE_INO;
    require(
        is_inode,
        "inode number",
        Detail::Range(objectid::FIRST_FREE, objectid::LAST_FREE),
        Detail::Number(number),
    )?;
    equal("offset in the key of an inode", key.offset, 0)
}

/// A name that may stand in a directory.
pub(super) fn file_name(name: &[u8]) -> Result<(), Corrupt> {
    name_bytes(name)?;
    require(!name.contains(&b'/'), "name", Detail::Text("no slash"), Detail::bytes(name))?;
    require(name != b"." && name != b"..", "name", Detail::Text("neither . nor .."), Detail::bytes(name))
}

/// A name of any kind: some bytes, not too many, no NUL.
fn name_bytes(name: &[u8]) -> Result<(), Corrupt> {
    require(
        (1..=NAME_LEN_MAX).contains(&name.len()),
        "length of a name",
        Detail::Range(1, to_u64(NAME_LEN_MAX)),
        Detail::size(name.len()),
    )?;
    require(!name.contains(&0), "name", Detail::Text("no NUL byte"), Detail::bytes(name))
}

fn hash(context: &Context<'_>, name: &[u8]) -> Result<(), Corrupt> {
    let computed = name_hash(name);
    require(computed == context.key.offset, "hash of a name", Detail::Hex(computed), Detail::Hex(context.key.offset))
}
