//! Implements [`vfs::FileSystem`] for btrfs, the only place that knows node numbers and errnos.
//!
//! [`BtrfsFs`] turns nodes into inodes (`nodes`), requests into operations of `dir`, `file` and `subvol`, and errors
//! into errnos (`errno`). There is no table of nodes: a number identifies its inode, and references and openings are
//! counted in the inode itself, which the inode table keeps for as long as there are any. The state of an opening is in
//! its number (`handles`).
//!
//! This module implements the rules of Linux beyond the format: attributes that a new node inherits (`names`),
//! privileges and access lists that change with owner, mode and contents (`attr`, `xattr`), names of flags (`flags`),
//! and the background work (`background`, `balancing`).
//!
//! Invariants
//! * A request takes no lock that a request for an unrelated node takes too, but the store's.
//! * A node that is referred to, or open, is not removed before it is released, regardless of its names: a program that
//!   looked a name up continues with the file that it led to. Among very many files some references are forgotten (not
//!   with [`FsOptions::pin_known`]); the inodes of those are read again.
//! * Only open files keep a deleted subvolume: a kernel may refer to its nodes for as long as it likes.
//! * Related attributes (mode and list, owner and lost privileges) change in one transaction.
//!
//! Failure: callers' mistakes as their errno before anything changes. Damage and device errors are `EIO` for requests
//! that need the damaged part, and are logged once each, with their place. One that stopped all writing is reported to
//! each opening once, by its next sync.
//!
//! Callers: servers, through the trait.

mod attr;
mod background;
mod balancing;
mod control;
mod control_change;
mod control_look;
mod data;
mod errno;
mod file_system;
mod flags;
mod handles;
mod list;
mod names;
mod nodes;
mod privileges;
mod stat;
mod subvolumes;
mod whole_node;
mod xattr;

use std::sync::Arc;
use std::time::Duration;

use btrfs_disk::{InodeNo, TreeId};
use vfs::NodeId;
use vfs::file_system::{Answer, Entry};

use crate::dir::{Hold, Namespace};
use crate::error::{CallerError, Error, Result};
use crate::inode::{Core, Inode};
use crate::log;
use crate::open_volume::OpenVolume;
use crate::subvol;

use background::Background;
use balancing::Balancing;
use errno::FaultLog;
use handles::Handles;
use nodes::{Nodes, Place};

pub use flags::node_flags;
pub(crate) use vfs::AtimeMode;

/// Time between commits, as in the kernel.
const COMMIT_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);

/// How a volume is served.
#[derive(Debug, Clone)]
pub struct FsOptions {
    /// Which reads change the time of the last access.
    pub atime: AtimeMode,
    /// The longest time before a change is durable.
    pub commit_interval: Duration,
    /// Every node that the server refers to counts as open, however many they are: for a server that does not report
    /// openings.
    pub pin_known: bool,
    /// Programs may make, delete and freeze subvolumes by `ioctl(2)`. Permission depends on owners, permission bits and
    /// access control lists alone: capabilities and mount flags are not known to a server, so these operations work
    /// through a mount that the kernel made read-only.
    pub user_subvol_ioctls: bool,
    /// A block group of which less than this many percent are in use, and were before, is moved to others of its kind
    /// in the background; 0 for none.
    pub bg_reclaim_threshold: u8,
    /// A balance that was running when the volume was last served is not resumed.
    pub skip_balance: bool,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self {
            atime: AtimeMode::default(),
            commit_interval: COMMIT_INTERVAL_DEFAULT,
            pin_known: false,
            user_subvol_ioctls: false,
            bg_reclaim_threshold: 0,
            skip_balance: false,
        }
    }
}

/// Which thread takes deleted subvolumes apart once they are not in use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cleaner {
    /// The server, which calls [`vfs::FileSystem::step`].
    Steps,
    /// The call that drops the last reference: without a server `step` is not called.
    LastUser,
}

/// A volume behind the interface of a file system. Its root is the subvolume that the volume was
/// opened with.
#[derive(Debug)]
pub(crate) struct BtrfsFs {
    volume: Arc<OpenVolume>,
    nodes: Nodes,
    handles: Handles,
    options: FsOptions,
    faults: FaultLog,
    background: Background,
    balancing: Balancing,
    cleaner: Cleaner,
}

impl BtrfsFs {
    /// Serves a volume.
    ///
    /// # Errors
    /// When the root directory cannot be read.
    pub(crate) fn serve(
        volume: &Arc<OpenVolume>,
        options: FsOptions,
        cleaner: Cleaner,
    ) -> Result<Arc<dyn vfs::FileSystem>> {
        let (top, core) = (volume.top, volume.core());
        core.root_dir(top)?;
        let fs = Self {
            volume: Arc::clone(volume),
            nodes: Nodes::new(top, core.store.env().random_u64()),
            handles: Handles::default(),
            background: Background::new(&options, core.now()),
            balancing: Balancing::default(),
            options,
            faults: FaultLog::default(),
            cleaner,
        };
        if cleaner == Cleaner::Steps && !volume.is_read_only() && !fs.options.skip_balance {
            fs.resume_balance();
        }
        Ok(Arc::new(fs))
    }

    fn namespace(&self) -> &Arc<Namespace> {
        &self.volume.namespace
    }

    fn core(&self) -> &Core {
        self.volume.core()
    }

    /// Converts a result to the answer to a request.
    fn answer<T>(&self, result: Result<T>) -> Answer<T> {
        result.map_err(|error| self.faults.answer(error))
    }

    /// Tree and number of a node's inode.
    fn locate(&self, node: NodeId) -> Result<(TreeId, InodeNo)> {
        self.nodes.inode(node).ok_or_else(|| CallerError::Stale.into())
    }

    /// The inode of a node.
    fn inode(&self, node: NodeId) -> Result<Arc<Inode>> {
        let (tree, ino) = self.locate(node)?;
        self.core().inode(tree, ino).map_err(stale)
    }

    /// The inode of a node that is about to be changed, held until the guard is dropped: the server's reference may be
    /// among those that were forgotten.
    fn live_inode(&self, node: NodeId) -> Result<Hold<'_>> {
        self.namespace().hold(&self.inode(node)?)
    }

    /// Syncs an inode, or the names of a directory, if its flags ask for that.
    fn sync_marked(&self, inode: &Arc<Inode>) -> Result<()> {
        log::sync_marked(self.namespace(), inode)
    }

    /// The entry of a node for the server, which gets a reference.
    fn entry(&self, place: Place, inode: &Inode) -> Result<Entry> {
        inode.add_known()?;
        if self.options.pin_known {
            inode.open_again();
        }
        Ok(self.counted_entry(place, inode))
    }

    /// As [`BtrfsFs::entry`], for a reference that was counted before.
    fn counted_entry(&self, place: Place, inode: &Inode) -> Entry {
        let node = self.nodes.take(place);
        let metadata = inode.metadata();
        Entry {
            node,
            generation: match node {
                // The kernel expects generation 0.
                NodeId::ROOT => 0,
                _ => metadata.generation.0,
            },
            attr: stat::attr_of(&metadata, self.nodes.shown(node)),
        }
    }

    /// Drops references of the server.
    fn forget_node(&self, node: NodeId, count: u64) {
        let located = self.nodes.inode(node);
        self.nodes.forget_odd(node, count);
        let Some((tree, ino)) = located else { return };
        let Some(inode) = self.core().inodes.get(tree, ino) else {
            self.handles.forget(node);
            return;
        };
        let dropped = inode.drop_known(count);
        if self.options.pin_known {
            for _ in 0..dropped {
                self.close(&inode);
            }
        }
        if inode.is_known() {
            return;
        }
        self.handles.forget(node);
        self.reap(&inode);
    }

    /// Closes a handle; the last one removes an inode without names.
    fn close(&self, inode: &Inode) {
        if let Some((at, waiting)) = inode.data.end_growth() {
            self.core().store.end_window(at, waiting);
        }
        inode.close();
        self.reap(inode);
    }

    /// Removes an inode without names that is not in use any more.
    fn reap(&self, inode: &Inode) {
        // Where removal fails, the orphan item stays and the next open of the volume tries again.
        if let Err(error) = self.namespace().reap_if_last(inode) {
            self.faults.errno(&error);
        }
    }

    /// Cleans up after what may have been the last user of a deleted subvolume.
    fn clean(&self) {
        if self.cleaner == Cleaner::Steps {
            return;
        }
        // Where this fails, the next open of the volume continues.
        if let Err(error) = subvol::drop_dead_trees(self.namespace()) {
            self.faults.errno(&error);
        }
    }
}

impl BtrfsFs {
    /// Drops the references of a server that ends, which need not do so itself: inodes that only it kept are removed
    /// now, not at the next open of the volume.
    fn let_go(&self) {
        // For a part of a volume, every call drops its references; the remaining ones are another server's.
        if self.volume.is_read_only() || self.volume.is_part {
            return;
        }
        let is_kept = |inode: &Inode| inode.is_known() && (inode.is_nameless() || inode.root.is_deleted());
        let let_go = |inode: &Arc<Inode>| {
            let dropped = inode.drop_known(u64::MAX);
            for _ in 0..if self.options.pin_known { dropped } else { 0 } {
                inode.close();
            }
            self.reap(inode);
            Ok(())
        };
        if let Err(error) = self.core().inodes.for_each(is_kept, let_go) {
            self.faults.errno(&error);
        }
    }
}

impl Drop for BtrfsFs {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Turns the error of a missing inode into that of a stale node.
fn stale(error: Error) -> Error {
    match error.caller_error() {
        Some(CallerError::NotFound | CallerError::NoSuchSubvolume) => CallerError::Stale.into(),
        _ => error,
    }
}
