//! Open files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use btrfs_disk::convert::to_u64;
use vfs::file_system::SyncWhat;

use super::walk::Follow;
use super::{AllocateMode, ExtentInfo, Volume};
use crate::dir::{NewInode, OpenInode};
use crate::error::{CallerError, Error, Result};
use crate::file::{self, CloneRange};
use crate::inode::{Change, FileType, Inode, Metadata};
use crate::locks::{Mutex, Rank};
use crate::log;
use crate::subvol;

/// Permission bits of a new file.
const FILE_PERMISSIONS: u32 = 0o644;
/// Attempts to open, or else create, a file whose name others replace by a symlink and back: each
/// fails because there is one by then.
const OPEN_ATTEMPTS_MAX: u32 = 1000;

/// How to open a file; mirrors `std::fs::OpenOptions`.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "mirrors std::fs::OpenOptions")]
pub struct FileOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

/// An open file. It stays readable and writable when its name goes.
///
/// Methods with positions take `&self` and may be called from many threads at once. Data that
/// was written is in memory until [`File::sync_all`], [`Volume::sync`], or until the volume's
/// budget for such data is used up.
#[derive(Debug)]
pub struct File {
    // In this order: the inode is let go while the volume is still there.
    inode: OpenInode,
    volume: Volume,
    options: FileOptions,
    position: Mutex<u64>,
    /// The failure that stopped writing was reported here, or before the file was opened.
    knows_failure: AtomicBool,
    _last_user: LastUser,
}

/// Gives back the space of a deleted subvolume whose last open file was closed. Dropped behind the
/// file's inode.
#[derive(Debug)]
struct LastUser(Volume);

impl Drop for LastUser {
    fn drop(&mut self) {
        // Where this fails, the next open of the volume goes on.
        let _ = subvol::drop_dead_trees(self.0.namespace());
    }
}

impl Default for FileOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FileOptions {
    /// No access, until it is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: FILE_PERMISSIONS,
        }
    }

    /// For reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// For writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing at the end, wherever that is by then.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Empties the file.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file if there is none.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the file, and fails if there is something of that name.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a file that is created.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens the file at `path`. Symlinks are followed, except when the file is to be new.
    ///
    /// # Errors
    /// `NotFound`; `Exists` when it is to be new; `IsADirectory` for writing; `NotSupported` for
    /// what is neither file nor directory; `InvalidArgument` for options that do not go together;
    /// `NotPermitted` for writing to an immutable file, and other than for appending to an
    /// append-only one; `ReadOnly`, `NoSpace`.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let inode = self.open_inode(volume, path).map_err(|error| error.at(path))?;
        let file = File {
            inode,
            volume: volume.clone(),
            options: self.clone(),
            position: Mutex::new(Rank::Position, 0),
            knows_failure: knows_failure(volume),
            _last_user: LastUser(volume.clone()),
        };
        if self.truncate && file.inode.state().size > 0 {
            file.set_len(0).map_err(|error| error.at(path))?;
        }
        Ok(file)
    }

    fn open_inode(&self, volume: &Volume, path: &Path) -> Result<OpenInode> {
        let writes = self.write || self.append;
        let creates = self.create || self.create_new;
        if !writes && (!self.read || creates || self.truncate) {
            return Err(CallerError::InvalidArgument.into());
        }
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match self.open_existing(volume, path, writes) {
                Err(error) if creates && error.is_not_found() => {}
                result => return result,
            }
            match self.create_file(volume, path, writes) {
                // A symlink, which has to be followed.
                Err(error) if !self.create_new && error.caller_error() == Some(CallerError::Exists) => {}
                result => return result,
            }
        }
        Err(CallerError::Stale.into())
    }

    fn open_existing(&self, volume: &Volume, path: &Path, writes: bool) -> Result<OpenInode> {
        let follow = if self.create_new { Follow::AllButLast } else { Follow::Last };
        volume.walker().find_then(path, follow, |inode| self.open_found(volume, inode, writes))
    }

    fn open_found(&self, volume: &Volume, inode: &Arc<Inode>, writes: bool) -> Result<OpenInode> {
        let refusal = match inode.kind() {
            _ if self.create_new => Some(CallerError::Exists),
            FileType::File => None,
            FileType::Directory if writes => Some(CallerError::IsADirectory),
            FileType::Directory => None,
            _ => Some(CallerError::NotSupported),
        };
        if let Some(what) = refusal {
            return Err(what.into());
        }
        if writes {
            inode.check_writable()?;
            inode.check_permits(match self.append {
                true => Change::Append,
                false => Change::Other,
            })?;
        }
        OpenInode::new(volume.namespace(), inode)
    }

    /// Opens the file, which is made unless somebody was faster.
    fn create_file(&self, volume: &Volume, path: &Path, writes: bool) -> Result<OpenInode> {
        let (dir, name) = volume.find_parent(path)?;
        let (uid, gid) = volume.inner.owner;
        let new = NewInode { permissions: self.mode, uid, gid, inherit_group: true, ..NewInode::default() };
        let namespace = volume.namespace();
        let opened = match self.create_new {
            true => namespace.create_then(&dir, name, &new, |inode| OpenInode::new(namespace, inode)),
            false => namespace.find_or_create_then(&dir, name, &new, |inode| match inode.kind() {
                FileType::Symlink => Err(CallerError::Exists.into()),
                _ => self.open_found(volume, inode, writes),
            }),
        }?;
        volume.sync_marked(&dir)?;
        Ok(opened)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open(volume: &Volume, path: impl AsRef<Path>) -> Result<Self> {
        FileOptions::new().read(true).open(volume, path)
    }

    /// Opens a file for writing; it is created or emptied.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create(volume: &Volume, path: impl AsRef<Path>) -> Result<Self> {
        FileOptions::new().write(true).create(true).truncate(true).open(volume, path)
    }

    /// Makes a file without a name in the directory at `dir`. It goes when it is closed, unless
    /// [`File::link`] gives it a name.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `ReadOnly`, `NoSpace`.
    pub fn unnamed(volume: &Volume, dir: impl AsRef<Path>) -> Result<Self> {
        let parent = volume.find(dir.as_ref(), Follow::Last)?;
        let (uid, gid) = volume.inner.owner;
        let new = NewInode { permissions: FILE_PERMISSIONS, uid, gid, inherit_group: true, ..NewInode::default() };
        let inode = volume.namespace().create_unnamed(&parent, &new);
        let inode = inode.map_err(|error| error.at(dir.as_ref()))?;
        Ok(Self {
            inode: OpenInode::adopt(volume.namespace(), inode),
            volume: volume.clone(),
            options: FileOptions::new().read(true).write(true),
            position: Mutex::new(Rank::Position, 0),
            knows_failure: knows_failure(volume),
            _last_user: LastUser(volume.clone()),
        })
    }

    /// Gives the file a name, its first or one more.
    ///
    /// # Errors
    /// As [`Volume::hard_link`].
    pub fn link(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.volume.find_parent(path.as_ref())?;
        let result = self.volume.namespace().link(&self.inode, &dir, name);
        let result = result.and_then(|()| self.volume.sync_marked(&dir));
        result.map_err(|error| error.at(path.as_ref()))
    }

    /// Reads at a position. Less than the whole buffer is filled only at the end of the file.
    ///
    /// # Errors
    /// `BadAccess`, `IsADirectory`; `Corrupt` when no good copy is left.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        file::read_at(self.volume.core(), self.check(self.options.read)?, offset, buffer)
    }

    /// Writes all of `data` at a position; the file grows where that is needed. A file opened
    /// for appending writes at its end instead.
    ///
    /// # Errors
    /// `BadAccess`, `ReadOnly`, `TooLarge`, `NoSpace`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_somewhere(data, offset).map(drop)
    }

    /// Writes, and returns the position behind what was written.
    fn write_somewhere(&self, data: &[u8], offset: u64) -> Result<u64> {
        let inode = self.check_writable()?;
        // Appenders follow one another; others find their place by themselves.
        let names = self.options.append.then(|| inode.lock_names());
        let offset = if names.is_some() { inode.state().size } else { offset };
        file::write_at(self.volume.core(), self.inode.inode(), offset, data)?;
        drop(names);
        self.sync_marked()?;
        Ok(offset.saturating_add(to_u64(data.len())))
    }

    /// Cuts the file, or extends it with a hole.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        file::set_size(self.volume.core(), self.inode.inode(), len)?;
        self.sync_marked()
    }

    /// Reserves space for a range, or makes it a hole or zeros.
    ///
    /// # Errors
    /// As [`File::write_at`], and `InvalidArgument` for an empty range.
    pub fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        file::allocate(self.volume.core(), self.inode.inode(), mode, offset, len)?;
        self.sync_marked()
    }

    /// The first byte of data at or after `offset`.
    ///
    /// # Errors
    /// `NoSuchOffset` when there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.check(true)?;
        file::seek_data(self.volume.core(), self.inode.inode(), offset)
    }

    /// The first byte of a hole at or after `offset`; the end of the file counts as one.
    ///
    /// # Errors
    /// `NoSuchOffset` when `offset` is behind the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.check(true)?;
        file::seek_hole(self.volume.core(), self.inode.inode(), offset)
    }

    /// The file's extents in order. Holes are not listed.
    ///
    /// # Errors
    /// `Io`, `Corrupt`; `NoSpace` when data that was not written yet finds no room.
    pub fn extents(&self) -> Result<Vec<ExtentInfo>> {
        self.extents_from(0)
    }

    /// The file's extents from `offset` on, at most about a million.
    ///
    /// # Errors
    /// As [`File::extents`].
    pub fn extents_from(&self, offset: u64) -> Result<Vec<ExtentInfo>> {
        self.check(true)?;
        file::extents(self.volume.core(), self.inode.inode(), offset)
    }

    /// Makes `len` bytes at `offset` share the extents that `source` has at `source_offset`; 0
    /// means up to the end of `source`. Both files are of one volume.
    ///
    /// # Errors
    /// `BadAccess`; `CrossSubvolume` for files of two volumes; `InvalidArgument` for ranges that
    /// are not aligned to sectors, overlap, or leave the source; `ReadOnly`, `NoSpace`.
    pub fn reflink(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        source.check(source.options.read)?;
        if !std::ptr::eq(self.volume.core(), source.volume.core()) {
            return Err(CallerError::CrossSubvolume.into());
        }
        let range = CloneRange { source: source_offset, destination: offset, len };
        file::reflink(self.volume.core(), source.inode.inode(), self.inode.inode(), range)?;
        self.sync_marked()
    }

    /// Copies up to `len` bytes from `source`, sharing extents where the ranges are aligned
    /// alike. Returns how many: fewer where the source ends, and where more would take long. Both
    /// files are of one volume.
    ///
    /// # Errors
    /// `BadAccess`; `CrossSubvolume` for files of two volumes; `InvalidArgument` for ranges of one
    /// file that overlap; as [`File::write_at`].
    pub fn copy_range(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<u64> {
        self.check_writable()?;
        source.check(source.options.read)?;
        if !std::ptr::eq(self.volume.core(), source.volume.core()) {
            return Err(CallerError::CrossSubvolume.into());
        }
        let range = CloneRange { source: source_offset, destination: offset, len };
        let copied = file::copy_range(self.volume.core(), source.inode.inode(), self.inode.inode(), range)?;
        self.sync_marked()?;
        Ok(copied)
    }

    /// What `stat` reports of the file.
    ///
    /// # Errors
    /// None so far; the type mirrors `std::fs`.
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.inode.metadata())
    }

    /// Makes the file's data and metadata durable, with the names that lead to it.
    ///
    /// # Errors
    /// `Io`, `NoSpace`; a failure that stopped writing is reported once to every file that was
    /// open then, whoever met it, and is `Poisoned` from then on, and to files opened later.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncWhat::All)
    }

    /// Makes the file's data durable, and what is needed to find it.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncWhat::Data)
    }

    /// Makes durable what changed, if the file's flags ask for that.
    fn sync_marked(&self) -> Result<()> {
        self.volume.sync_marked(self.inode.inode())
    }

    fn sync(&self, what: SyncWhat) -> Result<()> {
        let result = log::sync_inode(self.volume.namespace(), self.inode.inode(), what);
        if result.is_ok() || self.volume.core().store.poisoned().is_none() {
            return result;
        }
        match result {
            Err(Error::Poisoned { reason }) if !self.knows_failure.swap(true, Ordering::Relaxed) => {
                Err(btrfs_store::Error::clone(&reason).into())
            }
            result => {
                self.knows_failure.store(true, Ordering::Relaxed);
                result
            }
        }
    }

    fn check_writable(&self) -> Result<&Inode> {
        self.check(self.options.write || self.options.append)
    }

    fn check(&self, may: bool) -> Result<&Inode> {
        if self.inode.kind().is_dir() {
            return Err(CallerError::IsADirectory.into());
        }
        if may { Ok(&self.inode) } else { Err(Error::caller(CallerError::BadAccess)) }
    }

    fn seek_to(&self, to: io::SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let target = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.inode.state().size.checked_add_signed(by),
        };
        *position = target.ok_or(Error::caller(CallerError::InvalidArgument))?;
        Ok(*position)
    }
}

/// A file that is opened after a failure has nothing to lose by it.
fn knows_failure(volume: &Volume) -> AtomicBool {
    AtomicBool::new(volume.core().store.poisoned().is_some())
}

impl io::Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let read = self.read_at(buffer, *position)?;
        *position = position.saturating_add(to_u64(read));
        Ok(read)
    }
}

impl io::Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        *position = self.write_somewhere(data, *position)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl io::Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl io::Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}
