//! READ, WRITE and COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nfs::wire::{SetAttributes, Stability, Status};
use vfs::FileSystem;
use vfs_conformance::MemoryFs;

use crate::client::{Served, options};

#[test]
fn data_is_read_as_it_was_written() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let file = client.create(&root, "file", 0o600).unwrap().handle;
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    for (stability, offset) in
        [(Stability::Unstable, 0), (Stability::DataSync, 1 << 20), (Stability::FileSync, (2 << 20) + 7)]
    {
        assert_eq!(client.write(&file, offset, &data, stability).unwrap().0, 1 << 20);
    }
    client.commit(&file).unwrap();
    assert_eq!(client.attr(&file).unwrap().size, (3 << 20) + 7);
    assert_eq!(client.read(&file, 0, 1 << 20).unwrap(), (data.clone(), false));
    assert_eq!(client.read(&file, 0, u32::MAX).unwrap().0.len(), 1 << 20, "a part is enough");
    assert_eq!(client.read(&file, (1 << 20) + 5, 3).unwrap(), (data[5..8].to_vec(), false));
    assert_eq!(client.read(&file, 2 << 20, 8).unwrap(), ([&[0; 7], &data[..1]].concat(), false));
    assert_eq!(client.read(&file, (3 << 20) + 6, 100).unwrap(), (data[data.len() - 1..].to_vec(), true));
    assert_eq!(client.read(&file, (3 << 20) + 7, 100).unwrap(), (Vec::new(), true));
    assert_eq!(client.read(&file, u64::MAX, 100).unwrap(), (Vec::new(), true));
    assert_eq!(client.read(&file, 0, 0).unwrap(), (Vec::new(), false));
    assert_eq!(client.write(&file, 5, b"", Stability::FileSync).unwrap().0, 0);
    assert_eq!(client.write(&file, u64::MAX - 3, b"data", Stability::FileSync), Err(Status::FBIG));
}

#[test]
fn only_files_have_contents() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    assert_eq!(client.read(&root, 0, 10).unwrap_err(), Status::ISDIR);
    assert_eq!(client.write(&root, 0, b"x", Stability::FileSync).unwrap_err(), Status::ISDIR);
    assert_eq!(client.commit(&root).unwrap_err(), Status::ISDIR);
}

/// An owner who opened a file goes on after the mode has changed: clients check permissions when they open.
#[test]
fn an_owner_writes_a_file_whatever_its_mode() {
    let served = Served::new();
    let (mut root_client, root) = served.mounted();
    root_client.set(&root, SetAttributes { mode: Some(0o777), ..SetAttributes::default() }).unwrap();
    let mut owner = served.connect().with_user(7, 7, &[]);
    let file = owner.create(&root, "file", 0o444).unwrap().handle;
    owner.write(&file, 0, b"data", Stability::FileSync).unwrap();
    owner.set(&file, SetAttributes { size: Some(2), ..SetAttributes::default() }).unwrap();
    owner.set(&file, SetAttributes { mode: Some(0), ..SetAttributes::default() }).unwrap();
    assert_eq!(owner.read(&file, 0, 10).unwrap().0, b"da");
    let mut other = served.connect().with_user(8, 8, &[]);
    assert_eq!(other.read(&file, 0, 10).unwrap_err(), Status::ACCES);
    assert_eq!(other.write(&file, 0, b"x", Stability::FileSync).unwrap_err(), Status::ACCES);
    assert_eq!(other.set(&file, SetAttributes { size: Some(0), ..SetAttributes::default() }), Err(Status::ACCES));
    // To run a program is to read it.
    owner.set(&file, SetAttributes { mode: Some(0o711), ..SetAttributes::default() }).unwrap();
    assert_eq!(other.read(&file, 0, 10).unwrap().0, b"da");
}

#[test]
fn the_verifier_is_another_one_after_each_start() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let file = client.create(&root, "file", 0o600).unwrap().handle;
    let (_, first) = client.write(&file, 0, b"data", Stability::Unstable).unwrap();
    assert_eq!(client.commit(&file).unwrap(), first);
    let again = Served::with(Arc::clone(&served.fs), &options());
    let second = again.connect().commit(&file).unwrap();
    assert_ne!(first, second);
    assert_eq!(client.commit(&file).unwrap(), first, "the other server goes on");
}

/// Fails syncs while it is told to.
struct Failing {
    fs: MemoryFs,
    fails: AtomicBool,
}

#[test]
fn the_verifier_is_another_one_after_a_sync_that_failed() {
    let failing = Arc::new(Failing { fs: MemoryFs::default(), fails: AtomicBool::new(false) });
    let served = Served::with(Arc::clone(&failing) as Arc<dyn FileSystem>, &options());
    let (mut client, root) = served.mounted();
    let file = client.create(&root, "file", 0o600).unwrap().handle;
    let (_, first) = client.write(&file, 0, b"data", Stability::Unstable).unwrap();
    failing.fails.store(true, Ordering::SeqCst);
    assert_eq!(client.commit(&file), Err(Status::IO));
    assert_eq!(client.create(&root, "other", 0o600).unwrap_err(), Status::IO);
    failing.fails.store(false, Ordering::SeqCst);
    assert_ne!(client.commit(&file).unwrap(), first);
}

mod failing {
    use vfs::FileSystem;
    use vfs::file_system::*;

    use super::{Failing, Ordering};

    impl FileSystem for Failing {
        fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
            match self.fails.load(Ordering::SeqCst) {
                true => Err(Errno::EIO.into()),
                false => self.fs.sync_file(node, handle, what),
            }
        }

        fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
            self.fs.lookup(parent, name)
        }

        fn forget(&self, node: NodeId, count: u64) {
            self.fs.forget(node, count);
        }

        fn attr(&self, node: NodeId) -> Answer<Attr> {
            self.fs.attr(node)
        }

        fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
            self.fs.set_attr(caller, node, changes)
        }

        fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
            self.fs.create(caller, parent, name, new)
        }

        fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
            self.fs.open(caller, node, flags)
        }

        fn release(&self, node: NodeId, handle: Handle) {
            self.fs.release(node, handle);
        }

        fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
            self.fs.read(node, handle, offset, buf)
        }

        fn write(&self, node: NodeId, handle: Handle, at: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
            self.fs.write(node, handle, at, data, flags)
        }

        fn sync_fs(&self) -> Answer<()> {
            self.fs.sync_fs()
        }

        fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
            self.fs.read_dir(node, from, with_nodes, sink)
        }

        fn status(&self) -> Answer<VolumeStatus> {
            self.fs.status()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn step(&self) -> std::time::Duration {
            std::time::Duration::MAX
        }
    }
}
