//! Gives nodes of a tree contents that lie in memory, or in a file of the host that is opened when it is needed.
//! `host`, `manifest` and `oci` make them; `ContentReader` reads contents from begin to end.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use transfer::{Contents, FileId, HostSource, Name, Source as _, Stored, file_id};
use vfs::file_system::NodeKind;

use crate::number::to_u64;

/// Contents in memory.
pub(crate) struct Bytes(pub(crate) Arc<[u8]>);

impl Stored for Bytes {
    fn open(&self) -> transfer::Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl Contents for Bytes {
    fn next_data(&self, at: u64, size: u64) -> transfer::Result<Option<(u64, u64)>> {
        let end = size.min(to_u64(self.0.len()));
        Ok((at < end).then_some((at, end)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> transfer::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(count)
    }

    fn size(&self) -> transfer::Result<u64> {
        Ok(to_u64(self.0.len()))
    }
}

/// Contents of a file below a directory of the host. No symbolic link is followed on the way to it.
pub(crate) struct HostFile {
    source: Arc<HostSource>,
    /// The file's directory, relative to the source.
    dir: Arc<Path>,
    name: Name,
    /// Device and inode number that it had when it was found.
    id: FileId,
}

impl HostFile {
    /// The file `name` in `dir`, which was found with this identity.
    pub(crate) fn new(source: &Arc<HostSource>, dir: &Arc<Path>, name: Name, id: FileId) -> Self {
        Self { source: Arc::clone(source), dir: Arc::clone(dir), name, id }
    }

    /// The regular file at `path` below `source`, and its size in bytes.
    ///
    /// # Errors
    /// Those of the host; there is no such regular file.
    pub(crate) fn find(source: &Arc<HostSource>, path: &Path) -> transfer::Result<(Self, u64)> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "expected the path of a file");
        let name = path.file_name().ok_or_else(missing)?.to_owned();
        let dir: Arc<Path> = path.parent().unwrap_or(Path::new("")).into();
        let found = Self::look(source, &dir, &Name { name: name.clone(), kind: None })?;
        let file = Self::new(source, &dir, Name { name, kind: Some(NodeKind::File) }, file_id(&found.node.attr));
        Ok((file, found.node.attr.size))
    }

    fn look(source: &HostSource, dir: &Path, name: &Name) -> transfer::Result<transfer::Found<transfer::HostContents>> {
        let about = |error: transfer::Error| {
            let path = source.display(&dir.join(&name.name));
            path.into_iter().fold(error, transfer::Error::about)
        };
        let open = source.open_dir(dir)?;
        let found = source.look(&open, std::slice::from_ref(name)).pop();
        let found = found.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::NotFound).into())).map_err(about)?;
        if found.node.attr.is_file() {
            return Ok(found);
        }
        let text = format!("expected a regular file, found {}", kind_name(found.node.attr.kind));
        Err(about(io::Error::other(text).into()))
    }
}

impl Stored for HostFile {
    fn open(&self) -> transfer::Result<Box<dyn Contents + Send + Sync>> {
        let found = Self::look(&self.source, &self.dir, &self.name)?;
        if file_id(&found.node.attr) == self.id {
            return Ok(Box::new(found.contents));
        }
        let error = transfer::Error::from(io::Error::other("another file has this name since it was found"));
        let path = self.source.display(&self.dir.join(&self.name.name));
        Err(path.into_iter().fold(error, transfer::Error::about))
    }
}

/// A kind of node in words.
pub(crate) const fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "a regular file",
        NodeKind::Directory => "a directory",
        NodeKind::Symlink => "a symbolic link",
        NodeKind::CharDevice => "a character device",
        NodeKind::BlockDevice => "a block device",
        NodeKind::Fifo => "a named pipe",
        NodeKind::Socket => "a socket",
    }
}

/// Reads contents from begin to end; holes are zeros.
pub(crate) struct ContentReader {
    contents: Arc<dyn Contents + Send + Sync>,
    at: u64,
}

impl ContentReader {
    pub(crate) const fn new(contents: Arc<dyn Contents + Send + Sync>) -> Self {
        Self { contents, at: 0 }
    }
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.contents.read_at(buffer, self.at).map_err(io::Error::other)?;
        self.at = self.at.saturating_add(to_u64(count));
        Ok(count)
    }
}
