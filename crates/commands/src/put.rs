//! `spinney put`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use vfs::Volume;

use super::dest::Dest;
use super::get::means_contents;
use super::image::{ImageArgs, ImagePath, maker};
use super::import::{Existing, ImportOptions, import_contents, import_one, measure};
use super::output::Output;
use super::progress::{Bar, Progress};
use super::report::Made;
use super::work;

/// Copy files and directories into an image
///
/// Directories are copied with all below, and merged into existing ones. Owners, modes, times,
/// attributes, hard links, holes, device nodes, sockets, pipes and symbolic links are kept.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney put notes.txt site.img:/docs/      a file, into /docs\n",
    "  spinney put site.img notes.txt /           into the root directory\n",
    "  spinney put site.img ./src /backup         a directory, under a new name or into /backup\n",
    "  spinney put site.img ./src/. /             what is inside src\n",
    "  spinney put ./src /mnt/site/src                into a mount\n",
    "  spinney put --compress zstd:9 site.img ./src /\n",
    "  spinney put --json site.img ./src / | jq .bytes"
))]
pub struct Put {
    #[command(flatten)]
    image: ImageArgs,
    /// What to copy, on this machine; a path that ends in /. means what is inside
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Where to, in the image: an existing directory, or a new name
    dest: PathBuf,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Give everything this owner and group
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Compress contents: zlib[:1-9], lzo or zstd[:-15-15]; what does not become smaller is stored as it is
    #[arg(long, value_name = "ALGO[:LEVEL]")]
    compress: Option<String>,
    /// Stay on the file system that SOURCE is on
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Threads that copy; with one, the same source always gives the same order
    #[arg(long, value_name = "COUNT", default_value_t = work::default_threads(), hide_default_value = true)]
    threads: usize,
    /// Keep the copied part of a file that does not fit; by default it is removed
    #[arg(long)]
    partial: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {entries, bytes, made: [{path, subvolume, ino}]}, with one of `made` for each SOURCE
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// Files, directories and others that were copied.
    entries: u64,
    /// Of contents.
    bytes: u64,
    made: Vec<Made>,
}

impl Put {
    /// Runs the command.
    ///
    /// # Errors
    /// How many files could not be copied, or the only failure; [`crate::failure::status_of`] says of what kind it is.
    pub fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_to_compress(self.compress.clone())?;
        let options = self.options()?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        if bar.is_shown() {
            let total: Result<u64> = self
                .sources
                .iter()
                .try_fold(0_u64, |sum, source| Ok(sum.saturating_add(measure(source, &options)?.bytes)));
            progress.bytes_total.store(total?, Ordering::Relaxed);
        }
        let copied = self
            .copy(&volume, &options, &progress)
            .and_then(|targets| targets.iter().map(|target| Made::at(&volume, target)).collect::<Result<Vec<_>>>());
        // What was copied before a failure is kept.
        let closed = volume.close();
        drop(bar);
        let made = copied?;
        closed?;
        let failures = options.failures.unwrap_or_default();
        let tried = progress.names.load(Ordering::Relaxed);
        let (entries, bytes) = (tried.saturating_sub(failures.count()), progress.bytes.load(Ordering::Relaxed));
        if self.json {
            out.json(&Report { entries, bytes, made })?;
        }
        failures.tell(entries, "copied")
    }

    fn options(&self) -> Result<ImportOptions> {
        let is_user = self.image.mounted_dir()?.is_some() && !rustix::process::geteuid().is_root();
        let options = options(&self.image.image, is_user, self.force);
        Ok(ImportOptions {
            thread_count: self.threads,
            owner: self.owner.or(options.owner),
            keeps_partial: self.partial,
            one_file_system: self.one_file_system,
            failures: Some(Arc::default()),
            ..options
        })
    }

    /// Returns where each source went.
    fn copy(&self, volume: &Volume, options: &ImportOptions, progress: &Progress) -> Result<Vec<PathBuf>> {
        let dest = Dest::find(volume, &self.dest, self.sources.len())?;
        copy_in(volume, (&self.sources, &self.dest, dest), options, progress)
    }
}

/// Options for a copy into an image; in a mount, the files of an unprivileged user belong to that user.
pub(crate) fn options(image: &Path, is_user: bool, replaces: bool) -> ImportOptions {
    let image = rustix::fs::stat(&ImagePath::parse(image).path).ok();
    ImportOptions {
        existing: if replaces { Existing::Replace } else { Existing::Fail },
        owner: is_user.then(maker),
        keeps_privileged: !is_user,
        skip: image.map(|stat| (stat.st_dev, stat.st_ino)),
        ..ImportOptions::default()
    }
}

/// Copies files and directories of this machine to a destination; returns where each went.
///
/// # Errors
/// The first failure that is not recorded.
pub(crate) fn copy_in(
    volume: &Volume,
    (sources, path, dest): (&[PathBuf], &Path, Dest<'_>),
    options: &ImportOptions,
    progress: &Progress,
) -> Result<Vec<PathBuf>> {
    let mut targets = Vec::new();
    for source in sources {
        let copied = copy_one(volume, options, progress, (source, path, dest));
        targets.extend(match &options.failures {
            Some(failures) => failures.note(copied, false)?,
            None => Some(copied?),
        });
    }
    Ok(targets)
}

fn copy_one(
    volume: &Volume,
    options: &ImportOptions,
    progress: &Progress,
    (source, path, dest): (&Path, &Path, Dest<'_>),
) -> Result<PathBuf> {
    if means_contents(source) {
        if !dest.is_directory() {
            volume.create_dir(path)?;
        }
        import_contents(volume, source, path, options, progress)?;
        return Ok(path.to_owned());
    }
    let is_dir = std::fs::symlink_metadata(source).is_ok_and(|found| found.is_dir());
    let target = dest.target(source, is_dir)?;
    import_one(volume, source, &target, options, progress)?;
    Ok(target)
}

/// `UID:GID` as two numbers.
pub fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let wrong =
        || format!("`{text}` is no owner; write USER:GROUP, as numbers or names of this machine, for instance 0:0");
    let (user, group) = text.split_once(':').ok_or_else(wrong)?;
    let of = |name: &str, table| name.parse().ok().or_else(|| number_of(name, table)).ok_or_else(wrong);
    Ok((of(user, "/etc/passwd")?, of(group, "/etc/group")?))
}

/// The number of a user or group of this machine: the third field of the line that begins with its name.
fn number_of(name: &str, table: &str) -> Option<u32> {
    let table = std::fs::read_to_string(table).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_two_numbers() {
        assert_eq!(parse_owner("0:100"), Ok((0, 100)));
        assert_eq!(parse_owner("root:root"), Ok((0, 0)));
        assert_eq!(parse_owner("12:root"), Ok((12, 0)));
        assert!(parse_owner("nobody-of-this-name:root").is_err());
        assert!(parse_owner("0").is_err());
    }

    #[test]
    fn a_dot_means_what_is_inside() {
        for path in ["/", ".", "..", "a/.", "a/.."] {
            assert!(means_contents(Path::new(path)), "{path}");
        }
        for path in ["a", "a/", "a/b", "/a", ".a", "a."] {
            assert!(!means_contents(Path::new(path)), "{path}");
        }
    }
}
