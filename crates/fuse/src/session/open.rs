//! Answers requests that open, create and close files. Called by `service`.

use super::encode::{Timeouts, put};
use super::entry::PERMISSIONS;
use super::state::{Agreed, Answer, Caches};
use crate::notify::Stale;
use crate::protocol::Request;
use crate::protocol::replies::{EntryOut, OpenOut, open};
use crate::protocol::requests::{CreateIn, OPEN_KILL_SUIDGID, OpenIn, ReleaseIn};
use rustix::fs::OFlags;
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{Entry, Errno, Handle, NewNode, NodeId, NodeKind, OpenFlags, Result, SetAttr, SetTime};

/// Requests that open, create and close files.
pub(super) struct Openings<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) agreed: Agreed,
    pub(super) caches: &'a Caches,
}

impl Openings<'_> {
    pub(super) fn open(&self, request: &Request<'_>, out: &mut [u8]) -> Result<Answer> {
        if self.agreed.zero_open {
            return Err(Errno::ENOSYS);
        }
        let args: OpenIn = request.args()?;
        let flags = self.open_flags(args.flags);
        let handle = self.open_node(request, request.node(), flags, args.open_flags)?;
        self.note_opened(request.node(), args.flags);
        let is_old = self.is_old(request.node(), handle, flags);
        let len = put(out, &opened(handle, flags, is_old))?;
        Ok(match self.caches.room.is_short() && flags.contains(OpenFlags::WRITE) {
            true => Answer::DoneStale(len, Stale::attributes(request.node())),
            false => Answer::Done(len),
        })
    }

    pub(super) fn create(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: CreateIn = request.args()?;
        let flags = self.open_flags(args.flags);
        let name = request.name()?;
        let made = self.fs.create(&request.creator()?, request.node(), name, &new_file(&args));
        let entry = match made {
            Ok(entry) => entry,
            Err(error) if error.errno() == Errno::EEXIST && !flags.contains(OpenFlags::EXCLUSIVE) => {
                self.existing_file(request.node(), name)?
            }
            Err(error) => return Err(error.into()),
        };
        match self.open_node(request, entry.node, flags, args.open_flags) {
            Ok(handle) => self.put_opened_entry(out, &entry, handle, args.flags),
            Err(error) => {
                self.fs.forget(entry.node, 1);
                Err(error)
            }
        }
    }

    pub(super) fn tmpfile(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: CreateIn = request.args()?;
        let flags = self.open_flags(args.flags);
        let (entry, handle) = self.fs.create_unnamed(&request.creator()?, request.node(), &new_file(&args), flags)?;
        self.put_opened_entry(out, &entry, handle, args.flags)
    }

    pub(super) fn release(&self, request: &Request<'_>) -> Result<usize> {
        let args: ReleaseIn = request.args()?;
        // It is released already, see `put_opened_entry`.
        if !self.agreed.zero_open {
            self.fs.release(request.node(), Handle(args.fh));
            let mut flags = self.open_flags(args.flags);
            flags.set(
                OpenFlags::DIRECT,
                flags.contains(OpenFlags::DIRECT) | self.caches.room.closed_directly(Handle(args.fh)),
            );
            self.caches.direct.closed(request.node(), Handle(args.fh), flags);
            self.caches.room.closed(request.node(), args.flags);
            if !self.agreed.writeback {
                self.caches.mappable.closed(request.node(), args.flags);
            }
        }
        Ok(0)
    }

    /// An existing file of that name; the kernel expects no other kind of node from a creating request.
    fn existing_file(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let entry = self.fs.lookup(parent, name)?;
        if entry.attr.kind == NodeKind::File {
            return Ok(entry);
        }
        self.fs.forget(entry.node, 1);
        Err(Errno::EEXIST)
    }

    fn open_node(&self, request: &Request<'_>, node: NodeId, flags: OpenFlags, kernel_flags: u32) -> Result<Handle> {
        let caller = request.caller();
        let clears = kernel_flags & OPEN_KILL_SUIDGID != 0 && flags.contains(OpenFlags::TRUNCATE);
        if !clears {
            return Ok(self.fs.open(&caller, node, flags)?);
        }
        let handle = self.fs.open(&caller, node, flags - OpenFlags::TRUNCATE)?;
        let emptied = SetAttr {
            size: Some(0),
            mtime: Some(SetTime::Now),
            clear_privileges: true,
            handle: Some(handle),
            ..SetAttr::default()
        };
        match self.fs.set_attr(&caller, node, &emptied) {
            Ok(_) => Ok(handle),
            Err(error) => {
                self.fs.release(node, handle);
                Err(error.into())
            }
        }
    }

    fn open_flags(&self, raw: u32) -> OpenFlags {
        let mut flags = open_flags(raw);
        // To write back part of a page, the kernel first reads the page, through any handle.
        if self.agreed.writeback && flags.contains(OpenFlags::WRITE) {
            flags |= OpenFlags::READ;
        }
        flags
    }

    /// The reply that returns a node and opens it.
    ///
    /// A kernel that opens files without requests sends none either when it closes a file that was opened by creating
    /// it. Then the reference to the node keeps the file, like all others.
    fn put_opened_entry(&self, out: &mut [u8], entry: &Entry, handle: Handle, raw_flags: u32) -> Result<usize> {
        let mut flags = self.open_flags(raw_flags);
        // For direct writes the kernel does not sync on `O_SYNC` or `O_DSYNC`.
        let is_durable = flags.intersects(OpenFlags::SYNC | OpenFlags::DATA_SYNC);
        if self.caches.room.is_full()
            && flags.contains(OpenFlags::WRITE)
            && !is_durable
            && !flags.contains(OpenFlags::DIRECT)
        {
            flags |= OpenFlags::DIRECT;
            self.caches.room.opened_directly(handle);
        }
        // While space is short, the first write has to ask, too.
        let is_asked = self.caches.room.is_short() && flags.contains(OpenFlags::WRITE);
        let attr = if is_asked { Duration::ZERO } else { self.agreed.timeouts.attr };
        let len = put(out, &Timeouts { attr, ..self.agreed.timeouts }.entry(entry))?;
        let behind = out.get_mut(size_of::<EntryOut>()..).ok_or(Errno::EIO)?;
        let is_old = !self.agreed.zero_open && self.is_old(entry.node, handle, flags);
        let len = len + put(behind, &opened(handle, flags, is_old))?;
        if self.agreed.zero_open {
            self.fs.release(entry.node, handle);
        } else {
            self.note_opened(entry.node, raw_flags);
        }
        Ok(len)
    }

    /// True if the kernel's cached pages must not be used by this opening.
    fn is_old(&self, node: NodeId, handle: Handle, flags: OpenFlags) -> bool {
        self.caches.direct.opened(node, handle, flags) || self.agreed.tells_each_reader
    }

    /// Notes an opening: of a writer, and for `lseek`, which is not asked with a writeback cache.
    fn note_opened(&self, node: NodeId, raw_flags: u32) {
        self.caches.room.opened(node, raw_flags, self.fs);
        if !self.agreed.writeback {
            // A file truncated by this opening is empty, whatever the entry says.
            let is_empty = || self.fs.attr(node).is_ok_and(|attr| attr.size == 0);
            self.caches.mappable.opened(node, raw_flags, is_empty);
        }
    }
}

fn new_file(args: &CreateIn) -> NewNode<'static> {
    NewNode { kind: NodeKind::File, permissions: args.mode & PERMISSIONS, umask: args.umask, ..NewNode::default() }
}

/// Options of the open file. Direct writes run in parallel only if the whole file is opened for direct I/O; cached
/// pages are kept unless they may be stale.
fn opened(handle: Handle, flags: OpenFlags, is_old: bool) -> OpenOut {
    let mut open_flags = open::NOFLUSH | open::PARALLEL_DIRECT_WRITES;
    if !is_old {
        open_flags |= open::KEEP_CACHE;
    }
    if flags.contains(OpenFlags::DIRECT) {
        open_flags |= open::DIRECT_IO;
    }
    OpenOut { fh: handle.0, open_flags, backing_id: 0 }
}

/// `O_DSYNC`, which kernels since 2.6.33 tell from `O_SYNC`.
pub(super) const DATA_SYNC: OFlags = OFlags::from_bits_retain(0o10_000);
/// `O_SYNC`: the bit above and one of its own.
const SYNC: OFlags = OFlags::from_bits_retain(0o4_010_000);

/// Flags of `open(2)`.
fn open_flags(raw: u32) -> OpenFlags {
    let raw = OFlags::from_bits_retain(raw);
    let mut flags = match raw & OFlags::RWMODE {
        OFlags::WRONLY => OpenFlags::WRITE,
        OFlags::RDWR => OpenFlags::READ | OpenFlags::WRITE,
        _ => OpenFlags::READ,
    };
    for (theirs, ours) in [
        (OFlags::APPEND, OpenFlags::APPEND),
        (OFlags::TRUNC, OpenFlags::TRUNCATE),
        (SYNC, OpenFlags::SYNC),
        (DATA_SYNC, OpenFlags::DATA_SYNC),
        (OFlags::DIRECT, OpenFlags::DIRECT),
        (OFlags::EXCL, OpenFlags::EXCLUSIVE),
        (OFlags::NOATIME, OpenFlags::NO_ATIME),
    ] {
        flags.set(ours, raw.contains(theirs));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_open_are_understood() {
        let flags = OFlags::RDWR | OFlags::APPEND | SYNC | OFlags::CLOEXEC;
        assert_eq!(
            open_flags(flags.bits()),
            OpenFlags::READ | OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::SYNC | OpenFlags::DATA_SYNC
        );
        assert_eq!(open_flags((OFlags::WRONLY | DATA_SYNC).bits()), OpenFlags::WRITE | OpenFlags::DATA_SYNC);
        assert_eq!(open_flags(0), OpenFlags::READ);
        assert_eq!(opened(Handle(1), OpenFlags::DIRECT, false).open_flags & open::DIRECT_IO, 1);
        let keeps = |is_old| opened(Handle(1), OpenFlags::READ, is_old).open_flags & open::KEEP_CACHE != 0;
        assert!(keeps(false) && !keeps(true));
    }
}
