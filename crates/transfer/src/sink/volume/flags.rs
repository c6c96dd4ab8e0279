//! Sets flags of files and directories, as `chattr` sets them. Called by `sink/volume`.
//!
//! Within one volume all flags are copied; from another one those that mean the same in every format. Flags about the
//! storage of contents are set before a file has data. A flag that the volume does not accept is told as a loss.

use std::path::Path;

use vfs::file_system::NodeFlags;
use vfs::{Errno, Metadata, Volume};

use crate::error::Result;
use crate::observer::{Loss, Observer};

/// Flags for the storage of contents: a new file needs them before it has data.
const STORAGE_FLAGS: NodeFlags = NodeFlags::NOCOW.union(NodeFlags::COMPRESS).union(NodeFlags::NOCOMPRESS);

/// Protected by fs-verity (`FS_VERITY_FL`): no flag that can be set. A copy has the contents, and no hash tree.
const VERITY: NodeFlags = NodeFlags::from_bits_retain(0x10_0000);

/// Flags that mean the same in every format.
const PORTABLE_FLAGS: NodeFlags = STORAGE_FLAGS
    .union(NodeFlags::SYNC)
    .union(NodeFlags::IMMUTABLE)
    .union(NodeFlags::APPEND)
    .union(NodeFlags::NODUMP)
    .union(NodeFlags::NOATIME)
    .union(NodeFlags::DIRSYNC);

/// Copies flags to files of a volume.
#[derive(Clone, Copy)]
pub(super) struct Flags<'a> {
    pub(super) volume: &'a Volume,
    /// They come from the same volume.
    pub(super) is_within: bool,
    pub(super) watch: &'a dyn Observer,
}

/// True if a new file with contents got another kind of storage from its directory than its source has.
pub(super) fn has_other_storage(made: &Metadata, found: &Metadata) -> bool {
    found.is_file() && found.size > 0 && (made.flags ^ found.flags).intersects(STORAGE_FLAGS)
}

/// True for an attribute or flag that a volume does not accept.
pub(super) fn is_refusal(error: &vfs::Error) -> bool {
    [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::EPERM, Errno::ERANGE].contains(&error.errno())
}

impl Flags<'_> {
    /// Sets those about storage of a file without data.
    pub(super) fn set_storage(self, target: &Path, wanted: NodeFlags) -> Result<()> {
        let made = self.volume.symlink_metadata(target)?;
        self.set(target, &made, wanted & STORAGE_FLAGS)
    }

    /// Sets those of a file or directory, which are `made` so far. Of a directory this comes after its names, since
    /// these would inherit them.
    pub(super) fn set(self, target: &Path, made: &Metadata, wanted: NodeFlags) -> Result<()> {
        let kept = if self.is_within { NodeFlags::all() - VERITY } else { PORTABLE_FLAGS };
        if self.is_within && wanted.contains(VERITY) && !made.flags.contains(VERITY) {
            self.watch.lost(Loss::Attribute);
        }
        let flags = wanted & kept;
        if flags == made.flags & kept || !(made.is_file() || made.is_dir()) {
            return Ok(());
        }
        // NOCOW and COMPRESS exclude each other: the old flag is cleared before the new one is set.
        if (flags ^ made.flags).contains(NodeFlags::NOCOW) {
            self.keep(self.volume.set_flags(target, made.flags.difference(STORAGE_FLAGS)))?;
        }
        self.keep(self.volume.set_flags(target, flags))
    }

    fn keep(self, set: vfs::Result<()>) -> Result<()> {
        match set {
            Err(error) if !self.is_within && is_refusal(&error) => self.watch.lost(Loss::Attribute),
            set => set?,
        }
        Ok(())
    }
}
