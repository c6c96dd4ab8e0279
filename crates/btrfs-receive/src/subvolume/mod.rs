//! [`Target`]: applies the commands of a stream to the subvolume being built.
//!
//! Commands follow the order in which the sender walked its files, so the directory of the last path and the last
//! written file are cached for the next command. Commands that change names drop both.
//!
//! Immutable and append-only files would refuse later commands. Such flags (`LATE`) are cleared when they are in the
//! way, and set after all other commands. `receiver` applies every command to a target.

mod contents;
mod names;

use crate::error::Cause;
use crate::node_ref::{self, NodeRef};
use crate::note;
use crate::options::Options;
use crate::path;
use btrfs_stream::{Command, Compression, Time};
use contents::OpenFile;
use std::collections::HashMap;
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{Caller, Errno, NodeFlags, NodeId, SetAttr, SetTime, XattrMode};

/// Flags that would block or slow down later commands: set at the end.
const LATE: NodeFlags = NodeFlags::IMMUTABLE.union(NodeFlags::APPEND).union(NodeFlags::SYNC).union(NodeFlags::DIRSYNC);
/// Flags that a command sets at once. An xattr sets those of compression.
const EARLY: NodeFlags = NodeFlags::NODUMP.union(NodeFlags::NOATIME).union(NodeFlags::NOCOW);
const COMPRESSION: NodeFlags = NodeFlags::COMPRESS.union(NodeFlags::NOCOMPRESS);
/// Permission bits with set-user-ID, set-group-ID and sticky.
const PERMISSION_MASK: u64 = 0o7777;

/// An incomplete subvolume.
pub(crate) struct Target {
    fs: Arc<dyn FileSystem>,
    options: Options,
    root: Arc<NodeRef>,
    /// The directory of the last path.
    dir: Option<(Vec<u8>, Arc<NodeRef>)>,
    /// The last file written.
    open: Option<OpenFile>,
    /// Flags to set at the end.
    late: HashMap<NodeId, (Arc<NodeRef>, NodeFlags)>,
    /// UUID of the subvolume in the stream.
    pub(crate) uuid: [u8; 16],
    /// Commands that failed.
    pub(crate) failures: u64,
}

impl Target {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, root: NodeRef, uuid: [u8; 16], options: Options) -> Self {
        Self {
            fs: Arc::clone(fs),
            options,
            root: Arc::new(root),
            dir: None,
            open: None,
            late: HashMap::new(),
            uuid,
            failures: 0,
        }
    }

    /// The root directory of the subvolume.
    pub(crate) fn root(&self) -> &Arc<NodeRef> {
        &self.root
    }

    /// The number of the subvolume.
    pub(crate) fn number(&self) -> u64 {
        self.root.attr().home.subvolume
    }

    /// Applies a command, except clones and those that begin or end a subvolume.
    pub(crate) fn apply(&mut self, command: &Command<'_>) -> Result<(), Cause> {
        self.with_flags_off(command, |target| target.try_apply(command))
    }

    /// Runs `act`, and again with flags cleared if flags of the files in `command` forbade it.
    pub(crate) fn with_flags_off(
        &mut self,
        command: &Command<'_>,
        act: impl Fn(&mut Self) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        match act(self) {
            Err(cause) if node_ref::is_forbidden(&cause) && self.take_flags_off(command)? => act(self),
            result => result,
        }
    }

    fn try_apply(&mut self, command: &Command<'_>) -> Result<(), Cause> {
        match *command {
            Command::SetXattr { name: note::NAME, .. } | Command::RemoveXattr { name: note::NAME, .. } => {
                Err(Cause::OwnNote)
            }
            Command::SetXattr { path, name, value } => {
                let found = self.find(path)?;
                Ok(self.fs.set_xattr(found.node(), name, value, XattrMode::Either, false)?)
            }
            Command::RemoveXattr { path, name } => {
                let found = self.find(path)?;
                Ok(self.fs.remove_xattr(found.node(), name)?)
            }
            Command::Truncate { path, size } => self.set(path, SetAttr { size: Some(size), ..SetAttr::default() }),
            Command::Chmod { path, mode } => self.chmod(path, mode),
            Command::Chown { path, uid, gid } => {
                let (uid, gid) = (Some(owner("the user", uid)?), Some(owner("the group", gid)?));
                self.set(path, SetAttr { uid, gid, ..SetAttr::default() })
            }
            Command::Utimes { path, atime, mtime, ctime, otime } => self.set(
                path,
                SetAttr {
                    atime: Some(SetTime::To(time(atime))),
                    mtime: Some(SetTime::To(time(mtime))),
                    ctime: Some(time(ctime)),
                    btime: otime.map(time),
                    ..SetAttr::default()
                },
            ),
            Command::Fileattr { path, flags } => self.set_flags(path, flags),
            Command::Write { path, offset, data } => self.write(path, offset, data),
            Command::EncodedWrite(ref write) => self.write_encoded(write),
            Command::Fallocate { path, mode, offset, size } => self.allocate(path, mode, offset, size),
            // The contents would become holes, and subvolumes built on it would be wrong.
            Command::UpdateExtent { .. } => Err(Cause::NoData),
            _ => self.change_names(command),
        }
    }

    /// Resolves a path.
    fn find(&mut self, path: &[u8]) -> Result<Arc<NodeRef>, Cause> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        let (dir, name) = self.parent(path)?;
        Ok(Arc::new(dir.child(name)?))
    }

    /// Resolves the directory of a path, and returns the name in it.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(Arc<NodeRef>, &'p [u8]), Cause> {
        let (dir, name) = path::parent(path)?;
        if dir.is_empty() {
            return Ok((Arc::clone(&self.root), name));
        }
        if let Some((known, held)) = &self.dir
            && known == dir
        {
            return Ok((Arc::clone(held), name));
        }
        let held = node_ref::walk(&self.root, dir)?;
        if !held.attr().is_dir() {
            return Err(path::BadPath::NotADirectory.into());
        }
        self.dir = Some((dir.to_vec(), Arc::clone(&held)));
        Ok((held, name))
    }

    fn set(&mut self, path: &[u8], changes: SetAttr) -> Result<(), Cause> {
        let found = self.find(path)?;
        self.fs.set_attr(&Caller::default(), found.node(), &changes)?;
        Ok(())
    }

    fn chmod(&mut self, path: &[u8], mode: u64) -> Result<(), Cause> {
        let found = self.find(path)?;
        if found.attr().is_symlink() {
            return Err(vfs::Error::from(Errno::EOPNOTSUPP).into());
        }
        let permissions = u32::try_from(mode & PERMISSION_MASK).unwrap_or_default();
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.fs.set_attr(&Caller::default(), found.node(), &changes)?;
        Ok(())
    }

    /// Sets the flags that can be set now and keeps the rest for the end. Flags for checksums and compression took
    /// effect when the contents were written.
    fn set_flags(&mut self, path: &[u8], flags: u64) -> Result<(), Cause> {
        let found = self.find(path)?;
        if !found.attr().is_file() && !found.attr().is_dir() {
            return Ok(());
        }
        let wanted = btrfs::node_flags(btrfs::InodeFlags::from_bits_retain(flags));
        let had = self.fs.flags(found.node())?;
        let mut now = (had - EARLY - LATE) | (wanted & EARLY);
        // The two flags exclude each other. Compression was requested by an xattr, so it wins.
        if now.intersects(COMPRESSION) {
            now -= NodeFlags::NOCOW;
        }
        if now != had {
            self.fs.set_flags(&Caller::default(), found.node(), now)?;
        }
        self.late.insert(found.node(), (found, wanted & LATE));
        Ok(())
    }

    /// Clears flags of the files that a command touches and of their directories. True if any were set.
    fn take_flags_off(&mut self, command: &Command<'_>) -> Result<bool, Cause> {
        let second = match *command {
            Command::Rename { to, .. } => Some(to),
            Command::Link { existing, .. } => Some(existing),
            _ => None,
        };
        let mut has_changed = false;
        for path in command.path().into_iter().chain(second) {
            let dir = path::parent(path).map_or(path, |(dir, _)| dir);
            for path in [dir, path] {
                match node_ref::walk(&self.root, path) {
                    Ok(found) => has_changed |= self.take_off(found)?,
                    Err(Cause::Refused(error)) if error.is_not_found() => {}
                    Err(cause) => return Err(cause),
                }
            }
        }
        Ok(has_changed)
    }

    fn take_off(&mut self, found: Arc<NodeRef>) -> Result<bool, Cause> {
        if !found.attr().is_file() && !found.attr().is_dir() {
            return Ok(false);
        }
        let had = self.fs.flags(found.node())?;
        if !had.intersects(NodeFlags::IMMUTABLE | NodeFlags::APPEND) {
            return Ok(false);
        }
        self.fs.set_flags(&Caller::default(), found.node(), had - LATE)?;
        self.late.entry(found.node()).or_insert((found, had & LATE));
        Ok(true)
    }

    /// Sets the late flags and closes all nodes, before the subvolume is marked as received.
    pub(crate) fn complete(&mut self) -> Result<(), Cause> {
        self.let_go();
        for (node, (_, flags)) in std::mem::take(&mut self.late) {
            let set = self.set_late(node, flags);
            match set {
                // The last name of the file was removed after its flags were recorded.
                Err(error) if [Errno::ESTALE, Errno::ENOENT].contains(&error.errno()) => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn set_late(&self, node: NodeId, flags: NodeFlags) -> vfs::Result<()> {
        let had = self.fs.flags(node)?;
        let now = (had - LATE) | flags;
        if now == had {
            return Ok(());
        }
        let ctime = self.fs.attr(node)?.ctime;
        self.fs.set_flags(&Caller::default(), node, now)?;
        self.fs.set_attr(&Caller::default(), node, &SetAttr { ctime: Some(ctime), ..SetAttr::default() })?;
        Ok(())
    }

    /// Drops the cached directory and closes the open file.
    pub(crate) fn let_go(&mut self) {
        self.dir = None;
        self.open = None;
    }
}

fn owner(what: &'static str, id: u64) -> Result<u32, Cause> {
    u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(Cause::Value { what, found: id })
}

fn time(time: Time) -> vfs::file_system::Time {
    vfs::file_system::Time { sec: time.seconds, nsec: time.nanoseconds }
}

/// Sector size of volumes that can be written. Only LZO data is divided into sectors.
const SECTOR_SIZE: usize = 4096;

/// The codec and sector size of an encoded write; `None` for uncompressed data.
fn codec_of(compression: Compression) -> Option<(codec::CompressionType, usize)> {
    match compression {
        Compression::None => None,
        Compression::Zlib => Some((codec::CompressionType::Zlib, SECTOR_SIZE)),
        Compression::Zstd => Some((codec::CompressionType::Zstd, SECTOR_SIZE)),
        Compression::Lzo { sector_size } => {
            Some((codec::CompressionType::Lzo, usize::try_from(sector_size).unwrap_or(SECTOR_SIZE)))
        }
    }
}
