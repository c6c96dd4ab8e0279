//! Reports of a failed write on a served volume: each opening gets it once, by its next sync. It used to be only the
//! request that met the failure; other writers learned only that the file system is read-only, as if it always had
//! been.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use blockdev::Op;
use blockdev::backends::MemoryDevice;
use btrfs::{FsOptions, MakeOptions, Volume};
use fuse::{Connection, MountOptions, Server, ServerOptions};
use testkit::faults::{FailingDevice, Fault, FaultKind};
use vfs::FileSystem;
use vfs::file_system::{Caller, Errno, Handle, NewNode, NodeId, OpenFlags, SyncWhat, WriteFlags};

const IMAGE_BYTES: u64 = 128 << 20;
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };
const EIO: Result<(), Errno> = Err(Errno::EIO);
const EROFS: Result<(), Errno> = Err(Errno::EROFS);

fn served(options: FsOptions) -> Result<(Arc<FailingDevice>, Arc<dyn FileSystem>)> {
    let device = Arc::new(FailingDevice::new(Arc::new(MemoryDevice::new(IMAGE_BYTES))));
    let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::<FailingDevice>::clone(&device), &make)?;
    Ok((device, volume.serve(options)?))
}

fn fail_next(device: &FailingDevice, op: Op) {
    device.plan(vec![Fault { op, after: 0, kind: FaultKind::Once }]);
}

fn make(fs: &dyn FileSystem, name: &str) -> Result<NodeId> {
    let new = NewNode { permissions: 0o644, ..NewNode::default() };
    Ok(fs.create(&CALLER, NodeId::ROOT, name.as_bytes(), &new)?.node)
}

fn open(fs: &dyn FileSystem, node: NodeId) -> Result<Handle> {
    Ok(fs.open(&CALLER, node, OpenFlags::READ | OpenFlags::WRITE)?)
}

fn write(fs: &dyn FileSystem, node: NodeId, handle: Handle, flags: WriteFlags) -> Result<(), Errno> {
    fs.write(node, handle, 0, &[2; 9000], flags)?;
    Ok(())
}

#[test]
fn every_opening_is_told_once() -> Result<()> {
    for (op, what) in [(Op::Write, SyncWhat::All), (Op::Flush, SyncWhat::Data)] {
        let (device, fs) = served(FsOptions::default())?;
        let (a, b) = (make(&*fs, "a")?, make(&*fs, "b")?);
        let (first, second, other) = (open(&*fs, a)?, open(&*fs, a)?, open(&*fs, b)?);
        let new = NewNode::default();
        let (c, unnamed) = {
            let (entry, handle) = fs.create_unnamed(&CALLER, NodeId::ROOT, &new, OpenFlags::WRITE)?;
            (entry.node, handle)
        };
        fs.sync_fs()?;
        write(&*fs, a, first, WriteFlags::empty())?;
        fail_next(&device, op);
        assert_eq!(fs.sync_file(a, first, what).map_err(Errno::from), EIO, "{op:?}: the one that met it");
        let late = open(&*fs, a)?;
        let openings = [(a, second), (b, other), (c, unnamed), (NodeId::ROOT, Handle(0)), (b, Handle(0))];
        for (node, handle) in openings {
            assert_eq!(fs.sync_file(node, handle, what).map_err(Errno::from), EIO, "{op:?}: {node:?} {handle:?}");
        }
        for (node, handle) in openings.into_iter().chain([(a, first), (a, late)]) {
            assert_eq!(fs.sync_file(node, handle, what).map_err(Errno::from), EROFS, "{op:?}: {node:?} {handle:?}");
        }
        let direct = WriteFlags::DIRECT | WriteFlags::DATA_SYNC;
        for (node, handle) in [(a, first), (a, late), (b, Handle(0))] {
            assert_eq!(write(&*fs, node, handle, WriteFlags::empty()), EROFS);
        }
        assert_eq!(write(&*fs, a, late, direct), EROFS);
        let refused = make(&*fs, "d").unwrap_err();
        assert_eq!(refused.downcast_ref().map(vfs::Error::errno), Some(Errno::EROFS));
        assert_eq!(fs.read(a, late, 0, &mut [0; 100]).map_err(Errno::from), Ok(100), "reads go on");
    }
    Ok(())
}

/// A sync may begin long before it ends: a failure in between is reported at its end.
#[test]
fn a_failure_is_told_by_the_end_of_a_sync() -> Result<()> {
    for (op, fails_before) in [(Op::Write, false), (Op::Flush, false), (Op::Write, true)] {
        let (device, fs) = served(FsOptions::default())?;
        let (a, b) = (make(&*fs, "a")?, make(&*fs, "b")?);
        let openings = [(a, open(&*fs, a)?), (b, open(&*fs, b)?)];
        fs.sync_fs()?;
        let mut begun = Vec::new();
        for (node, handle) in openings {
            write(&*fs, node, handle, WriteFlags::empty())?;
            let ticket = fs.begin_sync(node, handle, SyncWhat::All)?;
            begun.push((node, handle, ticket.expect("the log is not written yet")));
        }
        fail_next(&device, op);
        if fails_before {
            assert_eq!(fs.sync_fs().map_err(Errno::from), EIO);
        }
        for (node, handle, ticket) in begun {
            assert_eq!(fs.end_sync(node, handle, ticket).map_err(Errno::from), EIO, "{op:?}");
            assert_eq!(fs.end_sync(node, handle, ticket).map_err(Errno::from), EROFS, "{op:?}");
            assert_eq!(fs.sync_file(node, handle, SyncWhat::All).map_err(Errno::from), EROFS, "{op:?}");
        }
    }
    Ok(())
}

#[test]
fn a_failure_in_the_background_is_told_by_the_next_sync() -> Result<()> {
    let (device, fs) = served(FsOptions::default())?;
    let node = make(&*fs, "a")?;
    let (first, second) = (open(&*fs, node)?, open(&*fs, node)?);
    write(&*fs, node, first, WriteFlags::empty())?;
    fail_next(&device, Op::Write);
    assert_eq!(fs.sync_fs().map_err(Errno::from), EIO);
    assert_eq!(fs.sync_fs().map_err(Errno::from), EROFS);
    // An opening that is closed without a sync passes its report to no other.
    fs.release(node, second);
    assert_eq!(fs.sync_file(node, first, SyncWhat::Data).map_err(Errno::from), EIO);
    assert_eq!(fs.sync_file(node, first, SyncWhat::All).map_err(Errno::from), EROFS);
    Ok(())
}

#[test]
fn a_synchronous_write_that_fails_has_told() -> Result<()> {
    let (device, fs) = served(FsOptions::default())?;
    let node = make(&*fs, "a")?;
    let (first, second) = (open(&*fs, node)?, open(&*fs, node)?);
    fs.sync_fs()?;
    fail_next(&device, Op::Flush);
    let direct = WriteFlags::DIRECT | WriteFlags::DATA_SYNC;
    assert_eq!(write(&*fs, node, first, direct), EIO);
    assert_eq!(fs.sync_file(node, first, SyncWhat::Data).map_err(Errno::from), EROFS);
    assert_eq!(fs.sync_file(node, second, SyncWhat::Data).map_err(Errno::from), EIO);
    Ok(())
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Unmounts in the end, also of a test that fails.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = fuse::unmount(self.0, true);
    }
}

fn mounted_files_are_told_once(dir: &Path, device: &FailingDevice, is_writeback: bool) -> Result<()> {
    let (eio, erofs) = (Some(Errno::EIO.0), Some(Errno::EROFS.0));
    let open = |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(dir.join(name));
    let (first, second, other) = (open("a")?, open("a")?, open("b")?);
    first.write_all_at(&[1; 9000], 0)?;
    first.sync_all()?;
    first.write_all_at(&[2; 9000], 0)?;
    fail_next(device, Op::Flush);
    assert_eq!(errno(first.sync_all()), eio, "the one that met it");
    assert_eq!(errno(second.sync_data()), eio, "another description of the file");
    assert_eq!(errno(other.sync_all()), eio, "a file that was not written");
    let late = File::open(dir.join("a"))?;
    // A second descriptor of an opening is no opening of its own.
    for file in [&first, &second, &other, &first.try_clone()?, &late] {
        assert_eq!(errno(file.sync_all()), erofs);
    }
    if !is_writeback {
        assert_eq!(errno(first.write_all_at(b"x", 0)), erofs);
    }
    let mut read = [0; 9000];
    late.read_exact_at(&mut read, 0)?;
    assert_eq!(read, [2; 9000]);
    assert_eq!(errno(fs::write(dir.join("c"), "x")), erofs);
    Ok(())
}

#[test]
fn a_mount_tells_every_description_once() -> Result<()> {
    for writeback in [false, true] {
        let (device, fs) = served(FsOptions::default())?;
        let dir = tempfile::tempdir()?;
        let connection = match Connection::mount(dir.path(), &MountOptions::default()) {
            Ok(connection) => connection,
            Err(error) => {
                eprintln!("SKIPPED: nothing can be mounted here: {error}");
                return Ok(());
            }
        };
        let server = Server::start(connection, fs, ServerOptions { writeback, ..ServerOptions::default() })?;
        let mounted = Unmounted(dir.path());
        mounted_files_are_told_once(dir.path(), &device, writeback)?;
        drop(mounted);
        // It cannot write its data, and reports that.
        assert!(server.wait().is_err());
    }
    Ok(())
}
