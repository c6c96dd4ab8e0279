//! `spinney diff` lists the differences between two subvolumes or snapshots, from their trees. Called by `args`, and by
//! `jobs` in the server of a mount.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};
use clap::Args;
use serde::Serialize;
use spinney::btrfs::forks::write_patch;
use spinney::btrfs::{Change, ChangeKind, Named, Volume};

use super::format;
use crate::commands::human::kind_name;
use crate::commands::image::ReadArgs;
use crate::commands::names::JsonPath;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;

/// Show the differences between two subvolumes or snapshots, from their trees: takes time in proportion to the
/// difference
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Lines:\n",
    "  + PATH          only the second has it\n",
    "  - PATH          only the first has it\n",
    "  R PATH -> PATH  it was renamed, or moved\n",
    "  M PATH          its contents, or its size\n",
    "  m PATH          its owner, permissions, attributes or times\n\n",
    "They come in the order of inode numbers. Contents that were written again count as changed, whatever is in\n",
    "them. Of a directory the times do not count.\n\n",
    "Of a mount root, and the user who mounted it, may ask; paths begin at its directory.\n\n",
    "Examples:\n",
    "  spinney diff site.img:/monday site.img:/tuesday\n",
    "  spinney diff site.img /monday /tuesday\n",
    "  spinney diff ./mnt /monday /\n",
    "  spinney diff --patch site.img /monday /tuesday\n",
    "  spinney diff --json site.img /monday /tuesday | jq '.[] | select(.data) | .path'"
))]
pub(crate) struct Diff {
    #[command(flatten)]
    image: ReadArgs,
    /// A subvolume in the image
    old: PathBuf,
    /// The subvolume to compare with it
    new: PathBuf,
    /// Write a patch, as `spinney fork diff`
    #[arg(short, long, conflicts_with = "json")]
    patch: bool,
    /// Report as JSON: [{ino, kind, change, path, data, size, metadata, names: [{old, new}]}, ...]
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    ino: u64,
    kind: &'static str,
    change: &'static str,
    #[serde(flatten)]
    path: JsonPath,
    /// First byte and length of each range.
    data: Vec<(u64, u64)>,
    size: Option<(u64, u64)>,
    metadata: bool,
    names: Vec<NamedRow>,
}

#[derive(Debug, Serialize)]
struct NamedRow {
    old: Option<JsonPath>,
    new: Option<JsonPath>,
}

impl Diff {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let Some(dir) = self.image.mounted_dir()? else {
            return self.run_on(&format::open_read_only(&self.image)?, out);
        };
        let mount = OnMount::connect(&dir)?;
        let options = [(self.json, "--json"), (self.patch, "--patch")];
        let options = options.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name.to_owned());
        let paths = ["--".to_owned(), "IMAGE".to_owned(), mount.word(&self.old)?, mount.word(&self.new)?];
        mount.run("diff", options.chain(paths).collect(), out)
    }

    /// Compares subvolumes of a volume.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        if self.patch {
            return Ok(write_patch(volume, &self.old, &self.new, out)?);
        }
        let mut list = ChangeList::new(self.json);
        volume.for_each_change::<Failed>(&self.old, &self.new, |change| Ok(list.show(&change, out)?))?;
        list.finish(out)
    }
}

/// The report of changes: lines, or JSON.
pub(super) struct ChangeList {
    /// For JSON.
    rows: Option<Vec<Row>>,
    /// Paths that lead to another inode than before: their contents changed.
    replaced: BTreeSet<PathBuf>,
}

impl ChangeList {
    pub(super) fn new(is_json: bool) -> Self {
        Self { rows: is_json.then(Vec::new), replaced: BTreeSet::new() }
    }

    /// As [`Self::new`]; a file that was removed and made anew under its name is one line.
    pub(super) fn by_path(is_json: bool, changes: &[Change]) -> Self {
        let names = || changes.iter().flat_map(|change| &change.names);
        let removed: BTreeSet<&PathBuf> =
            names().filter_map(|name| if let Named::Removed(path) = name { Some(path) } else { None }).collect();
        let added = names().filter_map(|name| if let Named::Added(path) = name { Some(path) } else { None });
        Self { replaced: added.filter(|path| removed.contains(path)).cloned().collect(), ..Self::new(is_json) }
    }

    pub(super) fn show(&mut self, change: &Change, out: &mut Output) -> Result<()> {
        match &mut self.rows {
            Some(rows) => rows.push(row(change)),
            None => print(out, change, &self.replaced)?,
        }
        Ok(())
    }

    pub(super) fn finish(self, out: &mut Output) -> Result<()> {
        self.rows.map_or(Ok(()), |rows| out.json(&rows))
    }
}

/// The failure of the comparison, or of the output.
struct Failed(Error);

impl From<spinney::Error> for Failed {
    fn from(error: spinney::Error) -> Self {
        Self(error.into())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.0
    }
}

fn print(out: &mut Output, change: &Change, replaced: &BTreeSet<PathBuf>) -> Result<()> {
    for name in &change.names {
        match name {
            Named::Removed(path) if replaced.contains(path) => {}
            Named::Added(path) if replaced.contains(path) => line(out, "M ", path)?,
            Named::Added(path) => line(out, "+ ", path)?,
            Named::Removed(path) => line(out, "- ", path)?,
            Named::Renamed(old, new) => {
                out.write_all(b"R ")?;
                out.put_name(old.as_os_str().as_bytes())?;
                line(out, " -> ", new)?;
            }
        }
    }
    if let ChangeKind::Changed { path, data, size, metadata } = &change.what {
        if !data.is_empty() || size.is_some() {
            line(out, "M ", path)?;
        } else if *metadata {
            line(out, "m ", path)?;
        }
    }
    Ok(())
}

fn line(out: &mut Output, mark: &str, path: &Path) -> Result<()> {
    out.write_all(mark.as_bytes())?;
    let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    out.put_name(shown.as_os_str().as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

fn row(change: &Change) -> Row {
    let json = |path: &Path| JsonPath(path.as_os_str().as_bytes().to_vec());
    let names = change.names.iter().map(|name| match name {
        Named::Added(new) => NamedRow { old: None, new: Some(json(new)) },
        Named::Removed(old) => NamedRow { old: Some(json(old)), new: None },
        Named::Renamed(old, new) => NamedRow { old: Some(json(old)), new: Some(json(new)) },
    });
    let names: Vec<NamedRow> = names.collect();
    let first = || {
        change.names.first().map_or(Path::new(""), |name| match name {
            Named::Added(path) | Named::Removed(path) | Named::Renamed(_, path) => path,
        })
    };
    let pair = |range: &Range<u64>| (range.start, range.end.saturating_sub(range.start));
    let (kind, what) = (kind_name(change.kind), &change.what);
    let row = |change: &'static str, path: &Path| Row {
        ino: 0,
        kind,
        change,
        path: json(path),
        data: Vec::new(),
        size: None,
        metadata: false,
        names: Vec::new(),
    };
    let row = match what {
        ChangeKind::Added => row("added", first()),
        ChangeKind::Removed => row("removed", first()),
        ChangeKind::Changed { path, data, size, metadata } => {
            let data = data.iter().map(pair).collect();
            Row { data, size: *size, metadata: *metadata, ..row("changed", path) }
        }
    };
    Row { ino: change.ino.0, names, ..row }
}
