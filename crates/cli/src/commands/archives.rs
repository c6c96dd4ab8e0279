//! Reads and writes archives in place of files of this machine: `get --tar` writes a directory of an image as one, as a
//! layer of a container image, or as a dump of composefs; `put --tar` unpacks one into an image. `get` and `put` call
//! it.

use std::ffi::OsString;
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use spinney::archive::tar::{self, WriteOptions};
use spinney::layers::manifest::write_composefs_dump;
use spinney::layers::oci::{DifferenceOptions, difference};
use spinney::transfer::{Observer, VolumeSource};
use spinney::vfs::Volume;
use spinney::{Contents, ContentsOptions, Env, Metadata, Time};

use super::failure::Failure;
use super::image::maker;
use super::unnamed::{Unnamed, whole};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Means the standard output.
const STDOUT: &str = "-";

/// The options of `get` that write an archive.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct ArchiveOut {
    /// Write what is in PATH as a tar archive to FILE instead of DEST; - for the standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    tar: Option<PathBuf>,
    /// With --tar: write the layer of a container image that makes PATH of PARENT, another directory or snapshot
    #[arg(long, value_name = "PARENT", requires = "tar")]
    oci_layer: Option<PathBuf>,
    /// With --tar: leave out the holes of files, as `tar --sparse`
    #[arg(long, requires = "tar")]
    sparse: bool,
    /// Write names and attributes of what is in PATH as composefs-dump(5) to FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tar", "json"])]
    composefs_dump: Option<PathBuf>,
}

impl ArchiveOut {
    /// True if an archive is written instead of files.
    pub(crate) fn is_wanted(&self) -> bool {
        self.tar.is_some() || self.composefs_dump.is_some()
    }

    /// Writes the directory at `path`; `force` replaces an existing file.
    ///
    /// # Errors
    /// Those of the volume, of what an archive cannot have, and of writing.
    pub(crate) fn write(&self, volume: &Volume, path: &Path, force: bool, watch: &dyn Observer) -> Result<()> {
        let source = VolumeSource::new(volume, path);
        if let Some(file) = &self.composefs_dump {
            return to_file(file, force, |mut out| Ok(write_composefs_dump(&source, &mut out)?));
        }
        let Some(file) = &self.tar else { return Ok(()) };
        let write = WriteOptions { keeps_holes: self.sparse, ..WriteOptions::default() };
        to_file(file, force, |mut out| match &self.oci_layer {
            Some(parent) => {
                let options = DifferenceOptions { write, ..DifferenceOptions::default() };
                difference(&VolumeSource::new(volume, parent), &source, out, &options, watch)?;
                Ok(())
            }
            None => Ok(tar::write(&source, &mut out, &write, watch)?),
        })
    }
}

/// Has `write` write the file at `path`, which gets its name when it is finished, or the standard output for `-`.
fn to_file(path: &Path, force: bool, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if path.as_os_str() == STDOUT {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, stdout().lock());
        let written = write(&mut out).and_then(|()| Ok(out.flush()?));
        return whole(written);
    }
    if !force && path.symlink_metadata().is_ok() {
        return Err(Failure::refused(format!("{}: exists; --force overwrites it", path.display())).into());
    }
    let file = Unnamed::beside(path)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file.file());
    write(&mut out)?;
    out.flush()?;
    file.name(path, force)
}

/// The archive in `file`, or on the standard input for `-`, to be unpacked into the directory `dest`. Directories that
/// it does not describe keep their owners and modes where they exist.
///
/// # Errors
/// Those of reading it; nothing is kept of an archive that is damaged.
pub(crate) fn read(file: &Path, (volume, dest): (&Volume, &Path), watch: &dyn Observer) -> Result<Contents> {
    let sources = [OsString::from(file)];
    let mut contents = Contents::read(&sources, &ContentsOptions::default(), watch)?;
    if let Contents::Tree(tree) = &mut contents {
        let now = {
            let (sec, nsec) = Env::system().now();
            Time::new(sec, nsec)
        };
        let implied: Vec<_> = tree.walk().filter(|(_, number)| tree.is_implied(*number)).collect();
        for (path, number) in implied {
            let target = dest.join(&path);
            let there = volume.metadata(&target).ok().filter(Metadata::is_dir);
            if there.is_some() && volume.symlink_metadata(&target)?.is_symlink() {
                let text = format!("{}: a symbolic link leads on, which is not followed here", target.display());
                return Err(Failure::refused(text).into());
            }
            tree.edit(number, |node| {
                if let Some(found) = there {
                    let Metadata { uid, gid, permissions, atime, .. } = found;
                    (node.attr.uid, node.attr.gid, node.attr.permissions) = (uid, gid, permissions);
                    node.attr.atime = atime;
                } else {
                    (node.attr.uid, node.attr.gid) = maker();
                    node.attr.atime = now;
                }
                (node.attr.mtime, node.attr.ctime) = (now, now);
            });
        }
    }
    Ok(contents)
}
