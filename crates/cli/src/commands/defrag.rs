//! `spinney defrag` rewrites files in larger extents, compressed if asked, in an image or a mount. Called by `args`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::file_system::{EXTENT_BYTES_DEFAULT, Extent};
use spinney::vfs::{File, Layout, Volume};

use super::failures::Failures;
use super::files::{Files, FilesArgs};
use super::human;
use super::image::ImageArgs;
use super::names::{self, JsonPath};
use super::output::Output;
use super::progress::{Bar, Progress};
use super::report::json_path;

/// Bytes of a file that are rewritten by one call; the bar moves between calls.
const PART_BYTES: u64 = 64 << 20;
/// Compression of `-c` without a value.
const COMPRESSION_DEFAULT: &str = "zstd";

/// Rewrite the contents of files in few large extents, or compressed
///
/// Without -c, compressed data stays as it is. Files that are overwritten in place (nodatacow) stay as they are.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Rewritten extents are no longer shared with snapshots and reflinks: that takes space.\n\n",
    "Examples:\n",
    "  spinney defrag site.img:/var/lib/db.sqlite\n",
    "  spinney defrag site.img /var/lib/db.sqlite\n",
    "  spinney defrag -r -c site.img /              compress everything, with zstd\n",
    "  spinney defrag mnt/home/db.sqlite            of a mount, while it is in use\n",
    "  spinney defrag -r -c=zlib:9 --json site.img /usr | jq .bytes_moved"
))]
pub(crate) struct Defrag {
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    files: FilesArgs,
    /// Compress: zlib[:1-9], lzo or zstd[:-15-15]; incompressible data is stored as it is
    #[arg(
        short, long, value_name = "ALGO[:LEVEL]", num_args = 0..=1, require_equals = true,
        default_missing_value = COMPRESSION_DEFAULT
    )]
    compress: Option<String>,
    /// Keep extents of at least this length
    #[arg(short, long, value_name = "SIZE", value_parser = human::parse_bytes, default_value_t = EXTENT_BYTES_DEFAULT,
        hide_default_value = true)]
    target: u64,
    /// Name each file whose contents were moved
    #[arg(short, long)]
    verbose: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {bytes_moved, files: [{path, bytes_moved, before, after}]}, of the files that were moved
    #[arg(long)]
    json: bool,
}

/// Layout of the contents of a file.
#[derive(Debug, Clone, Copy, Serialize)]
struct Usage {
    extents: usize,
    /// Bytes on disk.
    disk_bytes: u64,
}

#[derive(Serialize)]
struct Moved {
    #[serde(flatten)]
    path: JsonPath,
    bytes_moved: u64,
    before: Usage,
    after: Usage,
}

#[derive(Serialize)]
struct Report {
    bytes_moved: u64,
    files: Vec<Moved>,
}

impl Defrag {
    /// Runs the command.
    ///
    /// # Errors
    /// The number of files that could not be rewritten, or the only failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        // The options are also set for each file, because a mount takes them in no other way.
        let volume = match self.image.mounted_dir()? {
            Some(_) => self.image.open_writable()?,
            None => self.image.open_to_compress(self.compress.clone())?,
        };
        let failures = Failures::default();
        let files = Files::find(&volume, &self.files, &failures)?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        progress.bytes_total.store(files.bytes(), Ordering::Relaxed);
        let mut moved = Vec::new();
        let done = files.iter().try_for_each(|(path, size)| {
            let laid_out = self.lay_out(&volume, path, *size, &progress);
            moved.extend(failures.note(laid_out, false)?.flatten());
            Ok::<_, anyhow::Error>(())
        });
        // Files rewritten before a failure are kept.
        let closed = volume.close();
        drop(bar);
        done?;
        closed?;
        let count = u64::try_from(files.len())?.saturating_sub(failures.count());
        self.report(files.len(), moved, out)?;
        failures.tell(count, "laid out")
    }

    fn lay_out(&self, volume: &Volume, path: &Path, size: u64, progress: &Progress) -> Result<Option<Moved>> {
        let extents = File::open(volume, path)?.extents().map_err(|error| error.at(path))?;
        let before = usage(&extents);
        let mut bytes_moved = 0_u64;
        let mut done = 0;
        // Holes are skipped, however long the file may be.
        for extent in &extents {
            while done < extent.offset.saturating_add(extent.len) {
                let start = done.max(extent.offset);
                let end = start.saturating_add(PART_BYTES);
                let layout =
                    Layout { range: start..end, extent_bytes: self.target, compression: self.compress.as_deref() };
                bytes_moved = bytes_moved.saturating_add(volume.defragment(path, &layout)?);
                progress.add_bytes(end.min(size).saturating_sub(done));
                done = end;
            }
        }
        progress.add_bytes(size.saturating_sub(done));
        progress.add_name();
        if bytes_moved == 0 {
            return Ok(None);
        }
        let after = usage(&File::open(volume, path)?.extents().map_err(|error| error.at(path))?);
        Ok(Some(Moved { path: json_path(path), bytes_moved, before, after }))
    }

    fn report(&self, looked_at: usize, files: Vec<Moved>, out: &mut Output) -> Result<()> {
        let bytes_moved = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes_moved));
        if self.json {
            return out.json(&Report { bytes_moved, files });
        }
        for file in files.iter().filter(|_| self.verbose) {
            let (before, after) = (&file.before, &file.after);
            let (was, is) = (human::bytes(before.disk_bytes), human::bytes(after.disk_bytes));
            let name = names::escaped(&file.path.0);
            writeln!(out, "{name}: {} extents of {was} are {} of {is}", before.extents, after.extents)?;
        }
        if !self.quiet {
            let (moved, bytes) = (files.len(), human::bytes(bytes_moved));
            writeln!(out, "{bytes} moved, in {moved} of {looked_at} files")?;
        }
        Ok(())
    }
}

fn usage(extents: &[Extent]) -> Usage {
    // Parts of one compressed extent share all of it.
    let on_disk: BTreeSet<(u64, u64)> = extents
        .iter()
        .filter_map(|extent| match extent.compression {
            Some(_) => Some((extent.logical?, extent.disk_len)),
            None => Some((extent.logical?, extent.len)),
        })
        .collect();
    let disk_bytes = on_disk.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
    Usage { extents: extents.len(), disk_bytes }
}
