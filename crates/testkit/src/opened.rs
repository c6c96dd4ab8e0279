//! An open btrfs volume: its own interface, and that of every format.

use anyhow::Result;
use spinney::{BtrfsFs, Volume};
use std::ops::Deref;

/// Handles on one volume. Used as the volume by paths; clones share it.
#[derive(Debug, Clone)]
pub struct Opened {
    // Let go of first, so that what its references kept goes while the volume is open.
    by_paths: vfs::Volume,
    own: Volume,
}

impl Opened {
    /// Takes over a volume.
    ///
    /// # Errors
    /// When its root cannot be read.
    pub fn new(own: Volume) -> Result<Self> {
        Ok(Self { by_paths: BtrfsFs::by_paths(&own)?, own })
    }

    /// What only btrfs has.
    #[must_use]
    pub fn own(&self) -> &Volume {
        &self.own
    }

    /// Syncs and closes it; the device is let go of with the last handle.
    ///
    /// # Errors
    /// The volume's.
    pub fn close(self) -> vfs::Result<()> {
        self.by_paths.sync()
    }
}

impl AsRef<vfs::Volume> for Opened {
    fn as_ref(&self) -> &vfs::Volume {
        &self.by_paths
    }
}

impl Deref for Opened {
    type Target = vfs::Volume;

    fn deref(&self) -> &vfs::Volume {
        &self.by_paths
    }
}
