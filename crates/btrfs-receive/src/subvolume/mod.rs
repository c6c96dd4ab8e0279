//! The subvolume that is being built.
//!
//! Commands arrive as the sender saw its files, one after the other, so the directory of the last path and the file
//! that was written last are kept for the next command. Both are forgotten when names change.
//!
//! Files that the sender had made immutable or append-only could not be changed by later commands. Such flags
//! (`LATE`) are taken off where they are in the way, and set when everything else is done.

mod contents;
mod names;

use crate::error::Cause;
use crate::held::{self, Held};
use crate::note;
use crate::path;
use crate::watch::Options;
use btrfs_stream::{Command, Compression, Time};
use contents::OpenFile;
use std::collections::HashMap;
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{Caller, Errno, NodeFlags, NodeId, SetAttr, SetTime, XattrMode};

/// Flags that keep later commands from their work, or slow them down: set at the end.
const LATE: NodeFlags = NodeFlags::IMMUTABLE.union(NodeFlags::APPEND).union(NodeFlags::SYNC).union(NodeFlags::DIRSYNC);
/// Flags that a command sets at once. Those of compression come with an attribute.
const EARLY: NodeFlags = NodeFlags::NODUMP.union(NodeFlags::NOATIME).union(NodeFlags::NOCOW);
const COMPRESSION: NodeFlags = NodeFlags::COMPRESS.union(NodeFlags::NOCOMPRESS);
/// Permission bits with set-user, set-group and sticky.
const PERMISSION_MASK: u64 = 0o7777;

/// A subvolume that is not complete yet.
pub(crate) struct Target {
    fs: Arc<dyn FileSystem>,
    options: Options,
    root: Arc<Held>,
    /// The directory of the last path.
    dir: Option<(Vec<u8>, Arc<Held>)>,
    /// The file that was written last.
    open: Option<OpenFile>,
    /// Flags to be set at the end.
    late: HashMap<NodeId, (Arc<Held>, NodeFlags)>,
    /// What the stream calls the subvolume.
    pub(crate) uuid: [u8; 16],
    /// Commands that failed.
    pub(crate) failures: u64,
}

impl Target {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, root: Held, uuid: [u8; 16], options: Options) -> Self {
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
    pub(crate) fn root(&self) -> &Arc<Held> {
        &self.root
    }

    /// The number of the subvolume.
    pub(crate) fn number(&self) -> u64 {
        self.root.attr().home.subvolume
    }

    /// Carries out one command other than those that begin and end a subvolume, and clones.
    pub(crate) fn apply(&mut self, command: &Command<'_>) -> Result<(), Cause> {
        self.with_flags_off(command, |target| target.try_apply(command))
    }

    /// Does something, once more where flags of the files that `command` is about forbade it.
    pub(crate) fn with_flags_off(
        &mut self,
        command: &Command<'_>,
        act: impl Fn(&mut Self) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        match act(self) {
            Err(cause) if held::is_forbidden(&cause) && self.take_flags_off(command)? => act(self),
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
            // Its contents would be holes, and what builds on it would not know.
            Command::UpdateExtent { .. } => Err(Cause::NoData),
            _ => self.change_names(command),
        }
    }

    /// What a path leads to.
    fn find(&mut self, path: &[u8]) -> Result<Arc<Held>, Cause> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        let (dir, name) = self.parent(path)?;
        Ok(Arc::new(dir.child(name)?))
    }

    /// The directory that a path is in, and the name in it.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(Arc<Held>, &'p [u8]), Cause> {
        let (dir, name) = path::parent(path)?;
        if dir.is_empty() {
            return Ok((Arc::clone(&self.root), name));
        }
        if let Some((known, held)) = &self.dir
            && known == dir
        {
            return Ok((Arc::clone(held), name));
        }
        let held = held::walk(&self.root, dir)?;
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

    /// Sets what of the flags can be set at once, and notes the rest. What the sender's file had of checksums and
    /// compression was decided when its contents were written.
    fn set_flags(&mut self, path: &[u8], flags: u64) -> Result<(), Cause> {
        let found = self.find(path)?;
        if !found.attr().is_file() && !found.attr().is_dir() {
            return Ok(());
        }
        let wanted = btrfs::node_flags(btrfs::InodeFlags::from_bits_retain(flags));
        let had = self.fs.flags(found.node())?;
        let mut now = (had - EARLY - LATE) | (wanted & EARLY);
        // The two exclude each other; that of compression came with an attribute, so it was asked for.
        if now.intersects(COMPRESSION) {
            now -= NodeFlags::NOCOW;
        }
        if now != had {
            self.fs.set_flags(&Caller::default(), found.node(), now)?;
        }
        self.late.insert(found.node(), (found, wanted & LATE));
        Ok(())
    }

    /// Takes flags off the files that a command is about, and the directories that they are in. True where there were
    /// any.
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
                match held::walk(&self.root, path) {
                    Ok(found) => has_changed |= self.take_off(found)?,
                    Err(Cause::Refused(error)) if error.is_not_found() => {}
                    Err(cause) => return Err(cause),
                }
            }
        }
        Ok(has_changed)
    }

    fn take_off(&mut self, found: Arc<Held>) -> Result<bool, Cause> {
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

    /// Sets the flags that were kept back, and lets go of all that is open: what is left is to be marked as received.
    pub(crate) fn complete(&mut self) -> Result<(), Cause> {
        self.let_go();
        for (node, (_, flags)) in std::mem::take(&mut self.late) {
            let set = self.set_late(node, flags);
            match set {
                // The last name of the file went after its flags were noted.
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

    /// Forgets what is known of names, and closes the file that is open.
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

/// Bytes of a sector, of which volumes here have one size. Only LZO is divided into them.
const SECTOR_SIZE: usize = 4096;

/// The codec of an encoded write, and the bytes of a sector; `None` for data that is not compressed.
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
