//! `spinney ls` lists a directory of an image or a mount. Called by `args`; `rescue` lists with its `Listing`, `tree`
//! with its order.

use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::{Blame, DirEntry, Metadata, Volume};

use super::attributes::{JsonMetadata, device};
use super::failures::Failures;
use super::human;
use super::image::ReadArgs;
use super::names::{JsonName, JsonPath, JsonTarget};
use super::output::Output;

/// List a directory
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney ls -l site.img:/etc\n",
    "  spinney ls site.img\n",
    "  spinney ls -l site.img /etc\n",
    "  spinney ls -li site.img:/etc\n",
    "  spinney ls -R --json site.img / | jq '.entries[].path'"
))]
pub(crate) struct Ls {
    #[command(flatten)]
    image: ReadArgs,
    #[command(flatten)]
    listing: Listing,
}

/// Path and form of a listing: options shared by `ls` and similar commands.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Directory or file in the image
    #[arg(default_value = "/")]
    path: PathBuf,
    /// Mode, links, owner, group, size, time
    #[arg(short, long)]
    long: bool,
    /// Inode number before each name, with or without --long
    #[arg(short, long)]
    inode: bool,
    /// Directories below as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sizes with units, with --long
    #[arg(long)]
    human: bool,
    /// Report as JSON: {path, entries: [{name, path, kind, mode, size, ...}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    path: JsonPath,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    name: JsonName,
    #[serde(flatten)]
    path: JsonPath,
    #[serde(flatten)]
    metadata: JsonMetadata,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    target: Option<JsonTarget>,
}

/// A listed name.
struct Listed {
    name: Vec<u8>,
    path: PathBuf,
    metadata: Option<Metadata>,
}

impl Ls {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        self.listing.run(&self.image.open_read_only()?, out)
    }
}

impl Listing {
    /// Lists a directory or file of a volume.
    ///
    /// # Errors
    /// As [`Ls::run`].
    pub(crate) fn run(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        if self.json {
            return self.report(volume, out);
        }
        let metadata = volume.metadata(&self.path)?;
        if !metadata.is_dir() {
            let name = self.path.as_os_str().as_bytes().to_vec();
            let metadata = Some(volume.symlink_metadata(&self.path)?);
            let listed = Listed { name, path: self.path.clone(), metadata };
            return self.print(volume, out, &[listed]);
        }
        let mut todo = vec![self.path.clone()];
        let mut is_first = true;
        let (failures, mut count) = (Failures::default(), 0);
        while let Some(dir) = todo.pop() {
            if self.recursive {
                if !std::mem::take(&mut is_first) {
                    out.write_all(b"\n")?;
                }
                out.put_name(dir.as_os_str().as_bytes())?;
                out.write_all(b":\n")?;
            }
            let Some((listed, below)) = failures.note(self.read(volume, &dir), false)? else { continue };
            count += 1;
            self.print(volume, out, &listed)?;
            todo.extend(below.into_iter().rev());
        }
        failures.tell(count, "listed")
    }

    /// The sorted names of a directory, and the subdirectories to list next.
    fn read(&self, volume: &Volume, dir: &Path) -> Result<(Vec<Listed>, Vec<PathBuf>)> {
        let mut entries = sorted(volume, dir)?;
        let mut below = Vec::new();
        let mut listed = Vec::with_capacity(entries.len());
        for entry in entries.drain(..) {
            let path = dir.join(entry.file_name());
            if self.recursive && entry.file_type().is_dir() {
                below.push(path.clone());
            }
            let needs_metadata = self.long || self.inode || self.json;
            let metadata = match needs_metadata.then(|| volume.symlink_metadata(&path)) {
                // In a damaged image only the name may be readable.
                Some(Err(error)) if error.blame() == Blame::Image => None,
                found => found.transpose()?,
            };
            listed.push(Listed { name: entry.name_bytes().to_vec(), path, metadata });
        }
        Ok((listed, below))
    }

    fn print(&self, volume: &Volume, out: &mut Output, listed: &[Listed]) -> Result<()> {
        let size = |metadata: &Metadata| self.size_text(metadata);
        let known = || listed.iter().filter_map(|one| one.metadata.as_ref());
        let width = known().map(|metadata| size(metadata).len()).max().unwrap_or_default();
        let links = known().map(|metadata| metadata.nlink).max().unwrap_or_default();
        let links = links.to_string().len();
        let inodes = known().map(|metadata| metadata.home.ino).max().unwrap_or_default();
        let inodes = inodes.to_string().len();
        for Listed { name, path, metadata } in listed {
            if self.inode {
                let ino = metadata.as_ref().map_or_else(|| "?".into(), |metadata| metadata.home.ino.to_string());
                write!(out, "{ino:>inodes$} ")?;
            }
            if let Some(metadata) = metadata.as_ref().filter(|_| self.long) {
                write!(
                    out,
                    "{} {:>links$} {:>5} {:>5} {:>width$} {} ",
                    human::mode_string(metadata.kind, metadata.mode()),
                    metadata.nlink,
                    metadata.uid,
                    metadata.gid,
                    size(metadata),
                    human::time_short(metadata.mtime),
                )?;
            }
            out.put_name(name)?;
            if self.long && metadata.is_some_and(|metadata| metadata.is_symlink()) {
                out.write_all(b" -> ")?;
                out.put_name(volume.read_link(path)?.as_os_str().as_bytes())?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn size_text(&self, metadata: &Metadata) -> String {
        match device(metadata) {
            Some((major, minor)) => format!("{major}, {minor}"),
            None if self.human => human::bytes(metadata.size),
            None => metadata.size.to_string(),
        }
    }

    fn report(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        let mut entries = Vec::new();
        let (failures, mut count) = (Failures::default(), 0);
        let metadata = volume.metadata(&self.path)?;
        if metadata.is_dir() {
            let mut todo = vec![self.path.clone()];
            while let Some(dir) = todo.pop() {
                let Some((listed, below)) = failures.note(self.read(volume, &dir), false)? else { continue };
                count += 1;
                for one in listed {
                    entries.extend(entry(volume, one)?);
                }
                todo.extend(below.into_iter().rev());
            }
        } else {
            let name = self.path.file_name().unwrap_or_default().as_bytes().to_vec();
            let metadata = Some(volume.symlink_metadata(&self.path)?);
            let listed = Listed { name, path: self.path.clone(), metadata };
            entries.extend(entry(volume, listed)?);
        }
        out.json(&Report { path: JsonPath(self.path.as_os_str().as_bytes().to_vec()), entries })?;
        failures.tell(count, "listed")
    }
}

/// The names of a directory in ascending order of their bytes.
pub(super) fn sorted(volume: &Volume, dir: &Path) -> Result<Vec<DirEntry>> {
    let mut entries = volume.read_dir(dir)?.collect::<spinney::vfs::Result<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| a.name_bytes().cmp(b.name_bytes()));
    Ok(entries)
}

fn entry(volume: &Volume, listed: Listed) -> Result<Option<Entry>> {
    let Listed { name, path, metadata: Some(metadata) } = listed else {
        return Ok(None);
    };
    let target = if metadata.is_symlink() {
        Some(JsonTarget(volume.read_link(&path)?.into_os_string().into_vec()))
    } else {
        None
    };
    Ok(Some(Entry {
        name: JsonName(name),
        path: JsonPath(path.into_os_string().into_vec()),
        metadata: (&metadata).into(),
        target,
    }))
}
