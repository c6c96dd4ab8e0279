//! Formats any item as one line of text, for the command `dump` and the example `verify_image`.

use std::fmt;

use super::{
    BalanceItem, BlockGroupItem, ChunkItem, DevExtent, DevItem, DevStatsItem, DirEntry, DirLogItem, ExtentDataRef,
    ExtentView, FileExtent, FreeSpaceHeader, FreeSpaceInfo, InodeExtrefEntry, InodeItem, InodeRefEntry, OnDisk,
    QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, RootItem, RootRefEntry, SharedDataRef, VerityDescriptorItem,
    uuid_of_key, uuid_subvolumes,
};
use crate::Key;
use crate::error::Corrupt;
use crate::key::{item_type, objectid};

/// Displays an item according to the type in its key. Invalid items show the parse error, and types without a structure
/// show their size.
#[derive(Clone, Copy, Debug)]
pub struct ShowItem<'a>(pub Key, pub &'a [u8]);

impl fmt::Display for ShowItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key, data) = self;
        match key.item_type {
            item_type::INODE_ITEM => show(f, InodeItem::parse(data)),
            item_type::INODE_REF => show_all(f, InodeRefEntry::iter(data)),
            item_type::INODE_EXTREF => show_all(f, InodeExtrefEntry::iter(data)),
            item_type::DIR_ITEM | item_type::DIR_INDEX | item_type::XATTR_ITEM => show_all(f, DirEntry::iter(data)),
            item_type::DIR_LOG_INDEX => show(f, DirLogItem::parse(data)),
            item_type::EXTENT_DATA => show(f, FileExtent::parse(data)),
            item_type::ROOT_ITEM => show(f, RootItem::read(data)),
            item_type::ROOT_REF | item_type::ROOT_BACKREF => show(f, RootRefEntry::parse(data)),
            item_type::VERITY_DESC_ITEM if key.offset == 0 => show(f, VerityDescriptorItem::parse(data)),
            _ => self.show_rare(f),
        }
    }
}

impl ShowItem<'_> {
    /// The items of the trees that describe the file system itself.
    fn show_rare(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key, data) = self;
        match key.item_type {
            item_type::EXTENT_ITEM | item_type::METADATA_ITEM => show(f, ExtentView::parse(key, data)),
            item_type::EXTENT_DATA_REF => show(f, ExtentDataRef::parse(data)),
            item_type::SHARED_DATA_REF => show(f, SharedDataRef::parse(data)),
            item_type::BLOCK_GROUP_ITEM => show(f, BlockGroupItem::parse_prefix(data).map(|(item, _)| item)),
            item_type::FREE_SPACE_INFO => show(f, FreeSpaceInfo::parse(data)),
            item_type::CHUNK_ITEM => show(f, ChunkItem::parse(data)),
            item_type::DEV_ITEM => show(f, DevItem::parse(data)),
            item_type::DEV_EXTENT => show(f, DevExtent::parse(data)),
            item_type::TEMPORARY_ITEM => show(f, BalanceItem::parse_prefix(data).map(|(item, _)| item)),
            item_type::PERSISTENT_ITEM => show(f, DevStatsItem::parse_prefix(data).map(|(item, _)| item)),
            item_type::QGROUP_STATUS => {
                show(f, QgroupStatusItem::parse_prefix(data).map(|(item, _)| item))?;
                match QgroupStatusItem::enable_generation(data) {
                    Some(enabled) => write!(f, " enabled {enabled}"),
                    None => Ok(()),
                }
            }
            item_type::QGROUP_INFO => show(f, QgroupInfoItem::parse(data)),
            item_type::QGROUP_LIMIT => show(f, QgroupLimitItem::parse(data)),
            item_type::UUID_KEY_SUBVOL | item_type::UUID_KEY_RECEIVED_SUBVOL => {
                write!(f, "uuid {} subvolumes", uuid_of_key(key))?;
                match uuid_subvolumes(data) {
                    Ok(mut ids) => ids.try_for_each(|id| write!(f, " {id}")),
                    Err(error) => write!(f, " {error}"),
                }
            }
            0 if key.objectid == objectid::FREE_SPACE => show(f, FreeSpaceHeader::parse(data)),
            _ => write!(f, "{} bytes", data.len()),
        }
    }
}

fn show(f: &mut fmt::Formatter<'_>, item: Result<impl fmt::Display, Corrupt>) -> fmt::Result {
    match item {
        Ok(item) => item.fmt(f),
        Err(error) => write!(f, "{error}"),
    }
}

fn show_all<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = Result<T, Corrupt>>,
) -> fmt::Result {
    for (index, item) in items.enumerate() {
        if index > 0 {
            f.write_str("; ")?;
        }
        show(f, item)?;
    }
    Ok(())
}
