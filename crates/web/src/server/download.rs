//! Writes directories as archives while they are read: nothing is stored.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use archive::tar::{self, WriteOptions};
use transfer::{Cause, Contents as _, Found, Name, Observer, Source, VolumeFile, VolumeSource};
use vfs::file_system::{KnownNode, Xattrs};
use vfs::{Error, File, Metadata, Volume};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::date::Date;
use crate::number::to_u64;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Directories below each other in an archive of zip.
const DEPTH_MAX: usize = 4096;
/// Contents from this size on get the wider fields of zip: they hold 4 GiB even where they grow when compressed.
const WIDE_BYTES: u64 = 0xf000_0000;
/// Bits of the type of a symbolic link in a mode.
const LINK_MODE: u32 = 0o120_777;

/// The form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// PAX, with owners, links and attributes.
    Tar,
    /// Files, directories and links, with times and permissions.
    Zip,
}

impl Form {
    pub(super) const ALL: [Self; 2] = [Self::Tar, Self::Zip];

    /// The end of names, and the query that asks for it.
    pub(super) const fn end(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Zip => "zip",
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Tar => "application/x-tar",
            Self::Zip => "application/zip",
        }
    }
}

/// Leaves out what cannot be read, as the serving user may not read everything.
struct Leniently;

impl Observer for Leniently {
    fn failed(&self, error: transfer::Error) -> transfer::Result<()> {
        let is_denied = matches!(error.cause(), Cause::Volume(error) if error.errno() == vfs::Errno::EACCES);
        if is_denied { Ok(()) } else { Err(error) }
    }
}

/// A source that opens each file when it is looked at: one that may not be read then fails before its member begins,
/// and can be left out.
struct Opened<'a>(VolumeSource<'a>);

impl<'a> Source for Opened<'a> {
    type Dir = PathBuf;
    type Contents = VolumeFile<'a>;

    fn top(&self, path: &Path) -> transfer::Result<KnownNode> {
        self.0.top(path)
    }

    fn open_dir(&self, path: &Path) -> transfer::Result<PathBuf> {
        self.0.open_dir(path)
    }

    fn names(
        &self,
        dir: &PathBuf,
        failed: &mut dyn FnMut(transfer::Error) -> transfer::Result<()>,
    ) -> transfer::Result<Vec<Name>> {
        self.0.names(dir, failed)
    }

    fn stat(&self, dir: &PathBuf, name: &Name) -> transfer::Result<Metadata> {
        self.0.stat(dir, name)
    }

    fn look(&self, dir: &PathBuf, names: &[Name]) -> Vec<transfer::Result<Found<VolumeFile<'a>>>> {
        self.0.look(dir, names)
    }

    fn complete(&self, found: &mut Found<VolumeFile<'a>>) -> transfer::Result<()> {
        self.0.complete(found)?;
        if found.node.attr.is_file() && found.node.data.is_none() {
            found.contents.size()?;
        }
        Ok(())
    }

    fn xattrs(&self, path: &Path) -> transfer::Result<Xattrs> {
        self.0.xattrs(path)
    }

    fn piece_bytes(&self) -> usize {
        self.0.piece_bytes()
    }

    fn is_tree(&self) -> bool {
        self.0.is_tree()
    }

    fn display(&self, path: &Path) -> Option<PathBuf> {
        self.0.display(path)
    }
}

/// Writes everything below `dir`. Files that the serving user may not read are left out.
///
/// # Errors
/// Those of writing, and of files that cannot be read: the archive is not whole then.
pub(super) fn write(volume: &Volume, dir: &Path, form: Form, out: &mut impl Write) -> io::Result<()> {
    match form {
        Form::Tar => {
            let source = Opened(VolumeSource::new(volume, dir));
            tar::write(&source, out, &WriteOptions::default(), &Leniently).map_err(io::Error::other)
        }
        Form::Zip => write_zip(volume, dir, out),
    }
}

/// A directory whose names are being written.
struct Level {
    /// Names that are left, the next one last.
    names: Vec<Vec<u8>>,
    path: PathBuf,
    /// Its name in the archive, with a slash at the end, or nothing.
    prefix: String,
}

fn write_zip(volume: &Volume, dir: &Path, out: &mut impl Write) -> io::Result<()> {
    let mut zip = ZipWriter::new_stream(out);
    let mut open = vec![level(volume, dir.to_owned(), String::new())?];
    let mut buffer = vec![0; PIECE_BYTES];
    while let Some(level) = open.last_mut() {
        let Some(name) = level.names.pop() else {
            open.pop();
            continue;
        };
        let path = level.path.join(std::ffi::OsStr::from_bytes(&name));
        let shown = format!("{}{}", level.prefix, String::from_utf8_lossy(&name));
        let Some(metadata) = readable(volume.symlink_metadata(&path))? else { continue };
        if metadata.is_dir() {
            let below = format!("{shown}/");
            zip.add_directory(below.as_str(), options(&metadata)).map_err(io::Error::other)?;
            if open.len() < DEPTH_MAX {
                open.push(self::level(volume, path, below)?);
            }
        } else if metadata.is_symlink() {
            let Some(target) = readable(volume.read_link(&path))? else { continue };
            let options = options(&metadata).unix_permissions(LINK_MODE);
            zip.add_symlink(shown.as_str(), target.to_string_lossy().as_ref(), options).map_err(io::Error::other)?;
        } else if metadata.is_file() {
            let Some(file) = readable(File::open(volume, &path))? else { continue };
            zip.start_file(shown.as_str(), options(&metadata)).map_err(io::Error::other)?;
            copy(&file, &mut buffer, &mut zip)?;
        }
    }
    zip.finish().map(drop).map_err(io::Error::other)
}

/// The names of a directory in the order of their bytes; none if it may not be read.
fn level(volume: &Volume, path: PathBuf, prefix: String) -> io::Result<Level> {
    let mut names = Vec::new();
    if let Some(entries) = readable(volume.read_dir(&path))? {
        for entry in entries {
            names.push(entry.map_err(io::Error::other)?.name_bytes().to_vec());
        }
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(Level { names, path, prefix })
}

/// `None` for what this user may not read, or what is gone by now.
fn readable<T>(found: Result<T, Error>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() || error.errno() == vfs::Errno::EACCES => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn options(metadata: &Metadata) -> SimpleFileOptions {
    let (date, time) = Date::from_seconds(metadata.mtime.sec).dos();
    let modified = DateTime::try_from_msdos(date, time).unwrap_or_default();
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(modified)
        .unix_permissions(metadata.permissions & 0o777)
        .large_file(metadata.size >= WIDE_BYTES)
}

fn copy(file: &File, buffer: &mut [u8], out: &mut impl Write) -> io::Result<()> {
    let mut at = 0;
    loop {
        let count = file.read_at(buffer, at).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(buffer.get(..count).unwrap_or_default())?;
        at += to_u64(count);
    }
}
