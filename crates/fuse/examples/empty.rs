//! An empty FUSE server that answers from memory: what a request costs without a file system.
//!
//! One directory, files of zeros that remember their size; with `memory` a complete file system
//! in memory. Mounts on the directory given, serves until it is unmounted:
//!
//! ```text
//! cargo run --release -p spinney-fuse --example empty -- DIR [memory] [writeback] [zero_open] [nonear] [ring]
//!     [workers=N]
//! ```

use fuse::{Connection, MountOptions, Server, ServerOptions, Transport};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{
    Answer, Attr, Caller, DirEntry, DirSink, Entry, Errno, Handle, Home, NewNode, NodeFlags, NodeId, NodeKind,
    OpenFlags, RenameFlags, Result, Seek, SetAttr, SyncWhat, Time, VolumeStatus, WriteFlags, Written,
};
use vfs_conformance::{MemoryFs, MemoryOptions};

const SHARD_COUNT: usize = 64;

/// One directory of empty files.
struct Empty {
    names: RwLock<BTreeMap<Vec<u8>, NodeId>>,
    attrs: Vec<RwLock<HashMap<NodeId, Attr>>>,
    next: AtomicU64,
}

impl Empty {
    fn new() -> Self {
        let empty = Self {
            names: RwLock::default(),
            attrs: (0..SHARD_COUNT).map(|_| RwLock::default()).collect(),
            next: AtomicU64::new(2),
        };
        empty.put(NodeId::ROOT, attr(NodeId::ROOT, NodeKind::Directory, 0o777));
        empty
    }

    fn shard(&self, node: NodeId) -> Result<&RwLock<HashMap<NodeId, Attr>>> {
        let index = usize::try_from(node.0).unwrap_or(0) % SHARD_COUNT;
        self.attrs.get(index).ok_or(Errno::EIO)
    }

    fn put(&self, node: NodeId, attr: Attr) {
        if let Ok(shard) = self.shard(node) {
            shard.write().insert(node, attr);
        }
    }

    fn change(&self, node: NodeId, change: impl FnOnce(&mut Attr)) -> Result<Attr> {
        let mut shard = self.shard(node)?.write();
        let attr = shard.get_mut(&node).ok_or(Errno::ESTALE)?;
        change(attr);
        Ok(*attr)
    }

    fn entry(&self, node: NodeId) -> Answer<Entry> {
        Ok(Entry { node, generation: 0, attr: self.attr(node)? })
    }
}

fn attr(node: NodeId, kind: NodeKind, permissions: u32) -> Attr {
    let time = Time::default();
    Attr {
        ino: node.0,
        kind,
        permissions,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        block_bytes: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        flags: NodeFlags::empty(),
        home: Home::default(),
    }
}

impl FileSystem for Empty {
    fn lookup(&self, _: NodeId, name: &[u8]) -> Answer<Entry> {
        let node = self.names.read().get(name).copied();
        self.entry(node.ok_or(Errno::ENOENT)?)
    }

    fn forget(&self, node: NodeId, _: u64) {
        if let Ok(shard) = self.shard(node) {
            let mut shard = shard.write();
            if shard.get(&node).is_some_and(|attr| attr.nlink == 0) {
                shard.remove(&node);
            }
        }
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        let shard = self.shard(node)?.read();
        shard.get(&node).copied().ok_or(Errno::ESTALE.into())
    }

    fn set_attr(&self, _: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        Ok(self.change(node, |attr| {
            attr.permissions = changes.permissions.unwrap_or(attr.permissions);
            attr.uid = changes.uid.unwrap_or(attr.uid);
            attr.gid = changes.gid.unwrap_or(attr.gid);
            attr.size = changes.size.unwrap_or(attr.size);
        })?)
    }

    fn create(&self, caller: &Caller, _: NodeId, name: &[u8], new: &NewNode) -> Answer<Entry> {
        if new.kind == NodeKind::Directory {
            return Err(Errno::EPERM.into());
        }
        let node = NodeId(self.next.fetch_add(1, Ordering::Relaxed));
        let attr = Attr { uid: caller.uid, gid: caller.gid, ..attr(node, new.kind, new.permissions & !new.umask) };
        let mut names = self.names.write();
        if names.contains_key(name) {
            return Err(Errno::EEXIST.into());
        }
        names.insert(name.to_vec(), node);
        drop(names);
        self.put(node, attr);
        Ok(Entry { node, generation: 0, attr })
    }

    fn unlink(&self, _: NodeId, name: &[u8]) -> Answer<()> {
        let node = self.names.write().remove(name).ok_or(Errno::ENOENT)?;
        self.change(node, |attr| attr.nlink = 0)?;
        Ok(())
    }

    fn remove_dir(&self, _: NodeId, _: &[u8]) -> Answer<()> {
        Err(Errno::ENOTDIR.into())
    }

    fn rename(&self, _: &Caller, (_, old): (NodeId, &[u8]), (_, new): (NodeId, &[u8]), _: RenameFlags) -> Answer<()> {
        let mut names = self.names.write();
        let node = names.remove(old).ok_or(Errno::ENOENT)?;
        names.insert(new.to_vec(), node);
        Ok(())
    }

    fn open(&self, _: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        if flags.contains(OpenFlags::TRUNCATE) {
            self.change(node, |attr| attr.size = 0)?;
        }
        Ok(Handle::default())
    }

    fn release(&self, _: NodeId, _: Handle) {}

    fn read(&self, node: NodeId, _: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let left = self.attr(node)?.size.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        buf.iter_mut().take(len).for_each(|byte| *byte = 0);
        Ok(len)
    }

    fn write(&self, node: NodeId, _: Handle, offset: u64, data: &[u8], _: WriteFlags) -> Answer<Written> {
        let len = u64::try_from(data.len()).map_err(|_| Errno::EFBIG)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        self.change(node, |attr| attr.size = attr.size.max(end))?;
        Ok(Written::default())
    }

    fn sync_file(&self, _: NodeId, _: Handle, _: SyncWhat) -> Answer<()> {
        Ok(())
    }

    fn sync_fs(&self) -> Answer<()> {
        Ok(())
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        let size = self.attr(node)?.size;
        match what {
            _ if offset >= size => Err(Errno::ENXIO.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn read_dir(&self, _: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        // Nodes are numbered in the order of creation, so the number is the position too.
        let nodes: BTreeMap<u64, Vec<u8>> = self
            .names
            .read()
            .iter()
            .filter(|(_, node)| node.0 > from)
            .map(|(name, node)| (node.0, name.clone()))
            .collect();
        for (number, name) in nodes {
            let Ok(found) = self.entry(NodeId(number)) else {
                continue;
            };
            let entry = DirEntry { name: &name, ino: number, kind: found.attr.kind, next: number };
            let taken = if with_nodes { sink.add_with_node(&entry, Some(&found)) } else { sink.add(&entry) };
            if !taken {
                break;
            }
        }
        Ok(())
    }

    fn get_xattr(&self, _: NodeId, _: &[u8]) -> Answer<Vec<u8>> {
        Err(Errno::ENODATA.into())
    }

    fn remove_xattr(&self, _: NodeId, _: &[u8]) -> Answer<()> {
        Err(Errno::ENODATA.into())
    }

    fn status(&self) -> Answer<VolumeStatus> {
        Ok(VolumeStatus {
            block_bytes: 4096,
            blocks: 1 << 30,
            blocks_free: 1 << 30,
            blocks_available: 1 << 30,
            name_bytes_max: 255,
            ..VolumeStatus::default()
        })
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn step(&self) -> Duration {
        Duration::from_secs(60)
    }
}

fn serve(dir: &Path, arguments: &[String]) -> fuse::Result<()> {
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let workers = arguments.iter().find_map(|argument| argument.strip_prefix("workers=")?.parse().ok());
    let mount_options = MountOptions {
        source: "empty".to_owned(),
        subtype: "empty".to_owned(),
        default_permissions: true,
        allow_other: rustix::process::geteuid().is_root(),
        ..MountOptions::default()
    };
    let connection = Connection::mount(dir, &mount_options)?;
    let options = ServerOptions {
        workers: workers.unwrap_or(0),
        writeback: has("writeback"),
        zero_open: has("zero_open"),
        near: !has("nonear"),
        transport: if has("ring") { Transport::Ring } else { Transport::Device },
        ..ServerOptions::default()
    };
    let fs: Arc<dyn FileSystem> =
        if has("memory") { Arc::new(MemoryFs::new(&MemoryOptions::default())) } else { Arc::new(Empty::new()) };
    Server::start(connection, fs, options)?.wait()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((dir, rest)) = arguments.split_first() else {
        eprintln!("usage: empty DIR [memory] [writeback] [zero_open] [nonear] [ring] [workers=N]");
        return ExitCode::from(2);
    };
    match serve(Path::new(dir), rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("empty: {error}");
            ExitCode::FAILURE
        }
    }
}
