//! Implements a source over a directory of a volume. `get` and `cp` of the program copy from it, and the rescue.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use portable::OsStrExt as _;
use vfs::file_system::{KnownNode, Xattrs};
use vfs::{File, Metadata, Volume};

use super::{Found, Name, Source};
use crate::contents::Contents;
use crate::error::{Error, Result};
use crate::rules::check_name;
use crate::rules::joined;

/// Contents of at most so many bytes are read in one step with all that is known about a file.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// The same where several files are asked for at once.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// A directory, or a file, of a volume.
#[derive(Debug)]
pub struct VolumeSource<'a> {
    volume: &'a Volume,
    path: PathBuf,
    /// Small contents are read with their file.
    reads_contents: bool,
}

impl<'a> VolumeSource<'a> {
    /// The node at `path`; a symbolic link there is followed.
    pub fn new(volume: &'a Volume, path: impl Into<PathBuf>) -> Self {
        Self { volume, path: path.into(), reads_contents: true }
    }

    /// The same source for a sink that shares extents: contents are not read with their files.
    #[must_use]
    pub fn without_contents(self) -> Self {
        Self { reads_contents: false, ..self }
    }

    fn read_xattrs(&self, path: &Path) -> Result<Xattrs> {
        let mut xattrs = Xattrs::new();
        for name in self.volume.list_xattrs(path)? {
            if let Some(value) = self.volume.get_xattr(path, name.as_bytes())? {
                xattrs.push((name.into_encoded_bytes(), value));
            }
        }
        Ok(xattrs)
    }
}

/// Contents of a file of a volume, which is opened when they are first needed.
#[derive(Debug)]
pub struct VolumeFile<'a> {
    volume: &'a Volume,
    path: PathBuf,
    file: OnceCell<File>,
}

impl<'a> VolumeFile<'a> {
    /// Bytes to read at once: enough for the file system to have several threads decompress.
    pub const PIECE_BYTES: usize = 2 << 20;

    /// The file at `path`.
    pub fn new(volume: &'a Volume, path: impl Into<PathBuf>) -> Self {
        Self { volume, path: path.into(), file: OnceCell::new() }
    }

    fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(self.volume, &self.path)?;
        Ok(self.file.get_or_init(|| file))
    }

    fn named(&self) -> impl FnOnce(Error) -> Error {
        |error| error.in_volume(&self.path)
    }
}

impl Contents for VolumeFile<'_> {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        self.file()?.next_data(at, size).map_err(self.named())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        Contents::read_at(self.file()?, buffer, at).map_err(self.named())
    }

    fn size(&self) -> Result<u64> {
        Contents::size(self.file()?)
    }

    fn in_volume(&self) -> Result<Option<&File>> {
        self.file().map(Some)
    }
}

impl<'a> Source for VolumeSource<'a> {
    type Dir = PathBuf;
    type Contents = VolumeFile<'a>;

    fn top(&self, path: &Path) -> Result<KnownNode> {
        let path = joined(&self.path, path);
        let attr = self.volume.metadata(&path)?;
        Ok(KnownNode { attr, target: None, xattrs: Some(self.read_xattrs(&path)?), data: None })
    }

    fn open_dir(&self, path: &Path) -> Result<PathBuf> {
        Ok(joined(&self.path, path))
    }

    fn names(&self, dir: &PathBuf, failed: &mut dyn FnMut(Error) -> Result<()>) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for entry in self.volume.read_dir(dir)? {
            // After a failure of the volume there are no more names; those before are good.
            let checked = entry.map_err(Error::from).and_then(|entry| {
                check_name(entry.file_name())?;
                Ok(Name { name: entry.file_name().to_owned(), kind: Some(entry.file_type()) })
            });
            match checked {
                Ok(name) => names.push(name),
                Err(error) => failed(error.about(dir))?,
            }
        }
        Ok(names)
    }

    fn stat(&self, dir: &PathBuf, name: &Name) -> Result<Metadata> {
        Ok(self.volume.symlink_metadata(dir.join(&name.name))?)
    }

    fn look(&self, dir: &PathBuf, names: &[Name]) -> Vec<Result<Found<VolumeFile<'a>>>> {
        let paths: Vec<PathBuf> = names.iter().map(|name| dir.join(&name.name)).collect();
        let bytes_max = if self.reads_contents { WHOLE_BYTES_MAX } else { 0 };
        let known = match paths.as_slice() {
            [path] => vec![self.volume.read_node(path, bytes_max)],
            paths => self.volume.read_nodes(paths, bytes_max.min(AHEAD_BYTES_MAX)),
        };
        let found = |(node, path)| {
            let contents = VolumeFile::new(self.volume, path);
            Ok(Found { node: node?, contents })
        };
        known.into_iter().zip(paths).map(found).collect()
    }

    fn complete(&self, Found { node, contents }: &mut Found<VolumeFile<'a>>) -> Result<()> {
        if node.xattrs.is_none() {
            node.xattrs = Some(self.read_xattrs(&contents.path)?);
        }
        if node.attr.is_symlink() && node.target.is_none() {
            node.target = Some(self.volume.read_link(&contents.path)?.into_os_string().into_encoded_bytes());
        }
        Ok(())
    }

    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        self.read_xattrs(&joined(&self.path, path))
    }

    fn at_once(&self) -> usize {
        self.volume.at_once()
    }

    fn piece_bytes(&self) -> usize {
        VolumeFile::PIECE_BYTES
    }

    fn is_tree(&self) -> bool {
        true
    }

    fn display(&self, _path: &Path) -> Option<PathBuf> {
        None
    }
}
