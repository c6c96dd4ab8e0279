//! `spinney du` shows how many bytes of files are shared with other files, in an image or on a mount, where it asks the
//! mount's server. Called by `args`.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use serde::Serialize;
use spinney::DirEntry;
use spinney::NodeKind;
use spinney::btrfs::{FileSharing, Volume};

use super::format;
use super::server_report::{read, read_reply};
use crate::commands::failures::Failures;
use crate::commands::human;
use crate::commands::image::ReadArgs;
use crate::commands::names::JsonPath;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// Show how much of files is shared with others: what `btrfs filesystem du` shows of a mounted file system
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Total is the sum of the file extents; exclusive is the sum without extents that have another reference: from\n",
    "another file, another offset of the same file, or another subvolume. Set shared counts each shared extent once,\n",
    "for each named directory, not for each file in it. As in `btrfs filesystem du`, inline files and holes count\n",
    "nothing, preallocated space and compressed data count with their length in the file, and an extent is shared as\n",
    "a whole, even if another file refers only to a part of it.\n\n",
    "Examples:\n",
    "  spinney du -s site.img:/home\n",
    "  spinney du site.img\n",
    "  spinney du -s site.img /home /snapshots/monday\n",
    "  spinney du -s ./mnt                         of a mount, as it is now\n",
    "  spinney du --json site.img | jq '.[-1].exclusive_bytes'"
))]
pub(crate) struct Du {
    #[command(flatten)]
    image: ReadArgs,
    /// Files and directories in the image or below the mount; all of it when none is given
    paths: Vec<PathBuf>,
    /// Only the named paths, not each file below them
    #[arg(short, long)]
    summarize: bool,
    /// Sizes in bytes
    #[arg(long)]
    raw: bool,
    /// Report as JSON: [{path, total_bytes, exclusive_bytes, set_shared_bytes}, ...]
    #[arg(long)]
    json: bool,
}

/// Most symbolic links followed for one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// The volume or mount that holds the files.
enum Place {
    Image(Volume),
    /// A directory of a mount, and its device number.
    Mount(PathBuf, u64),
}

/// A line of the report.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    path: JsonPath,
    total_bytes: u64,
    exclusive_bytes: u64,
    /// Only for the paths of the command line.
    set_shared_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    total: u64,
    shared: u64,
}

/// An open directory of the walk.
struct Open {
    path: PathBuf,
    /// Entries left, in reverse order.
    rest: Vec<(PathBuf, NodeKind)>,
    sum: Sum,
}

/// Files and extents counted for one path of the command line.
#[derive(Default)]
struct Seen {
    /// Subvolume and number of each file.
    files: HashSet<(u64, u64)>,
    shared: Ranges,
}

/// Ranges of addresses that neither overlap nor touch: from start to end.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start.saturating_add(len));
        while let Some((&first, &last)) = self.0.range(..=end).next_back().filter(|(_, last)| **last >= start) {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add)
    }
}

impl Du {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let place = match self.image.mounted_dir()? {
            Some(dir) => {
                let device = std::fs::metadata(&dir)?.dev();
                Place::Mount(dir, device)
            }
            None => Place::Image(format::open_read_only(&self.image)?),
        };
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, true);
        let mut rows = Vec::new();
        if !self.json {
            writeln!(out, "{:>10}  {:>10}  {:>10}  Filename", "Total", "Exclusive", "Set shared")?;
        }
        let whole = vec![PathBuf::from("/")];
        let failures = Failures::default();
        for path in if self.paths.is_empty() { &whole } else { &self.paths } {
            let counted = self.one(&place, path, (&progress, &failures), &mut |row| {
                if self.json {
                    rows.push(row);
                    return Ok(());
                }
                self.print(out, &row)
            });
            failures.note(counted, false)?;
        }
        drop(bar);
        if self.json {
            out.json(&rows)?;
        }
        failures.tell(progress.names.load(std::sync::atomic::Ordering::Relaxed), "counted")
    }

    fn print(&self, out: &mut Output, row: &Row) -> Result<()> {
        let size = |bytes| if self.raw { u64::to_string(&bytes) } else { human::bytes(bytes) };
        let set = row.set_shared_bytes.map_or_else(|| "-".to_owned(), size);
        write!(out, "{:>10}  {:>10}  {set:>10}  ", size(row.total_bytes), size(row.exclusive_bytes))?;
        out.put_name(&row.path.0)?;
        Ok(out.write_all(b"\n")?)
    }

    /// The rows for one path of the command line, files before the directories that hold them.
    fn one(
        &self,
        place: &Place,
        path: &Path,
        (progress, failures): (&Progress, &Failures),
        show: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        let mut seen = Seen::default();
        let top = place.path_of(path);
        let kind = place.kind(&top)?;
        if kind != NodeKind::Directory {
            let end = place.end_of(&top)?;
            let sum =
                if kind == NodeKind::File { place.file(&end, &mut seen)?.unwrap_or_default() } else { Sum::default() };
            // For a single file, `btrfs filesystem du` adds up its shared bytes, even if a range occurs twice.
            return show(row(&top, sum, Some(sum.shared)));
        }
        let mut open = vec![place.open(top)?];
        while let Some(dir) = open.last_mut() {
            let Some((path, kind)) = dir.rest.pop() else {
                let Some(Open { path, sum, .. }) = open.pop() else { break };
                if let Some(above) = open.last_mut() {
                    above.sum.add(sum);
                }
                if open.is_empty() || !self.summarize {
                    let set_shared = open.is_empty().then(|| seen.shared.bytes());
                    show(row(&path, sum, set_shared))?;
                }
                continue;
            };
            progress.add_name();
            match kind {
                NodeKind::Directory => {
                    let opened = failures.note(ignoring_gone(place.open(path)), false)?.flatten();
                    open.extend(opened);
                }
                NodeKind::File => {
                    let counted = failures.note(ignoring_gone(place.file(&path, &mut seen)), false)?;
                    let Some(sum) = counted.flatten().flatten() else { continue };
                    dir.sum.add(sum);
                    progress.add_bytes(sum.total);
                    if !self.summarize {
                        show(row(&path, sum, None))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.shared = self.shared.saturating_add(other.shared);
    }
}

fn row(path: &Path, sum: Sum, set_shared_bytes: Option<u64>) -> Row {
    Row {
        path: JsonPath(path.as_os_str().as_bytes().to_vec()),
        total_bytes: sum.total,
        exclusive_bytes: sum.total.saturating_sub(sum.shared),
        set_shared_bytes,
    }
}

/// Turns the error for a file that is not there into `None`: on a mount, it may have been removed after it was listed.
fn ignoring_gone<T>(found: Result<T>) -> Result<Option<T>> {
    let is_gone = |error: &Error| {
        error
            .chain()
            .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::NotFound))
    };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Place {
    /// The path as the report shows it and as the other functions take it: on a mount, below its directory.
    fn path_of(&self, path: &Path) -> PathBuf {
        match self {
            Self::Image(_) => path.to_owned(),
            Self::Mount(dir, _) => match path.strip_prefix("/").unwrap_or(path) {
                empty if empty.as_os_str().is_empty() => dir.clone(),
                below => dir.join(below),
            },
        }
    }

    /// The file that a symbolic link leads to, through further links.
    fn end_of(&self, path: &Path) -> Result<PathBuf> {
        let Self::Image(volume) = self else { return Ok(path.to_owned()) };
        let mut end = path.to_owned();
        // `kind` has followed the links to an existing file, so this limit suffices.
        for _ in 0..SYMLINKS_MAX {
            if volume.symlink_metadata(&end)?.kind != NodeKind::Symlink {
                break;
            }
            let target = volume.read_link(&end)?;
            end.pop();
            end.push(target);
        }
        Ok(end)
    }

    fn kind(&self, path: &Path) -> Result<NodeKind> {
        match self {
            Self::Image(volume) => Ok(volume.metadata(path)?.kind),
            Self::Mount(..) => {
                let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
                Ok(kind_of(found.file_type()))
            }
        }
    }

    /// Opens a directory; a file system mounted below it counts as empty.
    fn open(&self, path: PathBuf) -> Result<Open> {
        let mut rest = match self {
            Self::Image(volume) => {
                let list = |entry: DirEntry| (path.join(entry.file_name()), entry.file_type());
                volume.read_dir(&path)?.map(|entry| Ok(list(entry?))).collect::<Result<Vec<_>>>()?
            }
            Self::Mount(_, device) => {
                let mut entries = Vec::new();
                let context = || path.display().to_string();
                if std::fs::metadata(&path).with_context(context)?.dev() == *device {
                    for entry in std::fs::read_dir(&path).with_context(context)? {
                        let entry = entry.with_context(context)?;
                        entries.push((entry.path(), kind_of(entry.file_type().with_context(context)?)));
                    }
                }
                entries
            }
        };
        rest.reverse();
        Ok(Open { path, rest, sum: Sum::default() })
    }

    /// Adds up the extents of a regular file; `None` if it was counted under another name.
    fn file(&self, path: &Path, seen: &mut Seen) -> Result<Option<Sum>> {
        let mut sum = Sum::default();
        let mut from = Some(0);
        while let Some(at) = from {
            let sharing = self.sharing(path, at)?;
            if at == 0 && !seen.files.insert((sharing.subvolume, sharing.inode)) {
                return Ok(None);
            }
            for extent in &sharing.extents {
                sum.total = sum.total.saturating_add(extent.len);
                if extent.is_shared {
                    sum.shared = sum.shared.saturating_add(extent.len);
                    seen.shared.add(extent.logical, extent.len);
                }
            }
            // A malicious server must not keep this loop running for ever.
            from = sharing.next.filter(|next| *next > at);
        }
        Ok(Some(sum))
    }

    fn sharing(&self, path: &Path, from: u64) -> Result<FileSharing> {
        let name = format!("{}{from}", FileSharing::XATTR_PREFIX);
        match self {
            Self::Image(volume) => read(path, &volume.get_xattr(path, name)?.unwrap_or_default()),
            Self::Mount(..) => read_reply(path, &name, "tell what is shared"),
        }
    }
}

fn kind_of(found: std::fs::FileType) -> NodeKind {
    if found.is_dir() {
        NodeKind::Directory
    } else if found.is_file() {
        NodeKind::File
    } else {
        // Files of other kinds have no extents.
        NodeKind::Symlink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_count_once() {
        let mut ranges = Ranges::default();
        for (start, len) in [(100, 10), (120, 10), (105, 5), (300, 1), (109, 12), (90, 300), (0, 1)] {
            ranges.add(start, len);
        }
        assert_eq!(ranges.bytes(), 301);
        assert_eq!(ranges.0.len(), 2);
    }
}
