//! Reads, writes and copies whole files at once, and handles free space and defragmentation: methods of `Volume`. The
//! commands and `transfer` use it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::{FileOptions, Volume, bytes_of};
use crate::error::{Blame, Error, Result};
use crate::file_system::{Errno, Follow, KnownNode, Layout, Size, Trim};
use crate::number::{to_u64, to_usize};

/// Largest buffer that a file's size is trusted for, in bytes; a larger file grows the buffer as it is read.
const BUFFER_BYTES_MAX: u64 = 64 << 20;

impl Volume {
    /// The contents of a file.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; `EIO` when no good copy of the data is left.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = FileOptions::new().read(true).open(self, path)?;
        let mut bytes = Vec::new();
        loop {
            let done = bytes.len();
            let left = file.metadata()?.size.saturating_sub(to_u64(done));
            bytes.resize(done + to_usize(left.min(BUFFER_BYTES_MAX)), 0);
            if bytes.len() == done {
                return Ok(bytes);
            }
            let read = file.read_at(&mut bytes[done..], to_u64(done)).map_err(|error| error.during("read").at(path))?;
            bytes.truncate(done + read);
            if read == 0 {
                return Ok(bytes);
            }
        }
    }

    /// The contents of a file as text.
    ///
    /// # Errors
    /// As [`Volume::read`]; `EILSEQ` where they are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|error| {
            Error::new(Errno::EILSEQ, Blame::Caller, error.utf8_error()).during("read_to_string").at(path)
        })
    }

    /// Copies the contents and permissions of a file to another one, which is created or replaced; extents are shared
    /// where the format can do that. Returns the number of bytes.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; `EINVAL` where both paths name the same file; as [`Volume::write`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = FileOptions::new().read(true).open(self, from)?;
        let found = source.metadata()?;
        if self.metadata(to).is_ok_and(|other| (other.home, other.ino) == (found.home, found.ino)) {
            return Err(Error::from(Errno::EINVAL).during("copy").at(to));
        }
        let target = FileOptions::new().write(true).create(true).truncate(true).mode(found.permissions);
        let target = target.open(self, to)?;
        let mut done = 0;
        while done < found.size {
            let copied = target.copy_range(&source, done, done, found.size - done);
            match copied.map_err(|error| error.during("copy").at(to))? {
                0 => break,
                bytes => done += bytes,
            }
        }
        self.set_permissions(to, found.permissions)?;
        Ok(done)
    }

    /// All properties of the node at `path`, in one step; contents of at most `data_bytes_max` bytes. A symbolic link
    /// at the end is not followed.
    ///
    /// # Errors
    /// As [`Volume::symlink_metadata`].
    pub fn read_node(&self, path: impl AsRef<Path>, data_bytes_max: usize) -> Result<KnownNode> {
        let path = path.as_ref();
        let known = bytes_of(path).and_then(|bytes| self.fs.known_at(&bytes, Follow::AllButLast, data_bytes_max));
        known.map_err(|error| error.during("read_node").at(path))
    }

    /// [`Volume::read_node`] for several paths; the results are in their order.
    pub fn read_nodes(&self, paths: &[PathBuf], data_bytes_max: usize) -> Vec<Result<KnownNode>> {
        // A path that is not exact names no node, as the name of no bytes does.
        let exact: Vec<Cow<'_, [u8]>> = paths.iter().map(|path| bytes_of(path).unwrap_or_default()).collect();
        let bytes: Vec<&[u8]> = exact.iter().map(|path| &**path).collect();
        let known = self.fs.known_many(&bytes, Follow::AllButLast, data_bytes_max);
        known
            .into_iter()
            .zip(paths)
            .map(|(known, path)| known.map_err(|error| error.during("read_nodes").at(path)))
            .collect()
    }

    /// Replaces the contents of a file, which is created when there is none.
    ///
    /// # Errors
    /// `EISDIR`, `EROFS`, `ENOSPC`.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = FileOptions::new().write(true).create(true).truncate(true).open(self, path)?;
        file.write_at(contents.as_ref(), 0).map_err(|error| error.during("write").at(path))
    }

    /// Lays out the contents of a file anew; returns how many bytes were moved.
    ///
    /// # Errors
    /// As [`crate::Maintenance::defragment`].
    pub fn defragment(&self, path: impl AsRef<Path>, wanted: &Layout<'_>) -> Result<u64> {
        let path = path.as_ref();
        let found = self.find(path, Follow::AllButLast)?;
        self.fs
            .maintained()
            .and_then(|fs| fs.defragment(found.node(), wanted))
            .map_err(|error| error.during("defragment").at(path))
    }

    /// Discards free space; `watch` gets the number of examined bytes, and of all. Returns the discarded bytes.
    ///
    /// # Errors
    /// As [`crate::Maintenance::trim`].
    pub fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        self.fs.maintained()?.trim(wanted, watch)
    }

    /// Gives an order of the format, and runs it to its end, together with other pending background work.
    ///
    /// # Errors
    /// As [`crate::Maintenance::order`]. Later failures are reported by the attribute of that name.
    pub fn order(&self, name: &str, value: &str) -> Result<()> {
        self.fs.maintained()?.order(name.as_bytes(), value.as_bytes())?;
        while self.fs.step().is_zero() {}
        Ok(())
    }

    /// Makes the volume larger or smaller, and its image file with it; durable when it returns. Returns the size in
    /// bytes.
    ///
    /// # Errors
    /// As [`crate::Maintenance::resize`].
    pub fn resize(&self, size: Size) -> Result<u64> {
        self.fs.maintained()?.resize(size)
    }
}
