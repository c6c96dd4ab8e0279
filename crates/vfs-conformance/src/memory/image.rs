//! Encodes a tree as bytes and decodes it: every node that has a name, in the order of their numbers. Called by
//! `device_image`.

use std::collections::BTreeMap;

use vfs::file_system::{NodeFlags, NodeId, NodeKind, Time};

use super::data::Data;
use super::directory::Directory;
use super::node::{Body, Node, State};
use super::{MemoryFs, Table, to_u64};

/// Bytes of a page of contents.
const PAGE: usize = 4096;

/// The bytes of the whole tree as it is now. Names do not change meanwhile.
pub(super) fn write_tree(fs: &MemoryFs) -> Vec<u8> {
    let table = fs.table.read();
    let mut nodes: Vec<_> = table.values().collect();
    nodes.sort_by_key(|node| node.id);
    let mut out = Writer::default();
    out.number(fs.next_node.load(std::sync::atomic::Ordering::Relaxed));
    for node in nodes {
        let state = node.state.read();
        // Nodes kept only by an opening or a reference are lost with the program.
        if state.nlink > 0 {
            out.node(node, &state);
        }
    }
    out.bytes
}

/// Fills an empty file system with a tree; `None` where the bytes are no tree.
pub(super) fn read_tree(fs: &MemoryFs, bytes: &[u8]) -> Option<()> {
    let mut input = Reader { bytes };
    fs.next_node.store(input.number()?, std::sync::atomic::Ordering::Relaxed);
    let mut table = Table::new();
    while !input.bytes.is_empty() {
        let node = input.node(fs)?;
        table.insert(node.id, node.into());
    }
    table.contains_key(&NodeId::ROOT).then_some(())?;
    *fs.table.write() = table;
    Some(())
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(to_u64(text.len()));
        self.bytes.extend_from_slice(text);
    }

    fn node(&mut self, node: &Node, state: &State) {
        self.number(node.id.0);
        let mode = node.kind.mode_bits() | state.permissions;
        for number in [mode, state.nlink, state.uid, state.gid, state.rdev, state.flags.bits()] {
            self.number(u64::from(number));
        }
        for time in [state.atime, state.mtime, state.ctime, state.btime] {
            self.number(time.sec.cast_unsigned());
            self.number(u64::from(time.nsec));
        }
        self.number(to_u64(state.xattrs.len()));
        for (name, value) in &state.xattrs {
            self.text(name);
            self.text(value);
        }
        match &state.body {
            Body::File(data) => self.data(data),
            Body::Directory(directory) => self.directory(directory),
            Body::Symlink(target) => self.text(target),
            Body::Special => {}
        }
    }

    fn data(&mut self, data: &Data) {
        self.number(data.size());
        self.number(data.page_count());
        for (index, bytes) in data.pages() {
            self.number(index);
            self.number(u64::from(bytes.is_some()));
            self.bytes.extend_from_slice(bytes.map_or(&[], |bytes| bytes.as_slice()));
        }
    }

    fn directory(&mut self, directory: &Directory) {
        self.number(directory.parent.0);
        self.number(directory.place_last());
        self.number(to_u64(directory.behind(0).count()));
        for (place, name, slot) in directory.behind(0) {
            self.number(place);
            self.text(name);
            self.number(slot.node.0);
            self.number(u64::from(slot.kind.mode_bits()));
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { sec: self.number()?.cast_signed(), nsec: self.small()? })
    }

    fn node(&mut self, fs: &MemoryFs) -> Option<Node> {
        let id = NodeId(self.number()?);
        let mode = self.small()?;
        let kind = NodeKind::from_mode(mode)?;
        let [nlink, uid, gid, rdev, flags] =
            [self.small()?, self.small()?, self.small()?, self.small()?, self.small()?];
        let [atime, mtime, ctime, btime] = [self.time()?, self.time()?, self.time()?, self.time()?];
        let mut xattrs = BTreeMap::new();
        for _ in 0..self.number()? {
            let name = self.text()?.to_vec();
            xattrs.insert(name, self.text()?.to_vec());
        }
        let body = match kind {
            NodeKind::File => Body::File(self.data(fs)?),
            NodeKind::Directory => Body::Directory(self.directory()?),
            NodeKind::Symlink => Body::Symlink(self.text()?.to_vec()),
            _ => Body::Special,
        };
        let permissions = mode & !NodeKind::MODE_MASK;
        let flags = NodeFlags::from_bits_retain(flags);
        let is_linkable = false;
        let state =
            State { permissions, nlink, uid, gid, rdev, atime, mtime, ctime, btime, flags, xattrs, body, is_linkable };
        Some(Node::new(id, kind, state))
    }

    fn data(&mut self, fs: &MemoryFs) -> Option<Data> {
        let mut data = Data::new(std::sync::Arc::clone(&fs.space));
        let size = self.number()?;
        for _ in 0..self.number()? {
            let at = self.number()?.checked_mul(to_u64(PAGE))?;
            if self.number()? == 0 {
                data.allocate(at..at.checked_add(to_u64(PAGE))?).ok()?;
            } else {
                data.write(at, self.take(PAGE)?).ok()?;
            }
        }
        data.restore_size(size);
        Some(data)
    }

    fn directory(&mut self) -> Option<Directory> {
        let mut directory = Directory::new(NodeId(self.number()?));
        let last = self.number()?;
        for _ in 0..self.number()? {
            let place = self.number()?;
            let name = self.text()?;
            let node = NodeId(self.number()?);
            directory.add_at(place, name, node, NodeKind::from_mode(self.small()?)?);
        }
        directory.set_place_last(last);
        Some(directory)
    }
}
