//! Flags of files and directories, as `chattr` sets them.
//!
//! Within one volume all flags are copied; from another one those that mean the same in every format. Flags about the
//! storage of contents are set before a file has data. A flag that the volume does not accept is told as a loss.

use std::path::Path;

use vfs::Metadata;
use vfs::file_system::NodeFlags;

use super::{Item, VolumeSink};
use crate::error::Result;
use crate::watch::{Loss, Watch};

/// Flags for the storage of contents: a new file needs them before it has data.
const STORAGE_FLAGS: NodeFlags = NodeFlags::NOCOW.union(NodeFlags::COMPRESS).union(NodeFlags::NOCOMPRESS);

/// Flags that mean the same in every format.
const PORTABLE_FLAGS: NodeFlags = STORAGE_FLAGS
    .union(NodeFlags::SYNC)
    .union(NodeFlags::IMMUTABLE)
    .union(NodeFlags::APPEND)
    .union(NodeFlags::NODUMP)
    .union(NodeFlags::NOATIME)
    .union(NodeFlags::DIRSYNC);

impl VolumeSink<'_> {
    /// True if a new file with contents got another kind of storage from its directory than its source has.
    pub(super) fn has_other_storage(&self, made: &Metadata, item: &Item<'_>) -> bool {
        let found = &item.node.attr;
        found.is_file() && found.size > 0 && (made.flags ^ found.flags).intersects(STORAGE_FLAGS)
    }

    /// Sets the flags about storage of a file without data.
    pub(super) fn set_storage_flags(&self, target: &Path, item: &Item<'_>) -> Result<()> {
        let made = self.volume.symlink_metadata(target)?;
        self.change_flags(target, &made, item.node.attr.flags & STORAGE_FLAGS, item.watch)
    }

    /// Sets the flags of a file, which are `made` so far.
    pub(super) fn set_flags(&self, target: &Path, made: &Metadata, item: &Item<'_>) -> Result<()> {
        self.change_flags(target, made, item.node.attr.flags, item.watch)
    }

    /// Sets the flags of a directory after its names were made, since these would inherit them.
    pub(super) fn set_dir_flags(&self, target: &Path, attr: &Metadata, watch: &dyn Watch) -> Result<()> {
        let made = self.volume.symlink_metadata(target)?;
        self.change_flags(target, &made, attr.flags, watch)
    }

    fn change_flags(&self, target: &Path, made: &Metadata, flags: NodeFlags, watch: &dyn Watch) -> Result<()> {
        let kept = if self.is_source() { NodeFlags::all() } else { PORTABLE_FLAGS };
        let flags = flags & kept;
        if flags == made.flags & kept || !(made.is_file() || made.is_dir()) {
            return Ok(());
        }
        // NOCOW and COMPRESS exclude each other: the old flag is cleared before the new one is set.
        if (flags ^ made.flags).contains(NodeFlags::NOCOW) {
            let cleared = self.volume.set_flags(target, made.flags.difference(STORAGE_FLAGS));
            self.keep(cleared, watch)?;
        }
        let set = self.volume.set_flags(target, flags);
        self.keep(set, watch)
    }

    fn keep(&self, set: vfs::Result<()>, watch: &dyn Watch) -> Result<()> {
        match set {
            Err(error) if self.is_loss(&error) => watch.lost(Loss::Attribute),
            set => set?,
        }
        Ok(())
    }
}
