//! `spinney cp` copies within and between images, mounts and the host. Called by `args`.
//!
//! Each argument is parsed to a `Place`. Files from the host are copied by the code of `put`, files to the host by
//! that of `get`. Sources in the same place are copied together, so that hard links between them are kept. Failure: a
//! file that cannot be copied is reported at the end, and the others are copied, unless there is no room.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use spinney::transfer::{
    Existing, Options, Origin, Rules, Sharing, Transfer, VolumeSink, VolumeSinkOptions, VolumeSource,
};
use spinney::vfs::Volume;

use super::dest::Dest;
use super::failure::Failure;
use super::failures::Failures;
use super::get::{CopyOut, FromTo, estimate, means_contents};
use super::image::{ImageArgs, ReadArgs, maker};
use super::output::{Output, warn};
use super::place::{Place, is_image, mounted_at};
use super::progress::{Bar, Progress};
use super::put::{CopyIn, Target};
use super::report::Made;
use super::tally::{Counted, Tally, count};
use super::trust::{Allowed, Trust, Withheld};

/// Copy files and directories: within an image, or between images, mounts and this machine
///
/// IMAGE:/PATH is a path in an image, a path below a mount is a path in the mounted image, and all others are on this
/// machine; write `./` before a host name that has a colon. Owners, modes, times, attributes, flags, hard links and
/// holes are kept, on this machine and in a mount as far as your permissions allow. Within one image a copy shares the
/// extents of its source until one of them is changed, so it takes no time and no space. Between images, and to and
/// from this machine, directories are merged into existing ones.
///
/// From an image or a mount that another user may have written (it belongs neither to you nor to root, or others may
/// write to it), device nodes, set-user and set-group bits and capabilities are left out, as with --no-devices and
/// --no-setid; --trust copies them. A file that becomes yours by the copy gets none of these bits.
#[derive(Debug, Args)]
#[command(
    override_usage = "spinney cp [OPTIONS] <SOURCE>... <DEST>\n       spinney cp [OPTIONS] <IMAGE> <SOURCE>... <DEST>"
)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney cp site.img:/etc/fstab site.img:/etc/fstab.bak\n",
    "  spinney cp -r a.img:/srv/www b.img:/srv       from one image to another\n",
    "  spinney cp notes.txt ./mnt/docs site.img:/    from here and from a mount into an image\n",
    "  spinney cp -r site.img:/docs ./docs-back      out of an image\n",
    "  spinney cp -r site.img /srv/www /srv/static /backup\n",
    "  spinney cp --reflink=never site.img /disk.qcow2 /copy.qcow2   contents of its own\n",
    "  spinney cp -r --json site.img /a /b | jq .bytes_shared"
))]
pub(crate) struct Cp {
    /// Sources, and last the destination: an existing directory, or a new name. Symbolic links are copied, not
    /// followed. With IMAGE first, all are paths in that image
    #[arg(required = true, num_args = 2.., value_name = "SOURCE")]
    words: Vec<PathBuf>,
    /// Take the subvolume at PATH for the root of IMAGE, instead of the default subvolume
    #[arg(long, value_name = "PATH", conflicts_with = "subvolume_id")]
    subvolume: Option<PathBuf>,
    /// Take the subvolume with this number for the root of IMAGE; 5 is the top level
    #[arg(long, value_name = "ID")]
    subvolume_id: Option<u64>,
    /// Take this copy of the superblock of IMAGE: 0 at 64 KiB, 1 at 64 MiB, 2 at 256 GiB
    #[arg(long = "super", value_name = "COPY")]
    superblock: Option<usize>,
    /// Copy directories with their contents
    #[arg(short, long)]
    recursive: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Share extents: auto (where possible), always (or fail), or never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "auto",
        default_missing_value = "always", hide_default_value = true)]
    reflink: Reflink,
    /// Keep the copied part of a file that does not fit; by default it is removed
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    trust: Trust,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {entries, bytes_shared, bytes_copied, made: [{path, subvolume, ino}]}; `made` is empty for
    /// copies to this machine
    #[arg(long)]
    json: bool,
}

/// Whether contents are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reflink {
    Auto,
    Always,
    Never,
}

impl From<Reflink> for Sharing {
    fn from(reflink: Reflink) -> Self {
        match reflink {
            Reflink::Auto => Self::Auto,
            Reflink::Always => Self::Always,
            Reflink::Never => Self::Never,
        }
    }
}

#[derive(Default, Serialize)]
struct Report {
    entries: u64,
    bytes_shared: u64,
    bytes_copied: u64,
    made: Vec<Made>,
}

/// The progress of a copy, and its failures.
type Noted<'a> = (&'a Arc<Progress>, &'a Arc<Failures>);

/// Paths in one image, one mount, or on the host.
struct Group {
    place: Place,
    paths: Vec<PathBuf>,
}

impl Cp {
    /// Runs the command.
    ///
    /// # Errors
    /// The number of files that could not be copied, or the only failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (progress, failures) = (Arc::new(Progress::default()), Arc::new(Failures::default()));
        let report = match self.image_first() {
            Some(image) => {
                let rest = self.words.get(1..).unwrap_or_default();
                let (dest, sources) = rest.split_last().context("a destination")?;
                self.fill(&self.image(image), dest, &[Source::Itself(sources.to_vec())], (&progress, &failures))
            }
            None => self.between((&progress, &failures)),
        };
        let mut report = report?;
        report.entries = report.entries.saturating_sub(failures.count());
        if self.json {
            out.json(&report)?;
        }
        failures.tell(report.entries, "copied")
    }

    fn image(&self, image: &Path) -> ImageArgs {
        let (subvolume, subvolume_id, superblock) = (self.subvolume.clone(), self.subvolume_id, self.superblock);
        let dir = if subvolume.is_some() || subvolume_id.is_some() || superblock.is_some() {
            None
        } else {
            mounted_at(image)
        };
        let image = dir.unwrap_or_else(|| image.to_owned());
        ImageArgs { image, subvolume, subvolume_id, superblock, ..ImageArgs::default() }
    }

    /// The first argument, if it is an image or a directory of a mount and all others are paths in it.
    fn image_first(&self) -> Option<&Path> {
        let (first, rest) = self.words.split_first().filter(|(_, rest)| rest.len() > 1)?;
        let place = Place::parse(first.as_os_str());
        let rest: Vec<Place> = rest.iter().map(|word| Place::parse(word.as_os_str())).collect();
        let is_first = match &place {
            Place::Image { .. } => false,
            _ if rest.iter().any(|other| matches!(other, Place::Image { .. })) => false,
            // If the destination is on the host, only an image as first argument gives the command a meaning.
            Place::Host(path) => matches!(rest.last(), Some(Place::Host(_))) && is_image(path),
            Place::Mount { .. } => first.is_dir() && !rest.iter().all(|other| other.is_beside(&place)),
        };
        is_first.then_some(first)
    }

    /// Copies between the places that the arguments name.
    fn between(&self, (progress, failures): Noted<'_>) -> Result<Report> {
        let places: Vec<Place> = self.words.iter().map(|word| Place::parse(word.as_os_str()).through_mount()).collect();
        let (dest, sources) = places.split_last().context("a destination")?;
        let groups = grouped(sources);
        if self.subvolume.is_some() || self.subvolume_id.is_some() || self.superblock.is_some() {
            let text = "--subvolume, --subvolume-id and --super need an IMAGE as the first argument, and paths in it";
            return Err(Failure::usage(text).into());
        }
        if self.reflink == Reflink::Always && !sources.iter().all(|source| source.is_beside(dest)) {
            let text = "--reflink=always: only files of one image can share extents";
            return Err(Failure::usage(text).into());
        }
        let Some((image, path)) = dest.within() else { return self.copy_out(&groups, dest, sources.len(), progress) };
        let target = self.image(image);
        let sources = groups.into_iter().map(|Group { place, paths }| match place.within() {
            None => Ok(Source::Host(paths)),
            Some(_) if place.is_beside(dest) => Ok(Source::Itself(paths)),
            Some((other, _)) => {
                let (volume, is_own) = self.reader(other).open_with_trust()?;
                Ok(Source::Other(Another { volume, image: other.to_owned(), is_own }, paths))
            }
        });
        let sources = sources.collect::<Result<Vec<_>>>()?;
        self.fill(&target, path, &sources, (progress, failures))
    }

    fn reader(&self, image: &Path) -> ReadArgs {
        ReadArgs::of(self.image(image))
    }

    /// Copies everything into an image or a mount, and closes it.
    fn fill(
        &self,
        target: &ImageArgs,
        dest: &Path,
        sources: &[Source],
        (progress, failures): Noted<'_>,
    ) -> Result<Report> {
        let is_user = target.mounted_dir()?.is_some() && !rustix::process::geteuid().is_root();
        let volume = target.open_writable()?;
        let bar = Bar::new(progress, !self.quiet);
        let filling = Filling { cp: self, volume: &volume, image: &target.image, dest, is_user, progress, failures };
        let mut report = Report::default();
        let count = sources.iter().map(|source| source.paths().len()).sum();
        let copied = Dest::find(&volume, dest, count).and_then(|dest_of| {
            for source in sources {
                let targets = filling.copy(source, dest_of, &mut report)?;
                for target in targets {
                    report.made.push(Made::at(&volume, &target)?);
                }
            }
            Ok(())
        });
        // After a failure the volume is closed too, so that the files copied before it are kept.
        let closed = volume.close();
        drop(bar);
        copied?;
        closed?;
        report.entries = progress.names.load(Ordering::Relaxed);
        Ok(report)
    }

    /// Copies everything to this machine.
    fn copy_out(&self, groups: &[Group], dest: &Place, count: usize, progress: &Arc<Progress>) -> Result<Report> {
        let Place::Host(to) = dest else { return Ok(Report::default()) };
        Dest::new(to, to.is_dir(), count)?;
        let mut report = Report::default();
        for Group { place, paths } in groups {
            let Some((image, _)) = place.within() else {
                let text = "source and destination are on this machine: use cp(1), or IMAGE:/PATH for an image";
                let (from, to) = (paths.first().map_or(Path::new(""), PathBuf::as_path).display(), to.display());
                return Err(Failure::usage(format!("{from} and {to}: {text}")).into());
            };
            let (volume, is_own) = self.reader(image).open_with_trust()?;
            for path in paths {
                check_recursive(self.recursive, path, volume.symlink_metadata(path)?.is_dir())?;
            }
            let options = CopyOut::of_cp(self.force, self.quiet, self.partial, self.trust);
            let copied = options.run(&volume, (image, is_own), (paths, to))?;
            progress.names.fetch_add(copied.report.entries, Ordering::Relaxed);
            report.bytes_copied = report.bytes_copied.saturating_add(copied.report.bytes);
            copied.finish()?;
        }
        report.entries = progress.names.load(Ordering::Relaxed);
        Ok(report)
    }
}

/// The source of some of the files.
enum Source {
    Host(Vec<PathBuf>),
    /// The destination image itself.
    Itself(Vec<PathBuf>),
    Other(Another, Vec<PathBuf>),
}

/// Another image or mount.
struct Another {
    volume: Volume,
    image: PathBuf,
    /// True if only the caller and root could have written it.
    is_own: bool,
}

impl Source {
    fn paths(&self) -> &[PathBuf] {
        match self {
            Self::Host(paths) | Self::Itself(paths) | Self::Other(_, paths) => paths,
        }
    }
}

/// An image or a mount that files go to.
struct Filling<'a> {
    cp: &'a Cp,
    volume: &'a Volume,
    image: &'a Path,
    dest: &'a Path,
    /// True for an unprivileged user and a mount: new files belong to the user.
    is_user: bool,
    progress: &'a Arc<Progress>,
    failures: &'a Arc<Failures>,
}

impl Filling<'_> {
    /// Returns the paths of the copies.
    fn copy(&self, source: &Source, dest: Dest<'_>, report: &mut Report) -> Result<Vec<PathBuf>> {
        let (volume, image, is_own, is_within) = match source {
            Source::Host(paths) => return self.copy_in(paths, dest, report),
            // A copy within an image gives no user more rights than before.
            Source::Itself(_) => (self.volume, self.image, true, true),
            Source::Other(other, _) => (&other.volume, other.image.as_path(), other.is_own, false),
        };
        let from_to = FromTo { volume, paths: source.paths(), to: self.dest };
        let tally = Tally { failures: Some(self.failures), ..Tally::new(self.progress, Counted::Tried) };
        let before = count(&self.progress.bytes);
        let is_over = AtomicBool::new(false);
        let targets = std::thread::scope(|scope| {
            if Bar::would_show(!self.cp.quiet) {
                scope.spawn(|| estimate(from_to, self.progress, &is_over));
            }
            let targets = self.copy_between(from_to, dest, self.settings(is_within, is_own), &tally);
            is_over.store(true, Ordering::Relaxed);
            targets
        });
        let shared = count(&tally.shared);
        let copied = count(&self.progress.bytes).saturating_sub(before).saturating_sub(shared);
        report.bytes_shared = report.bytes_shared.saturating_add(shared);
        report.bytes_copied = report.bytes_copied.saturating_add(copied);
        let losses = &tally.losses;
        tally.tell_shortened();
        let unkept = count(&losses.xattrs);
        if unkept > 0 {
            warn(&format!("{unkept} attributes and flags were not copied: the destination does not accept them"));
        }
        let withheld = Withheld { devices: count(&losses.withheld_nodes), setid: count(&losses.withheld_setid) };
        self.cp.trust.tell_withheld((image, is_own), withheld);
        let disowned = count(&losses.disowned);
        if disowned > 0 && !self.cp.trust.no_setid {
            let text = "so set-user and set-group bits or capabilities were left out";
            warn(&format!("{disowned} files have another owner or group than before, {text}"));
        }
        targets
    }

    /// The options for copies from an image or a mount.
    fn settings(&self, is_within: bool, is_own: bool) -> (Options, VolumeSinkOptions) {
        let Allowed { devices, setid } = self.cp.trust.allowed(is_own);
        let owner = self.is_user.then(maker);
        let rules = Rules {
            owner,
            keeps_privileged: !self.is_user,
            makes_devices: devices,
            keeps_setid: setid,
            ..Rules::default()
        };
        let volume_options = VolumeSinkOptions {
            existing: if self.cp.force { Existing::Exchange } else { Existing::Fail },
            keeps_partial: self.cp.partial,
            origin: if is_within { Origin::ThisVolume(self.cp.reflink.into()) } else { Origin::OtherVolume },
            user: owner.map(|(uid, _)| uid),
            ..VolumeSinkOptions::default()
        };
        (Options { rules, ..Options::default() }, volume_options)
    }

    /// Copies from an image or a mount.
    fn copy_between(
        &self,
        FromTo { volume: from, paths, to }: FromTo<'_>,
        dest: Dest<'_>,
        (options, volume_options): (Options, VolumeSinkOptions),
        tally: &Tally<'_>,
    ) -> Result<Vec<PathBuf>> {
        let is_within = volume_options.origin != Origin::OtherVolume;
        let source = match volume_options.origin {
            Origin::ThisVolume(Sharing::Auto | Sharing::Always) => VolumeSource::new(from, "").without_contents(),
            _ => VolumeSource::new(from, ""),
        };
        let sink = VolumeSink::new(self.volume, "", volume_options);
        let transfer = Transfer::new(&source, &sink, &options, tally);
        let mut targets = Vec::new();
        for path in paths {
            let is_dir = from.symlink_metadata(path)?.is_dir();
            check_recursive(self.cp.recursive, path, is_dir)?;
            if is_dir && !is_within && means_contents(path) {
                if !dest.is_directory() {
                    self.volume.create_dir(to)?;
                }
                let copied = transfer.contents_of(path, to).map_err(Into::into);
                targets.extend(self.failures.note(copied, false)?.map(|()| to.to_owned()));
                continue;
            }
            let target = dest.target(path, is_dir)?;
            let copied = transfer.one(path, &target).map_err(Into::into);
            targets.extend(self.failures.note(copied, false)?.filter(|is_made| *is_made).map(|_| target));
        }
        Ok(targets)
    }

    /// Copies from this machine, as `put` does.
    fn copy_in(&self, paths: &[PathBuf], dest: Dest<'_>, report: &mut Report) -> Result<Vec<PathBuf>> {
        for path in paths {
            let is_dir = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
            check_recursive(self.cp.recursive, path, is_dir)?;
        }
        let mut copy = CopyIn::new(self.image, self.is_user, self.cp.force);
        let Allowed { devices, setid } = self.cp.trust.allowed(true);
        copy.options.rules = Rules { makes_devices: devices, keeps_setid: setid, ..copy.options.rules };
        copy.volume.keeps_partial = self.cp.partial;
        let before = self.progress.bytes.load(Ordering::Relaxed);
        let tally = Tally { failures: Some(self.failures), ..Tally::new(self.progress, Counted::Tried) };
        let targets = copy.run(self.volume, paths, Target { path: self.dest, dest }, &tally);
        let copied = self.progress.bytes.load(Ordering::Relaxed).saturating_sub(before);
        report.bytes_copied = report.bytes_copied.saturating_add(copied);
        targets
    }
}

/// Refuses a directory without `--recursive`.
fn check_recursive(recursive: bool, path: &Path, is_dir: bool) -> Result<()> {
    if is_dir && !recursive {
        let text = format!("{}: a directory (-r includes its contents)", path.display());
        return Err(Failure::refused(text).into());
    }
    Ok(())
}

/// Groups sources by image, mount or host.
fn grouped(sources: &[Place]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for source in sources {
        let path = match source {
            Place::Host(path) => path,
            Place::Image { path, .. } | Place::Mount { path, .. } => path,
        };
        match groups.iter_mut().find(|group| group.place.is_beside(source)) {
            Some(group) => group.paths.push(path.clone()),
            None => groups.push(Group { place: source.clone(), paths: vec![path.clone()] }),
        }
    }
    groups
}
