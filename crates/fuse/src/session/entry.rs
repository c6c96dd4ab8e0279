//! Answers requests on names and the nodes they lead to: looking up, making, linking, renaming, removing. Called by
//! `service`.

use super::encode::{Timeouts, put, put_bytes};
use crate::protocol::Request;
use crate::protocol::requests::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use vfs::FileSystem;
use vfs::file_system::{Entry, Errno, NewNode, NodeId, NodeKind, RenameFlags, Result};

/// Permission bits of a mode.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// Requests about names.
pub(super) struct Names<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) timeouts: Timeouts,
}

impl Names<'_> {
    pub(super) fn lookup(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        match self.fs.lookup(request.node(), request.name()?) {
            Ok(entry) => self.put_entry(out, &entry),
            // The kernel caches a missing name, but not an error.
            Err(error) if error.is_not_found() => put(out, &self.timeouts.no_entry()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn readlink(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        put_bytes(out, &self.fs.read_link(request.node())?)
    }

    pub(super) fn symlink(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let (name, target) = request.two_names()?;
        let new = NewNode { kind: NodeKind::Symlink, permissions: 0o777, target, ..NewNode::default() };
        self.make(request, name, &new, out)
    }

    pub(super) fn mknod(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: MknodIn = request.args()?;
        let new = NewNode {
            kind: NodeKind::from_mode(args.mode).ok_or(Errno::EINVAL)?,
            permissions: args.mode & PERMISSIONS,
            umask: args.umask,
            rdev: args.rdev,
            target: &[],
        };
        self.make(request, request.name()?, &new, out)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: MkdirIn = request.args()?;
        let new = NewNode {
            kind: NodeKind::Directory,
            permissions: args.mode & PERMISSIONS,
            umask: args.umask,
            ..NewNode::default()
        };
        self.make(request, request.name()?, &new, out)
    }

    fn make(&self, request: &Request<'_>, name: &[u8], new: &NewNode<'_>, out: &mut [u8]) -> Result<usize> {
        let entry = self.fs.create(&request.creator()?, request.node(), name, new)?;
        self.put_entry(out, &entry)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Result<usize> {
        self.fs.unlink(request.node(), request.name()?)?;
        Ok(0)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Result<usize> {
        self.fs.remove_dir(request.node(), request.name()?)?;
        Ok(0)
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Result<usize> {
        let args: RenameIn = request.args()?;
        self.move_name(request, NodeId(args.newdir), RenameFlags::empty())
    }

    pub(super) fn rename2(&self, request: &Request<'_>) -> Result<usize> {
        let args: Rename2In = request.args()?;
        let flags = RenameFlags::from_bits(args.flags).ok_or(Errno::EINVAL)?;
        self.move_name(request, NodeId(args.newdir), flags)
    }

    fn move_name(&self, request: &Request<'_>, to: NodeId, flags: RenameFlags) -> Result<usize> {
        let (old, new) = request.two_names()?;
        let caller = match flags.contains(RenameFlags::WHITEOUT) {
            true => request.creator()?,
            false => request.caller(),
        };
        self.fs.rename(&caller, (request.node(), old), (to, new), flags)?;
        Ok(0)
    }

    pub(super) fn link(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: LinkIn = request.args()?;
        let node = NodeId(args.oldnodeid);
        let entry = self.fs.link(node, request.node(), request.name()?)?;
        self.put_entry(out, &entry)
    }

    /// Writes the entry of a node. From now on the kernel owns the reference to it.
    pub(super) fn put_entry(&self, out: &mut [u8], entry: &Entry) -> Result<usize> {
        put(out, &self.timeouts.entry(entry))
    }
}
