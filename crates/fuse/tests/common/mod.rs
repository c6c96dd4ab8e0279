//! A mount that lives as long as a test, and a file system that counts its calls.

#![allow(clippy::unwrap_used, reason = "tests")]

use fuse::{Connection, MountOptions, Server, ServerOptions};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, Control, ControlAnswer, CopyRange, DirSink, Entry, Errno, Handle, NewNode,
    NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, SyncTicket, SyncWhat, VolumeStatus, WriteFlags,
    Written, XattrMode,
};
use vfs::{Controls, FileSystem};
use vfs_conformance::{MemoryFs, MemoryOptions};

/// A mounted directory with its server in this process.
pub(crate) struct Mounted {
    dir: TempDir,
    server: Option<JoinHandle<fuse::Result<()>>>,
    /// The kernel keeps dirty pages.
    pub(crate) is_writeback: bool,
    /// The kernel opens files without requests.
    pub(crate) is_zero_open: bool,
    /// Counts the calls of the file system.
    pub(crate) fs: Arc<Counting>,
}

impl Mounted {
    /// Mounts a file system in memory; `None`, with a message, if that is not possible.
    pub(crate) fn new(options: ServerOptions) -> Option<Self> {
        Self::with(options, Connection::mount)
    }

    /// The same with a way of mounting.
    pub(crate) fn with(
        options: ServerOptions,
        mount: impl FnOnce(&Path, &MountOptions) -> fuse::Result<Connection>,
    ) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let memory = MemoryFs::new(&MemoryOptions::default());
        let fs = Arc::new(Counting::new(Arc::new(memory)));
        let dir = TempDir::new().unwrap();
        let mount_options = MountOptions {
            source: "memory".to_owned(),
            subtype: "test".to_owned(),
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            ..MountOptions::default()
        };
        let (is_writeback, is_zero_open) = (options.writeback, options.zero_open);
        let connection = mount(dir.path(), &mount_options).unwrap();
        let served: Arc<dyn FileSystem> = fs.clone();
        let server = Server::start(connection, served, options).unwrap();
        let server = std::thread::spawn(move || server.wait());
        let server = Some(server);
        Some(Self { dir, server, is_writeback, is_zero_open, fs })
    }

    /// A path in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The mount point.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Waits for the server of an ended mount.
    pub(crate) fn wait(&mut self) -> fuse::Result<()> {
        self.server.take().unwrap().join().unwrap()
    }

    /// Unmounts, and waits for the server.
    pub(crate) fn unmount(mut self) {
        // The kernel may need a moment to close the files of a killed client.
        let start = Instant::now();
        while let Err(error) = fuse::unmount(self.dir.path(), false) {
            assert!(start.elapsed() < Duration::from_secs(5), "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = fuse::unmount(self.dir.path(), true);
        }
    }
}

/// Counts calls by name.
pub(crate) struct Counting {
    fs: Arc<dyn FileSystem>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    /// A sync of a directory waits while this is locked.
    pub(crate) dir_syncs: Mutex<()>,
    /// A direct write waits while this is locked.
    pub(crate) direct_writes: Mutex<()>,
}

impl Counting {
    fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs, counts: Mutex::default(), dir_syncs: Mutex::default(), direct_writes: Mutex::default() }
    }

    fn count(&self, name: &'static str) {
        *self.counts.lock().entry(name).or_default() += 1;
    }

    /// Calls since the last time; resets the counts.
    pub(crate) fn take(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut *self.counts.lock())
    }
}

macro_rules! counted {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $result)? {
            self.count(stringify!($name));
            self.fs.$name($($arg),*)
        })*
    };
}

/// `_IOW('x', 1, [u8; 8])`: makes a directory whose name is in the argument.
pub(crate) const MAKE_DIRECTORY: u32 = 0x4008_7801;

fn name_in<'a>(control: &Control<'a>) -> &'a [u8] {
    let mut parts = control.input.split(|byte| *byte == 0);
    parts.next().unwrap_or_default()
}

/// Length of files whose sync fails at its end.
pub(crate) const UNLUCKY_BYTES: u64 = 1313;

impl FileSystem for Counting {
    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        self.count("sync_file");
        if self.fs.attr(node)?.kind == NodeKind::Directory {
            drop(self.dir_syncs.lock());
        }
        self.fs.sync_file(node, handle, what)
    }

    fn begin_sync(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<Option<SyncTicket>> {
        self.sync_file(node, handle, what)?;
        let mut counts = self.counts.lock();
        let count = counts.entry("begin_sync").or_default();
        *count += 1;
        Ok(Some(SyncTicket([node.0, u64::try_from(*count).unwrap()])))
    }

    fn end_sync(&self, node: NodeId, _handle: Handle, begun: SyncTicket) -> Answer<()> {
        assert_eq!(node.0, begun.0[0], "another node's");
        self.count("end_sync");
        match self.fs.attr(node)?.size {
            UNLUCKY_BYTES => Err(Errno::ENOSPC.into()),
            _ => Ok(()),
        }
    }

    fn controls(&self) -> Option<&dyn Controls> {
        Some(self)
    }

    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        self.count("write");
        if flags.contains(WriteFlags::DATA_SYNC) {
            self.count("sync_file");
        }
        if flags.contains(WriteFlags::DIRECT) {
            drop(self.direct_writes.lock());
        }
        self.fs.write(node, handle, offset, data, flags)
    }

    counted! {
        fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry>;
        fn forget(&self, node: NodeId, count: u64);
        fn attr(&self, node: NodeId) -> Answer<Attr>;
        fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr>;
        fn read_link(&self, node: NodeId) -> Answer<Vec<u8>>;
        fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>)
            -> Answer<Entry>;
        fn create_unnamed(&self, caller: &Caller, parent: NodeId, new: &NewNode<'_>,
            flags: OpenFlags) -> Answer<(Entry, Handle)>;
        fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry>;
        fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()>;
        fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()>;
        fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]),
            flags: RenameFlags) -> Answer<()>;
        fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle>;
        fn release(&self, node: NodeId, handle: Handle);
        fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8])
            -> Answer<usize>;
        fn sync_fs(&self) -> Answer<()>;
        fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64)
            -> Answer<()>;
        fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64>;
        fn copy_range(&self, range: &CopyRange) -> Answer<u64>;
        fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink)
            -> Answer<()>;
        fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>>;
        fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>>;
        fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode,
            clear_set_group: bool) -> Answer<()>;
        fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()>;
        fn flags(&self, node: NodeId) -> Answer<NodeFlags>;
        fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()>;
        fn status(&self) -> Answer<VolumeStatus>;
        fn is_read_only(&self) -> bool;
        fn step(&self) -> Duration;
    }
}

impl Controls for Counting {
    fn control(&self, control: &Control<'_>) -> Answer<ControlAnswer> {
        if control.command != MAKE_DIRECTORY {
            return Err(Errno::ENOTTY.into());
        }
        let new = NewNode { kind: NodeKind::Directory, permissions: 0o755, ..NewNode::default() };
        let name = name_in(control);
        let entry = self.fs.create(&control.caller, control.node, name, &new)?;
        self.fs.forget(entry.node, 1);
        Ok(ControlAnswer::default())
    }

    fn control_names(&self, control: &Control<'_>) -> Vec<(NodeId, Vec<u8>)> {
        vec![(control.node, name_in(control).to_vec())]
    }
}
