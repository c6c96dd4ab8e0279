//! Simulates a disk with a volatile cache: a file system of one file, which records all changes to that file.
//!
//! It is a FUSE file system without a writeback cache, so that each `write(2)` to the file arrives before it returns,
//! as do punched holes and each `fsync(2)`; it runs in a process of its own, so that a server of ours which uses the
//! file never waits for itself. The file's bytes are in another file, which should be in memory.
//!
//! The kernel holds the file's lock while it writes and while it syncs, so no write runs at the same time as a flush.
//!
//! It refuses all other requests. Called by `cargo trials power-cut-disk`, which `power-cut` starts.

use super::record::{Kind, Recorder};
use anyhow::Result;
use fuse::{Connection, MountOptions, Server, ServerOptions};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, DirEntry, DirSink, Entry, Errno, Handle, Home, NodeFlags, NodeId, NodeKind,
    OpenFlags, SetAttr, SyncWhat, Time, VolumeStatus, WriteFlags, Written,
};

/// The name of the only file.
pub(super) const NAME: &str = "disk.img";
const NODE: NodeId = NodeId(2);
const BLOCK_BYTES: u32 = 4096;
/// No background work is due.
const IDLE: Duration = Duration::from_secs(60);

/// Paths of the disk.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Holds the bytes.
    backing: PathBuf,
    /// File for the record
    record: PathBuf,
    /// Mount point
    dir: PathBuf,
}

/// Serves until it is unmounted.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let backing = File::options().read(true).write(true).open(&options.backing)?;
    let disk = Disk {
        size_bytes: AtomicU64::new(backing.metadata()?.len()),
        size_bytes_max: backing.metadata()?.len(),
        backing,
        recorder: Mutex::new(Recorder::create(&options.record)?),
    };
    let mount = MountOptions {
        source: "power-cut".to_owned(),
        subtype: "spinney-disk".to_owned(),
        allow_other: true,
        default_permissions: true,
        ..MountOptions::default()
    };
    let connection = Connection::mount(&options.dir, &mount)?;
    let serving = ServerOptions { near: false, ..ServerOptions::default() };
    Server::start(connection, Arc::new(disk), serving)?.wait()?;
    Ok(())
}

#[derive(Debug)]
struct Disk {
    backing: File,
    /// Size of the file. Truncated bytes are discarded; added ones are zeros.
    size_bytes: AtomicU64,
    /// Largest size.
    size_bytes_max: u64,
    /// Locked around each change, so that the record has the order in which overlapping writes happened.
    recorder: Mutex<Recorder>,
}

impl Disk {
    fn attr_of(&self, node: NodeId) -> Answer<Attr> {
        let (kind, permissions, size, blocks) = match node {
            NodeId::ROOT => (NodeKind::Directory, 0o755, 0, 0),
            NODE => (NodeKind::File, 0o644, self.size(), self.size() / 512),
            _ => return Err(Errno::ENOENT.into()),
        };
        Ok(Attr {
            ino: node.0,
            kind,
            permissions,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks,
            block_bytes: BLOCK_BYTES,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
            flags: NodeFlags::default(),
            home: Home::default(),
        })
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn set_size(&self, size: u64) -> Answer<()> {
        if size > self.size_bytes_max {
            return Err(Errno::EFBIG.into());
        }
        let cut_off = self.size().saturating_sub(size);
        if cut_off > 0 {
            self.change(Kind::Discard, size, cut_off, &[])?;
        }
        self.size_bytes.store(size, Ordering::Release);
        Ok(())
    }

    fn change(&self, kind: Kind, offset: u64, len: u64, data: &[u8]) -> Answer<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.size_bytes_max) {
            return Err(Errno::EFBIG.into());
        }
        let mut recorder = self.recorder.lock();
        match kind {
            Kind::Write => self.backing.write_all_at(data, offset).map_err(io_error)?,
            _ => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.backing, flags, offset, len).map_err(|_| Errno::EIO)?;
            }
        }
        let number = recorder.add(kind, offset, len, data).map_err(io_error)?;
        self.size_bytes.fetch_max(offset.saturating_add(len), Ordering::AcqRel);
        drop(recorder);
        self.answer(number)
    }

    fn flush(&self) -> Answer<()> {
        let number = self.recorder.lock().add(Kind::Flush, 0, 0, &[]).map_err(io_error)?;
        self.answer(number)
    }

    fn answer(&self, number: u64) -> Answer<()> {
        Ok(self.recorder.lock().answer(number).map_err(io_error)?)
    }
}

fn io_error(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}

impl FileSystem for Disk {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        let node = match (parent, name) {
            (NodeId::ROOT, name) if name == NAME.as_bytes() => NODE,
            (_, b".") => parent,
            (_, b"..") => NodeId::ROOT,
            _ => return Err(Errno::ENOENT.into()),
        };
        Ok(Entry { node, generation: 0, attr: self.attr_of(node)? })
    }

    fn forget(&self, _: NodeId, _: u64) {}

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.attr_of(node)
    }

    /// Times and owners may be set and are not kept.
    fn set_attr(&self, _: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        if let (NODE, Some(size)) = (node, changes.size) {
            self.set_size(size)?;
        }
        self.attr_of(node)
    }

    fn open(&self, _: &Caller, _: NodeId, _: OpenFlags) -> Answer<Handle> {
        Ok(Handle::default())
    }

    fn release(&self, _: NodeId, _: Handle) {}

    fn read(&self, node: NodeId, _: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        if node != NODE {
            return Err(Errno::EISDIR.into());
        }
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = left.min(buf.len());
        let buf = buf.get_mut(..len).unwrap_or_default();
        let mut count = 0;
        while let Some(rest) = buf.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let at = u64::try_from(count).map_or(u64::MAX, |count| offset.saturating_add(count));
            match self.backing.read_at(rest, at).map_err(io_error)? {
                0 => break,
                more => count = count.saturating_add(more),
            }
        }
        Ok(count)
    }

    fn write(&self, _: NodeId, _: Handle, offset: u64, data: &[u8], _: WriteFlags) -> Answer<Written> {
        let len = u64::try_from(data.len()).map_err(|_| Errno::EFBIG)?;
        self.change(Kind::Write, offset, len, data)?;
        Ok(Written::default())
    }

    fn sync_file(&self, _: NodeId, _: Handle, _: SyncWhat) -> Answer<()> {
        self.flush()
    }

    /// Programs that use the disk do not call it.
    fn sync_fs(&self) -> Answer<()> {
        Ok(())
    }

    fn allocate(&self, _: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        match flags == AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE {
            true => self.change(Kind::Discard, offset, len, &[]),
            false => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    fn read_dir(&self, _: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let entry = DirEntry { name: NAME.as_bytes(), ino: NODE.0, kind: NodeKind::File, next: 1 };
        if from == 0 && with_nodes {
            sink.add_with_node(&entry, Some(&self.lookup(NodeId::ROOT, NAME.as_bytes())?));
        } else if from == 0 {
            sink.add(&entry);
        }
        Ok(())
    }

    fn status(&self) -> Answer<VolumeStatus> {
        Ok(VolumeStatus { block_bytes: BLOCK_BYTES, name_bytes_max: 255, ..VolumeStatus::default() })
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn step(&self) -> Duration {
        IDLE
    }
}
