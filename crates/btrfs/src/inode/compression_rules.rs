//! Decides whether and how the data of a file is compressed: by the volume's options, the file's flags, and its
//! property. Called by writeback and defragmentation.

use btrfs_disk::flags::InodeFlags;
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::DirEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{Corrupt, Key};
use codec::CompressionType;

use super::compression::{COMPRESSION_NAME, Compression, CompressionProperty};
use super::{Core, Inode};
use crate::error::Result;

/// The algorithm for the compression flag where neither option nor property names one, as in the kernel.
const DEFAULT_KIND: CompressionType = CompressionType::Zlib;

/// True for a file whose data is never compressed: it may be overwritten in place, has no checksums, or lies in space
/// that was preallocated for it.
pub(crate) fn keeps_plain(flags: InodeFlags) -> bool {
    flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM | InodeFlags::PREALLOC)
}

impl Core {
    /// Whether new data of a file with these flags may be compressed.
    pub(crate) fn may_compress(&self, flags: InodeFlags) -> bool {
        if keeps_plain(flags) {
            return false;
        }
        match self.settings.compress {
            Some(Compression { is_forced: true, .. }) => true,
            Some(_) => !flags.contains(InodeFlags::NOCOMPRESS),
            None => flags.contains(InodeFlags::COMPRESS) && !flags.contains(InodeFlags::NOCOMPRESS),
        }
    }

    /// How new data of a file with these flags is compressed; `None` for not at all. The file's property selects the
    /// algorithm before the volume's option does; the level is that of the option.
    ///
    /// # Errors
    /// When the property cannot be read.
    pub(crate) fn compression(&self, inode: &Inode, flags: InodeFlags) -> Result<Option<Compression>> {
        if !self.may_compress(flags) {
            return Ok(None);
        }
        let default = Compression { kind: DEFAULT_KIND, level: 0, is_forced: false };
        let general = self.settings.compress.unwrap_or(default);
        if !flags.contains(InodeFlags::COMPRESS) {
            return Ok(Some(general));
        }
        Ok(Some(match property(inode)? {
            CompressionProperty::As(own) if own.kind == general.kind && own.level == 0 => general,
            CompressionProperty::As(own) => Compression { is_forced: general.is_forced, ..own },
            CompressionProperty::Unset | CompressionProperty::Never => general,
        }))
    }
}

fn property(inode: &Inode) -> Result<CompressionProperty> {
    let key = Key::new(inode.ino().0, item_type::XATTR_ITEM, name_hash(COMPRESSION_NAME));
    let value = inode.root.tree.get_with(&key, |bytes| {
        let found = DirEntry::find(bytes, COMPRESSION_NAME)?;
        Ok::<_, Corrupt>(found.and_then(|(entry, _)| CompressionProperty::parse(entry.data)))
    })?;
    Ok(value.transpose()?.flatten().unwrap_or(CompressionProperty::Unset))
}
