//! Wraps the file system under test with calls that name themselves when they fail. All cases call it.

use std::sync::Arc;

use vfs::file_system::{
    AllocateFlags, Attr, Caller, DirEntry, DirSink, Entry, Errno, FileSystem, Handle, NewNode, NodeFlags, NodeId,
    NodeKind, OpenFlags, RenameFlags, Result, SetAttr, SetTime, Time, WriteFlags, XattrMode,
};

use super::errno_calls::Asked;
use super::outcome::{Outcome, equal, ok};

pub(super) const ROOT: NodeId = NodeId::ROOT;
/// Root asks, as far as it matters.
pub(super) const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };
/// The times set by [`Subject::age`].
pub(super) const LONG_AGO: Time = Time { sec: 1_000_000_000, nsec: 123_456_789 };
/// A handle for calls without an opening.
pub(super) const NO_HANDLE: Handle = Handle(0);

#[derive(Clone)]
pub(super) struct Subject {
    pub(super) fs: Asked,
}

/// A name as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) ino: u64,
    pub(super) kind: NodeKind,
    pub(super) next: u64,
    pub(super) node: Option<NodeId>,
}

impl Subject {
    pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs: Asked::new(fs) }
    }

    pub(super) fn try_make(&self, dir: NodeId, name: &[u8], kind: NodeKind) -> Result<Entry> {
        self.fs.create(&CALLER, dir, name, &new(kind, 0o755))
    }

    pub(super) fn make(&self, dir: NodeId, name: &[u8], node: &NewNode<'_>) -> Outcome<Entry> {
        let what = format!("creation of {}", shown(name));
        ok(&what, self.fs.create(&CALLER, dir, name, node))
    }

    pub(super) fn file(&self, dir: NodeId, name: &[u8]) -> Outcome<NodeId> {
        let entry = self.make(dir, name, &new(NodeKind::File, 0o644))?;
        Ok(entry.node)
    }

    pub(super) fn file_with(&self, dir: NodeId, name: &[u8], data: &[u8]) -> Outcome<NodeId> {
        let node = self.file(dir, name)?;
        self.write(node, 0, data)?;
        Ok(node)
    }

    pub(super) fn dir(&self, dir: NodeId, name: &[u8]) -> Outcome<NodeId> {
        let entry = self.make(dir, name, &new(NodeKind::Directory, 0o755))?;
        Ok(entry.node)
    }

    pub(super) fn symlink(&self, dir: NodeId, name: &[u8], target: &[u8]) -> Outcome<NodeId> {
        let node = NewNode { target, ..new(NodeKind::Symlink, 0o777) };
        Ok(self.make(dir, name, &node)?.node)
    }

    pub(super) fn lookup(&self, dir: NodeId, name: &[u8]) -> Outcome<Entry> {
        let what = format!("lookup of {}", shown(name));
        ok(&what, self.fs.lookup(dir, name))
    }

    /// Whether a name is there; the reference is given back.
    pub(super) fn is_there(&self, dir: NodeId, name: &[u8]) -> Outcome<bool> {
        match self.fs.lookup(dir, name) {
            Ok(entry) => self.fs.forget(entry.node, 1),
            Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => ok(&format!("lookup of {}", shown(name)), Err(errno))?,
        }
        Ok(true)
    }

    pub(super) fn attr(&self, node: NodeId) -> Outcome<Attr> {
        ok("attr", self.fs.attr(node))
    }

    pub(super) fn set(&self, node: NodeId, changes: &SetAttr) -> Outcome<Attr> {
        ok("set_attr", self.fs.set_attr(&CALLER, node, changes))
    }

    pub(super) fn set_size(&self, node: NodeId, size: u64) -> Outcome<Attr> {
        self.set(node, &size_change(size))
    }

    pub(super) fn chmod(&self, node: NodeId, permissions: u32) -> Outcome<Attr> {
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.set(node, &changes)
    }

    pub(super) fn try_write(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        let flags = WriteFlags::empty();
        self.fs.write(node, NO_HANDLE, offset, data, flags).map(drop)
    }

    pub(super) fn write(&self, node: NodeId, offset: u64, data: &[u8]) -> Outcome {
        let what = format!("write of {} bytes at {offset}", data.len());
        ok(&what, self.try_write(node, offset, data))
    }

    pub(super) fn read(&self, node: NodeId, offset: u64, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0xee; len];
        let what = format!("read of {len} bytes at {offset}");
        let count = ok(&what, self.fs.read(node, NO_HANDLE, offset, &mut bytes))?;
        bytes.truncate(count);
        Ok(bytes)
    }

    pub(super) fn open(&self, node: NodeId, flags: OpenFlags) -> Outcome<Handle> {
        ok("open", self.fs.open(&CALLER, node, flags))
    }

    pub(super) fn try_allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Result<()> {
        self.fs.allocate(node, flags, offset, len)
    }

    pub(super) fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Outcome {
        let what = format!("allocate {flags:?} {offset}+{len}");
        ok(&what, self.fs.allocate(node, flags, offset, len))
    }

    pub(super) fn unlink(&self, dir: NodeId, name: &[u8]) -> Outcome {
        let what = format!("unlink of {}", shown(name));
        ok(&what, self.fs.unlink(dir, name))
    }

    pub(super) fn remove_dir(&self, dir: NodeId, name: &[u8]) -> Outcome {
        let what = format!("removal of {}", shown(name));
        ok(&what, self.fs.remove_dir(dir, name))
    }

    pub(super) fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Outcome<Entry> {
        ok("link", self.fs.link(node, dir, name))
    }

    pub(super) fn try_rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Result<()> {
        self.fs.rename(&CALLER, from, to, flags)
    }

    pub(super) fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> Outcome {
        self.rename_with(from, to, RenameFlags::empty())
    }

    pub(super) fn rename_with(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Outcome {
        let what = format!("rename of {} to {}", shown(from.1), shown(to.1));
        ok(&what, self.try_rename(from, to, flags))
    }

    pub(super) fn try_set_xattr(&self, node: NodeId, name: &[u8], value: &[u8]) -> Result<()> {
        let mode = XattrMode::Either;
        self.fs.set_xattr(node, name, value, mode, false)
    }

    pub(super) fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8]) -> Outcome {
        let what = format!("set_xattr of {}", shown(name));
        ok(&what, self.try_set_xattr(node, name, value))
    }

    /// Value of an attribute, if it is there.
    pub(super) fn xattr(&self, node: NodeId, name: &[u8]) -> Outcome<Option<Vec<u8>>> {
        match self.fs.get_xattr(node, name) {
            Err(Errno::ENODATA) => Ok(None),
            result => ok(&format!("get_xattr of {}", shown(name)), result).map(Some),
        }
    }

    pub(super) fn set_flags(&self, node: NodeId, flags: NodeFlags) -> Outcome {
        let what = format!("set_flags to {flags:?}");
        ok(&what, self.fs.set_flags(&CALLER, node, flags))
    }

    /// At most `count` names behind `from`, dots too.
    pub(super) fn list(&self, dir: NodeId, from: u64, count: usize) -> Outcome<Vec<Listed>> {
        let mut sink = Sink::new(count);
        ok("read_dir", self.fs.read_dir(dir, from, false, &mut sink))?;
        Ok(sink.listed)
    }

    pub(super) fn list_with_nodes(&self, dir: NodeId, count: usize) -> Outcome<Vec<Listed>> {
        let mut sink = Sink::new(count);
        ok("read_dir", self.fs.read_dir(dir, 0, true, &mut sink))?;
        Ok(sink.listed)
    }

    /// All names without the dots, in the order of the bytes.
    pub(super) fn names(&self, dir: NodeId) -> Outcome<Vec<Vec<u8>>> {
        let listed = self.list(dir, 0, usize::MAX)?.into_iter();
        let names = listed.map(|listed| listed.name);
        let mut names: Vec<_> = names.filter(|name| !is_dots(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Puts access, change and status change of a node to one time long ago.
    pub(super) fn age(&self, node: NodeId) -> Outcome {
        let changes = SetAttr {
            atime: Some(SetTime::To(LONG_AGO)),
            mtime: Some(SetTime::To(LONG_AGO)),
            ctime: Some(LONG_AGO),
            ..SetAttr::default()
        };
        let attr = self.set(node, &changes)?;
        let times = [attr.atime, attr.mtime, attr.ctime];
        equal("times that were set", [LONG_AGO; 3], times)
    }

    /// Which times have changed since [`Subject::age`]: letters of `amc`.
    pub(super) fn has_changed(&self, what: &str, node: NodeId, expected: &str) -> Outcome {
        let attr = self.attr(node)?;
        let times = [('a', attr.atime), ('m', attr.mtime), ('c', attr.ctime)];
        let changed = times.iter().filter(|(_, time)| *time != LONG_AGO);
        let found: String = changed.map(|(letter, _)| *letter).collect();
        equal(&format!("times changed by {what}"), expected, &found)
    }
}

pub(super) fn new<'a>(kind: NodeKind, permissions: u32) -> NewNode<'a> {
    NewNode { kind, permissions, ..NewNode::default() }
}

pub(super) fn size_change(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

pub(super) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// A name that says which of many it is.
pub(super) fn numbered(prefix: &str, number: usize) -> Vec<u8> {
    format!("{prefix}{number:04}").into_bytes()
}

pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(40).collect()
}

struct Sink {
    listed: Vec<Listed>,
    count_max: usize,
}

impl Sink {
    const fn new(count_max: usize) -> Self {
        Self { listed: Vec::new(), count_max }
    }
}

impl DirSink for Sink {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.add_with_node(entry, None)
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        if self.listed.len() == self.count_max {
            return false;
        }
        self.listed.push(Listed {
            name: entry.name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            next: entry.next,
            node: node.map(|node| node.node),
        });
        true
    }
}
