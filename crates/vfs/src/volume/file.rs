//! Reads and writes open files ([`File`]). `FileOptions::open` and `Volume` make them for programs.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Metadata, Volume, gone};
use crate::error::{Error, Result};
use crate::file_system::{
    AllocateFlags, CopyRange, Entry, Errno, Extent, Follow, Handle, NewNode, NodeId, NodeKind, OpenFlags, Seek,
    SetAttr, SyncWhat, WriteFlags,
};
use crate::number::to_u64;

/// Permission bits of a new file.
pub(super) const FILE_PERMISSIONS: u32 = 0o644;

/// The access for which a file was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
}

impl Access {
    pub(super) fn writes(self) -> bool {
        self.write || self.append
    }

    pub(super) fn flags(self) -> OpenFlags {
        let mut flags = OpenFlags::NO_ATIME;
        flags.set(OpenFlags::READ, self.read);
        flags.set(OpenFlags::WRITE, self.writes());
        flags.set(OpenFlags::APPEND, self.append);
        flags
    }
}

/// An open file. It stays readable and writable when its name goes.
///
/// Methods with positions take `&self` and may be called from many threads at once. Data that was written is in memory
/// until [`File::sync_all`], [`Volume::sync`], or until the file system's budget for such data is used up.
pub struct File {
    volume: Volume,
    node: NodeId,
    handle: Handle,
    kind: NodeKind,
    access: Access,
    position: Mutex<u64>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("node", &self.node).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.volume.fs.release(self.node, self.handle);
        self.volume.fs.forget(self.node, 1);
    }
}

impl File {
    /// Takes over a reference and an opening.
    pub(super) fn new(volume: &Volume, entry: Entry, handle: Handle, access: Access) -> Self {
        Self {
            volume: volume.clone(),
            node: entry.node,
            handle,
            kind: entry.attr.kind,
            access,
            position: Mutex::new(0),
        }
    }

    /// Makes a file without a name in the directory at `dir`. It goes when it is closed, unless [`File::link`] gives
    /// it a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EROFS`, `ENOSPC`.
    pub fn unnamed(volume: &Volume, dir: impl AsRef<Path>) -> Result<Self> {
        let parent = volume.find(dir.as_ref(), Follow::Last)?;
        let access = Access { read: true, write: true, append: false };
        let new = NewNode { permissions: FILE_PERMISSIONS, ..NewNode::default() };
        let made = volume.fs.create_unnamed(&volume.caller, parent.node(), &new, access.flags());
        let (entry, handle) = made.map_err(|error| error.during("unnamed").at(dir.as_ref()))?;
        Ok(Self::new(volume, entry, handle, access))
    }

    /// Gives the file a name, its first or one more.
    ///
    /// # Errors
    /// As [`Volume::hard_link`].
    pub fn link(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.volume.find_parent(path.as_ref())?;
        let linked = self
            .volume
            .fs
            .link(self.node, dir.node(), name)
            .map_err(|error| gone(error).during("link").at(path.as_ref()))?;
        self.volume.fs.forget(linked.node, 1);
        Ok(())
    }

    /// Reads at a position. Less than the whole buffer is filled only at the end of the file.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`; `EIO` when no good copy is left.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check(self.access.read)?;
        self.volume.fs.read(self.node, self.handle, offset, buffer)
    }

    /// Writes all of `data` at a position; the file grows where that is needed. A file opened for appending writes at
    /// its end instead.
    ///
    /// # Errors
    /// `EBADF`, `EROFS`, `EFBIG`, `ENOSPC`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check_writable()?;
        let flags = if self.access.append { WriteFlags::APPEND } else { WriteFlags::empty() };
        let (mut rest, mut at) = (data, offset);
        loop {
            let missing = self.volume.fs.write(self.node, self.handle, at, rest, flags)?.missing;
            let (done, behind) = rest.split_at(rest.len().saturating_sub(missing));
            if behind.is_empty() {
                return Ok(());
            }
            if done.is_empty() {
                return Err(Errno::EIO.into());
            }
            at = at.saturating_add(to_u64(done.len()));
            rest = behind;
        }
    }

    /// Cuts the file, or extends it with a hole.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        let changes = SetAttr { size: Some(len), handle: Some(self.handle), ..SetAttr::default() };
        self.volume.fs.set_attr(&self.volume.caller, self.node, &changes).map(drop)
    }

    /// Reserves space for a range, or makes it a hole or zeros.
    ///
    /// # Errors
    /// As [`File::write_at`], `EINVAL` for an empty range, and `EOPNOTSUPP` for flags that do not go together.
    pub fn allocate(&self, flags: AllocateFlags, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.volume.fs.allocate(self.node, flags, offset, len)
    }

    /// The first byte of data at or after `offset`.
    ///
    /// # Errors
    /// `ENXIO` when there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.check(true)?;
        self.volume.fs.seek(self.node, Seek::Data, offset)
    }

    /// The first byte of a hole at or after `offset`; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` when `offset` is behind the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.check(true)?;
        self.volume.fs.seek(self.node, Seek::Hole, offset)
    }

    /// The file's extents in order. Holes are not listed.
    ///
    /// # Errors
    /// As [`crate::FileSystem::extents`].
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.extents_from(0)
    }

    /// The file's extents from `offset` on, at most about a million.
    ///
    /// # Errors
    /// As [`crate::FileSystem::extents`].
    pub fn extents_from(&self, offset: u64) -> Result<Vec<Extent>> {
        self.check(true)?;
        self.volume.fs.extents(self.node, offset)
    }

    /// Copies up to `len` bytes from `source`, by sharing where that is possible. Returns how many: fewer where the
    /// source ends, and where more would take long. Both files are of one volume.
    ///
    /// # Errors
    /// `EBADF`; `EXDEV` for files of two volumes; `EINVAL` for ranges of one file that overlap; as [`File::write_at`].
    pub fn copy_range(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<u64> {
        let range = self.range_from(source, source_offset, offset, len)?;
        self.volume.fs.copy_range(&range)
    }

    /// Shares `len` bytes of `source`, up to its end for 0. Both files are of one volume.
    ///
    /// # Errors
    /// `EBADF`, `EXDEV`, and as [`crate::FileSystem::reflink`].
    pub fn reflink(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<()> {
        let range = self.range_from(source, source_offset, offset, len)?;
        self.volume.fs.reflink(&range)
    }

    /// Shares `len` bytes of `source` where both files have the same ones; false where they do not. Both files are of
    /// one volume. Neither needs to be open for writing: no contents change.
    ///
    /// # Errors
    /// `EBADF`, `EXDEV`, and as [`crate::FileSystem::dedupe`].
    pub fn dedupe(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<bool> {
        let range = self.range_of(source, source_offset, offset, len)?;
        self.volume.fs.dedupe(&range)
    }

    fn range_from(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<CopyRange> {
        self.check_writable()?;
        self.range_of(source, source_offset, offset, len)
    }

    fn range_of(&self, source: &Self, source_offset: u64, offset: u64, len: u64) -> Result<CopyRange> {
        source.check(source.access.read)?;
        if !Arc::ptr_eq(&self.volume.fs, &source.volume.fs) {
            return Err(Errno::EXDEV.into());
        }
        Ok(CopyRange { source: source.node, source_offset, target: self.node, target_offset: offset, len })
    }

    /// The file's attributes, as `stat` reports them.
    ///
    /// # Errors
    /// As [`crate::FileSystem::attr`].
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume.fs.attr(self.node)
    }

    /// Makes the file's data and metadata durable, with the names that lead to it.
    ///
    /// # Errors
    /// As [`crate::FileSystem::sync_file`].
    pub fn sync_all(&self) -> Result<()> {
        self.volume.fs.sync_file(self.node, self.handle, SyncWhat::All)
    }

    /// Makes the file's data durable, and the metadata needed to read it.
    ///
    /// # Errors
    /// As [`crate::FileSystem::sync_file`].
    pub fn sync_data(&self) -> Result<()> {
        self.volume.fs.sync_file(self.node, self.handle, SyncWhat::Data)
    }

    fn check_writable(&self) -> Result<()> {
        self.check(self.access.writes())
    }

    fn check(&self, may: bool) -> Result<()> {
        if self.kind.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        if may { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    fn seek_to(&self, to: io::SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let target = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.metadata()?.size.checked_add_signed(by),
        };
        *position = target.ok_or_else(|| Error::from(Errno::EINVAL))?;
        Ok(*position)
    }
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
        self.write_at(data, *position)?;
        *position = match self.access.append {
            true => self.metadata()?.size,
            false => position.saturating_add(to_u64(data.len())),
        };
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
