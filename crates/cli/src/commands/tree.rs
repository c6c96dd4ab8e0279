//! `spinney tree` draws a directory and its contents as a tree. Called by `args`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::file_system::NodeKind;
use spinney::vfs::{DirEntry, Volume};

use super::failure::{Failure, Status};
use super::failures::Failures;
use super::human;
use super::image::ReadArgs;
use super::ls::sorted;
use super::names::{JsonName, JsonTarget};
use super::output::Output;

/// Draw a directory and its contents
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney tree site.img:/usr/share\n",
    "  spinney tree site.img\n",
    "  spinney tree -L 2 site.img /usr\n",
    "  spinney tree --json site.img"
))]
pub(crate) struct Tree {
    #[command(flatten)]
    image: ReadArgs,
    /// Directory in the image
    #[arg(default_value = "/")]
    path: PathBuf,
    /// Go down this many levels, at most 512
    #[arg(short = 'L', long = "level", value_name = "COUNT")]
    levels: Option<usize>,
    /// Directories only
    #[arg(short, long)]
    dirs_only: bool,
    /// Sizes of files
    #[arg(short, long)]
    size: bool,
    /// Report as JSON: {name, kind, children: [...]}
    #[arg(long)]
    json: bool,
}

/// Most levels shown, so that no image exhausts the stack. If there are more, the command reports it and fails.
const LEVELS_MAX: usize = 512;

#[derive(Serialize)]
struct Node {
    #[serde(flatten)]
    name: JsonName,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    target: Option<JsonTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<Node>>,
}

#[derive(Default)]
struct Counts {
    dirs: u64,
    files: u64,
    /// Non-empty directories on level [`LEVELS_MAX`] that were cut off without `--levels`.
    cut: u64,
    /// Directories that could not be read.
    failures: Failures,
}

impl Tree {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_read_only()?;
        let levels = self.levels.unwrap_or(usize::MAX).min(LEVELS_MAX);
        let mut counts = Counts::default();
        if self.json {
            let name = JsonName(self.path.as_os_str().as_bytes().to_vec());
            let entries = self.entries(&volume, &self.path)?;
            let children = Some(self.nodes(&volume, (&self.path, entries), levels, &mut counts)?);
            let kind = human::kind_name(NodeKind::Directory);
            out.json(&Node { name, kind, size: None, target: None, children })?;
            return whole(&counts);
        }
        out.put_name(self.path.as_os_str().as_bytes())?;
        out.write_all(b"\n")?;
        let entries = self.entries(&volume, &self.path)?;
        self.draw(&volume, out, (&self.path, entries), &mut String::new(), levels, &mut counts)?;
        let (dirs, files) = (counts.dirs, counts.files);
        write!(out, "\n{}", human::count(dirs, "directory", "directories"))?;
        if !self.dirs_only {
            write!(out, ", {}", human::count(files, "file", "files"))?;
        }
        out.write_all(b"\n")?;
        whole(&counts)
    }

    /// The entries of a directory; `None` below the last level to show, or if it cannot be read, which is recorded.
    fn inner(&self, volume: &Volume, dir: &Path, levels: usize, counts: &Counts) -> Result<Option<Vec<DirEntry>>> {
        let is_wanted = self.levels.is_some_and(|levels| levels <= LEVELS_MAX);
        if levels == 0 && is_wanted {
            return Ok(Some(Vec::new()));
        }
        counts.failures.note(self.entries(volume, dir), false)
    }

    fn entries(&self, volume: &Volume, dir: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = sorted(volume, dir)?;
        entries.retain(|entry| !self.dirs_only || entry.file_type().is_dir());
        Ok(entries)
    }

    fn draw(
        &self,
        volume: &Volume,
        out: &mut Output,
        (dir, entries): (&Path, Vec<DirEntry>),
        indent: &mut String,
        levels: usize,
        counts: &mut Counts,
    ) -> Result<()> {
        if levels == 0 {
            // These entries are below the last level to show: `cut` counts such directories.
            counts.cut += u64::from(!entries.is_empty());
            return Ok(());
        }
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.iter().enumerate() {
            let path = dir.join(entry.file_name());
            let is_dir = entry.file_type().is_dir();
            let (branch, below) = if index == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            write!(out, "{indent}{branch}")?;
            if let Some(size) = self.size_of(volume, &path, entry)? {
                write!(out, "[{:>9}]  ", human::bytes(size))?;
            }
            out.put_name(entry.name_bytes())?;
            if entry.file_type().is_symlink() {
                out.write_all(b" -> ")?;
                out.put_name(volume.read_link(&path)?.as_os_str().as_bytes())?;
            }
            out.write_all(b"\n")?;
            if is_dir {
                counts.dirs += 1;
                indent.push_str(below);
                if let Some(inner) = self.inner(volume, &path, levels - 1, counts)? {
                    self.draw(volume, out, (&path, inner), indent, levels - 1, counts)?;
                }
                indent.truncate(indent.len() - below.len());
            } else {
                counts.files += 1;
            }
        }
        Ok(())
    }

    fn size_of(&self, volume: &Volume, path: &Path, entry: &DirEntry) -> Result<Option<u64>> {
        if !self.size || entry.file_type().is_dir() {
            return Ok(None);
        }
        Ok(Some(volume.symlink_metadata(path)?.size))
    }

    fn nodes(
        &self,
        volume: &Volume,
        (dir, entries): (&Path, Vec<DirEntry>),
        levels: usize,
        counts: &mut Counts,
    ) -> Result<Vec<Node>> {
        if levels == 0 {
            // These entries are below the last level to show: `cut` counts such directories.
            counts.cut += u64::from(!entries.is_empty());
            return Ok(Vec::new());
        }
        let mut nodes = Vec::new();
        for entry in entries {
            let path = dir.join(entry.file_name());
            let kind = entry.file_type();
            let is_dir = kind.is_dir();
            let target = if kind.is_symlink() {
                Some(JsonTarget(volume.read_link(&path)?.as_os_str().as_bytes().to_vec()))
            } else {
                None
            };
            let inner = if is_dir { self.inner(volume, &path, levels - 1, counts)? } else { None };
            nodes.push(Node {
                name: JsonName(entry.name_bytes().to_vec()),
                kind: human::kind_name(kind),
                size: self.size_of(volume, &path, &entry)?,
                target,
                children: inner.map(|inner| self.nodes(volume, (&path, inner), levels - 1, counts)).transpose()?,
            });
        }
        Ok(nodes)
    }
}

/// Fails if levels were cut off that `--levels` did not exclude.
fn whole(counts: &Counts) -> Result<()> {
    counts.failures.tell(counts.dirs.saturating_add(counts.files), "read")?;
    if counts.cut == 0 {
        return Ok(());
    }
    let text = format!("levels below {LEVELS_MAX} are not shown: below {} directories", counts.cut);
    Err(Failure::new(Status::Unsupported, text).into())
}
