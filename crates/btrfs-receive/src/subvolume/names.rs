//! Applies commands that create, rename and remove directory entries. Called by `Target::apply`.

use super::Target;
use crate::error::Cause;
use btrfs_stream::{Command, Special};
use vfs::file_system::{Caller, NodeKind, RenameFlags, WholeNode};

/// Permissions until the stream sets them.
const FILE_PERMISSIONS: u32 = 0o600;
const DIRECTORY_PERMISSIONS: u32 = 0o700;
const SYMLINK_PERMISSIONS: u32 = 0o777;

impl Target {
    pub(super) fn change_names(&mut self, command: &Command<'_>) -> Result<(), Cause> {
        let node = |kind, permissions| WholeNode { kind, permissions, ..WholeNode::default() };
        match *command {
            Command::Mkfile { path, .. } => self.make(path, &node(NodeKind::File, FILE_PERMISSIONS)),
            Command::Mkdir { path, .. } => self.make(path, &node(NodeKind::Directory, DIRECTORY_PERMISSIONS)),
            Command::Mknod(special) => {
                let kind = device_kind(&special)?;
                let found = special.rdev;
                let rdev = u32::try_from(found).map_err(|_| Cause::Value { what: "the device", found })?;
                self.make(special.path, &WholeNode { rdev, ..node(kind, FILE_PERMISSIONS) })
            }
            Command::Mkfifo(special) => self.make(special.path, &node(NodeKind::Fifo, FILE_PERMISSIONS)),
            Command::Mksock(special) => self.make(special.path, &node(NodeKind::Socket, FILE_PERMISSIONS)),
            Command::Symlink { path, target, .. } => {
                self.make(path, &WholeNode { target, ..node(NodeKind::Symlink, SYMLINK_PERMISSIONS) })
            }
            Command::Rename { path, to } => {
                let (from_dir, from) = self.parent(path)?;
                let (to_dir, to) = self.parent(to)?;
                self.let_go();
                let places = ((from_dir.node(), from), (to_dir.node(), to));
                Ok(self.fs.rename(&Caller::default(), places.0, places.1, RenameFlags::empty())?)
            }
            Command::Link { path, existing } => {
                let existing = self.find(existing)?;
                let (dir, name) = self.parent(path)?;
                let made = self.fs.link(existing.node(), dir.node(), name)?;
                self.fs.forget(made.node, 1);
                Ok(())
            }
            Command::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                self.let_go();
                Ok(self.fs.unlink(dir.node(), name)?)
            }
            Command::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                // Refuses other subvolumes, since `remove_dir` would delete an empty one.
                dir.child(name)?;
                self.let_go();
                Ok(self.fs.remove_dir(dir.node(), name)?)
            }
            // Other modules apply the other commands.
            _ => Err(Cause::NoSubvolume),
        }
    }

    fn make(&mut self, path: &[u8], node: &WholeNode<'_>) -> Result<(), Cause> {
        let (dir, name) = self.parent(path)?;
        self.fs.create_whole(dir.node(), name, node)?;
        Ok(())
    }
}

fn device_kind(special: &Special<'_>) -> Result<NodeKind, Cause> {
    let type_bits = special.mode & u64::from(NodeKind::MODE_MASK);
    let kinds = [NodeKind::CharDevice, NodeKind::BlockDevice];
    let kind = kinds.into_iter().find(|kind| u64::from(kind.mode_bits()) == type_bits);
    kind.ok_or(Cause::Value { what: "the type of a device node", found: special.mode })
}
