//! `spinney put` copies files and directories of the host into an image or a mount. Called by `args`; `cp` uses its
//! `CopyIn`.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use spinney::blockdev::Locator;
use spinney::transfer::{
    Existing, HostSource, Options, Rules, Transfer, VolumeSink, VolumeSinkOptions, default_threads, measure_host,
};
use spinney::vfs::Volume;

use super::archives;
use super::dest::Dest;
use super::emulation;
use super::failure::Failure;
use super::failures::Failures;
use super::get::means_contents;
use super::image::{ImageArgs, maker};
use super::output::Output;
use super::progress::{Bar, Progress};
use super::report::Made;
use super::tally::{Counted, Tally};

/// Copy files and directories into an image
///
/// Directories are copied with their contents, and merged into existing ones. Owners, modes, times, attributes, hard
/// links, holes, device nodes, sockets, pipes and symbolic links are kept.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney put notes.txt site.img:/docs/      a file, into /docs\n",
    "  spinney put site.img notes.txt /           into the root directory\n",
    "  spinney put site.img ./src /backup         a directory, under a new name or into /backup\n",
    "  spinney put site.img ./src/. /             what is inside src\n",
    "  spinney put ./src /mnt/site/src                into a mount\n",
    "  spinney put --tar linux.tar.xz /mnt/site/src   an archive, into a mount\n",
    "  spinney put --compress zstd:9 site.img ./src /\n",
    "  spinney put --json site.img ./src / | jq .bytes"
))]
pub(crate) struct Put {
    #[command(flatten)]
    image: ImageArgs,
    /// Files and directories on this machine (a path that ends in /. means its contents), and the destination in the
    /// image: an existing directory, or a new name
    #[arg(required = true, value_names = ["SOURCE", "DEST"])]
    words: Vec<PathBuf>,
    /// Unpack FILE into the directory DEST: a tar or cpio archive, also compressed; - for the standard input
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Give everything this owner and group
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Compress contents: zlib[:1-9], lzo or zstd[:-15-15]; incompressible data is stored as it is
    #[arg(long, value_name = "ALGO[:LEVEL]")]
    compress: Option<String>,
    /// Stay on the file system that SOURCE is on
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Threads that copy; with one, the same source always gives the same order
    #[arg(long, value_name = "COUNT", default_value_t = default_threads(), hide_default_value = true)]
    threads: usize,
    /// Store the data of files with equal contents once
    #[arg(long)]
    dedupe: bool,
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
    /// Number of copied entries.
    entries: u64,
    /// Copied bytes of contents.
    bytes: u64,
    made: Vec<Made>,
}

impl Put {
    /// Runs the command.
    ///
    /// # Errors
    /// The number of files that could not be copied, or the only failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (sources, dest) = self.ends()?;
        let volume = self.image.open_to_compress(self.compress.clone())?;
        let copy = self.copy()?;
        if let Some(file) = &self.tar {
            return self.unpack((volume, dest), &copy, file, out);
        }
        let (progress, failures) = (Arc::new(Progress::default()), Failures::default());
        let bar = Bar::new(&progress, !self.quiet);
        if bar.is_shown() {
            for source in sources {
                progress.add_total(measure_host(source, &copy.options)?.bytes);
            }
        }
        let tally = Tally { failures: Some(&failures), ..Tally::new(&progress, Counted::Tried) };
        let path = dest;
        let copied = Dest::find(&volume, path, sources.len())
            .and_then(|dest| copy.run(&volume, sources, Target { path, dest }, &tally))
            .and_then(|targets| targets.iter().map(|target| Made::at(&volume, target)).collect::<Result<Vec<_>>>());
        // Files copied before a failure are kept.
        let closed = volume.close();
        drop(bar);
        let made = copied?;
        closed?;
        let tried = progress.names.load(Ordering::Relaxed);
        let (entries, bytes) = (tried.saturating_sub(failures.count()), progress.bytes.load(Ordering::Relaxed));
        if self.json {
            out.json(&Report { entries, bytes, made })?;
        }
        failures.tell(entries, "copied")
    }

    /// The sources, of which an archive has none, and the destination.
    fn ends(&self) -> Result<(&[PathBuf], &Path)> {
        match (self.words.split_last(), &self.tar) {
            (Some((dest, [])), Some(_)) => Ok((&[], dest)),
            (Some(_), Some(_)) => Err(Failure::usage("--tar: there is no SOURCE beside the archive").into()),
            (Some((dest, sources)), None) if !sources.is_empty() => Ok((sources, dest)),
            _ => Err(Failure::usage("DEST is missing").into()),
        }
    }

    /// Unpacks an archive.
    fn unpack(&self, (volume, dest): (Volume, &Path), copy: &CopyIn, file: &Path, out: &mut Output) -> Result<()> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let tally = Tally::new(&progress, Counted::Tried);
        let contents = archives::read(file, (&volume, dest), &tally)?;
        volume.create_dir_all(dest)?;
        let sink = VolumeSink::new(&volume, dest, copy.volume);
        let copied = contents.copy(&sink, &copy.options, &tally);
        // Files copied before a failure are kept.
        let closed = volume.close();
        drop(bar);
        copied?;
        closed?;
        let (entries, bytes) = (progress.names.load(Ordering::Relaxed), progress.bytes.load(Ordering::Relaxed));
        if self.json {
            out.json(&Report { entries, bytes, made: Vec::new() })?;
        }
        Ok(())
    }

    fn copy(&self) -> Result<CopyIn> {
        let is_user = self.image.mounted_dir()?.is_some() && !rustix::process::geteuid().is_root();
        let mut copy = CopyIn::new(&self.image.image, is_user, self.force);
        // Of two equal files that are copied at the same time neither would find the other.
        copy.options.thread_count = if self.dedupe { 1 } else { self.threads };
        copy.options.rules.owner = self.owner.or(copy.options.rules.owner);
        copy.options.rules.one_file_system = self.one_file_system;
        copy.volume.keeps_partial = self.partial;
        copy.volume.shares_equal = self.dedupe;
        Ok(copy)
    }
}

/// Copies files of this machine into an image.
pub(crate) struct CopyIn {
    pub(crate) options: Options,
    pub(crate) volume: VolumeSinkOptions,
}

/// Destination of a source.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a Path,
    pub(crate) dest: Dest<'a>,
}

impl CopyIn {
    /// For a copy into the image at `image`; in a mount, files copied by an unprivileged user belong to that user.
    pub(crate) fn new(image: &Path, is_user: bool, replaces: bool) -> Self {
        let image = Locator::parse(image).ok().and_then(|image| std::fs::metadata(image.path()?).ok());
        let rules = Rules {
            owner: is_user.then(maker),
            keeps_privileged: !is_user,
            skip: image.map(|found| (found.dev(), found.ino())),
            ..Rules::default()
        };
        let existing = if replaces { Existing::Replace } else { Existing::Fail };
        // A user may not change directories of others.
        let user = is_user.then(|| maker().0);
        let volume = VolumeSinkOptions { existing, user, ..VolumeSinkOptions::default() };
        Self { options: Options { rules, ..Options::default() }, volume }
    }

    /// Copies files and directories of this machine; returns the path of each copy.
    ///
    /// # Errors
    /// The first failure that is not recorded.
    pub(crate) fn run(
        &self,
        volume: &Volume,
        sources: &[PathBuf],
        target: Target<'_>,
        tally: &Tally<'_>,
    ) -> Result<Vec<PathBuf>> {
        emulation::check()?;
        let mut targets = Vec::new();
        for source in sources {
            let copied = self.one(volume, source, target, tally);
            targets.extend(match tally.failures {
                Some(failures) => failures.note(copied, false)?.flatten(),
                None => copied?,
            });
        }
        Ok(targets)
    }

    /// Returns the path of a copy, unless the source was left out.
    fn one(&self, volume: &Volume, path: &Path, target: Target<'_>, tally: &Tally<'_>) -> Result<Option<PathBuf>> {
        let Target { path: into, dest } = target;
        if means_contents(path) {
            if !dest.is_directory() {
                volume.create_dir(into)?;
            }
            let (source, sink) = (HostSource::open(path)?, VolumeSink::new(volume, into, self.volume));
            Transfer::new(&source, &sink, &self.options, tally).contents()?;
            return Ok(Some(into.to_owned()));
        }
        let is_dir = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        let target = dest.target(path, is_dir)?;
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let name = path.file_name().context("the source has no name")?;
        let (source, sink) = (HostSource::open(parent)?, VolumeSink::new(volume, "", self.volume));
        let is_made = Transfer::new(&source, &sink, &self.options, tally).one(Path::new(name), &target)?;
        Ok(is_made.then_some(target))
    }
}

/// `UID:GID` as two numbers.
pub(crate) fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let wrong =
        || format!("`{text}` is no owner; write USER:GROUP, as numbers or names of this machine, for instance 0:0");
    let (user, group) = text.split_once(':').ok_or_else(wrong)?;
    // The highest number means no owner.
    let number = |name: &str| name.parse().ok().filter(|id| *id != u32::MAX);
    let of = |name: &str, table| number(name).or_else(|| number_of(name, table)).ok_or_else(wrong);
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
        assert!(parse_owner("no-user-of-this-name:root").is_err());
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
