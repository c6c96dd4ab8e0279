//! Encodes requests of clients about subvolumes. `client/subvolumes` makes them, `serve/subvolumes` answers them.

use serde::{Deserialize, Serialize};
use vfs::NodeId;
use vfs::file_system::SnapshotMode;

/// A call of [`vfs::file_system::Subvolumes`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum SubvolumeCall<'a> {
    Create {
        /// User and group of the new subvolume; used only if the client is root.
        owner: (u32, u32),
        parent: NodeId,
        name: &'a [u8],
    },
    Snapshot {
        source: NodeId,
        parent: NodeId,
        name: &'a [u8],
        mode: SnapshotMode,
    },
    Delete {
        parent: NodeId,
        name: &'a [u8],
    },
    SetMode {
        root: NodeId,
        mode: SnapshotMode,
    },
    ForgetReceived {
        root: NodeId,
    },
    SetDefault {
        root: NodeId,
    },
}
