//! `spinney cp`

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use vfs::file_system::{NodeFlags, NodeKind, SetAttr, WholeNode, XattrMode};
use vfs::{Errno, File, FileOptions, Metadata, Times, Volume};

use super::dest::Dest;
use super::export::{copy_sparse, data_bytes, new_buffer};
use super::failure::Failure;
use super::failures::Failures;
use super::image::ImageArgs;
use super::output::Output;
use super::progress::{Bar, Progress};
use super::report::Made;

/// Flags that say how contents are stored: a new file needs them before it has any.
const STORAGE_FLAGS: NodeFlags = NodeFlags::NOCOW.union(NodeFlags::COMPRESS).union(NodeFlags::NOCOMPRESS);

/// Copy files and directories within an image
///
/// Copies share their contents with what they were copied from, until one of them is changed: that takes no time and no
/// space. Owners, modes, times, attributes, flags, hard links and holes are kept.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney cp site.img /etc/fstab /etc/fstab.bak\n",
    "  spinney cp -r site.img /srv/www /srv/static /backup\n",
    "  spinney cp --reflink=never site.img /disk.qcow2 /copy.qcow2   contents of its own\n",
    "  spinney cp -r --json site.img /a /b | jq .bytes_shared"
))]
pub struct Cp {
    #[command(flatten)]
    image: ImageArgs,
    /// What to copy, in the image; a symbolic link is copied itself
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Where to, in the image: an existing directory, or a new name
    dest: PathBuf,
    /// Directories and all below
    #[arg(short, long)]
    recursive: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Whether contents are shared: where they can be, always (or fail), or never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "auto",
        default_missing_value = "always", hide_default_value = true)]
    reflink: Reflink,
    /// Keep the part of a file for whose rest there was no room; it is removed without
    #[arg(long)]
    partial: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {entries, bytes_shared, bytes_copied, made: [{path, subvolume, ino}]}
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

#[derive(Serialize)]
struct Report {
    entries: u64,
    bytes_shared: u64,
    bytes_copied: u64,
    made: Vec<Made>,
}

impl Cp {
    /// Runs the command.
    ///
    /// # Errors
    /// How many files could not be copied, or the only failure; [`crate::failure::status_of`] says of what kind it is.
    pub fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let mut copy = Copy {
            cp: self,
            volume: &volume,
            progress: &progress,
            links: HashMap::new(),
            shared: 0,
            copied: 0,
            failures: Failures::default(),
        };
        let targets = copy.all();
        let (shared, copied, failures) = (copy.shared, copy.copied, copy.failures);
        let made = targets
            .and_then(|targets| targets.iter().map(|target| Made::at(&volume, target)).collect::<Result<Vec<_>>>());
        // What was copied before a failure is kept.
        let closed = volume.close();
        drop(bar);
        let made = made?;
        closed?;
        let entries = progress.names.load(Ordering::Relaxed).saturating_sub(failures.count());
        if self.json {
            out.json(&Report { entries, bytes_shared: shared, bytes_copied: copied, made })?;
        }
        failures.tell(entries, "copied")
    }
}

/// One name that is to be copied.
struct Name {
    from: PathBuf,
    to: PathBuf,
    found: Metadata,
}

struct Copy<'a> {
    cp: &'a Cp,
    volume: &'a Volume,
    progress: &'a Progress,
    /// Files with several names, by subvolume and number: where the first was copied to.
    links: HashMap<(u64, u64), PathBuf>,
    shared: u64,
    copied: u64,
    failures: Failures,
}

impl Copy<'_> {
    /// Copies everything; returns where the sources went.
    fn all(&mut self) -> Result<Vec<PathBuf>> {
        let dest = Dest::find(self.volume, &self.cp.dest, self.cp.sources.len())?;
        let mut targets = Vec::new();
        for source in &self.cp.sources {
            let found = self.volume.symlink_metadata(source)?;
            if found.is_dir() && !self.cp.recursive {
                return Err(Failure::refused(format!("{}: a directory (-r takes all below)", source.display())).into());
            }
            let target = dest.target(source, found.is_dir())?;
            // All names are known before the first copy is made: a directory may be copied into itself.
            let names = self.below(Name { from: source.clone(), to: target.clone(), found })?;
            let mut left: Vec<&Path> = Vec::new();
            for name in names.iter() {
                // Nothing can go into a directory that could not be made.
                if left.iter().any(|dir| name.to.starts_with(dir)) {
                    continue;
                }
                let copied = self.one(name);
                if self.failures.note(copied, false)?.is_none() {
                    left.push(&name.to);
                }
            }
            // Making what is in a directory has changed its times.
            for Name { to, found, .. } in names.iter().rev().filter(|name| name.found.is_dir()) {
                if left.iter().any(|dir| to.starts_with(dir)) {
                    continue;
                }
                self.volume.set_times(to, &times(found))?;
                self.set_flags(to, found.flags)?;
            }
            if !left.contains(&target.as_path()) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// A name, and all that are below it, each behind the directory that it is in.
    fn below(&self, top: Name) -> Result<Vec<Name>> {
        let mut names = vec![top];
        let mut next = 0;
        while let Some(Name { from, to, found }) = names.get(next) {
            next += 1;
            if !found.is_dir() {
                continue;
            }
            let (from, to) = (from.clone(), to.clone());
            let listed = self.volume.read_dir(&from).and_then(Iterator::collect::<vfs::Result<Vec<_>>>);
            for entry in self.failures.note(listed.map_err(Into::into), false)?.unwrap_or_default() {
                let (from, to) = (from.join(entry.file_name()), to.join(entry.file_name()));
                let found = self.volume.symlink_metadata(&from).map_err(Into::into);
                let Some(found) = self.failures.note(found, false)? else { continue };
                self.progress.bytes_total.fetch_add(if found.is_file() { found.size } else { 0 }, Ordering::Relaxed);
                names.push(Name { from, to, found });
            }
        }
        Ok(names)
    }

    fn one(&mut self, name: &Name) -> Result<()> {
        self.progress.add_name();
        let id = (name.found.home.subvolume, name.found.home.ino);
        if !self.is_replaced(name)? {
            self.make(name, id, &name.to)?;
        } else if self.links.get(&id) != Some(&name.to) {
            // What has the name keeps it until the copy is whole.
            let beside = self.free_name(&name.to)?;
            let replace = |target: &Path| format!("{}: not replaced", target.display());
            self.make(name, id, &beside).with_context(|| replace(&name.to))?;
            let renamed = self.volume.rename(&beside, &name.to).inspect_err(|_| self.remove(&beside));
            renamed.with_context(|| replace(&name.to))?;
        }
        if name.found.nlink > 1 && !name.found.is_dir() {
            self.links.entry(id).or_insert_with(|| name.to.clone());
        }
        Ok(())
    }

    /// Copies what has a name to `to`, where there is nothing; or leaves nothing there, unless it is a directory.
    fn make(&mut self, name: &Name, id: (u64, u64), to: &Path) -> Result<()> {
        let Name { from, found, .. } = name;
        if let Some(first) = self.links.get(&id) {
            return Ok(self.volume.hard_link(first, to)?);
        }
        let link = if found.is_symlink() { self.volume.read_link(from)? } else { PathBuf::new() };
        let node = WholeNode {
            kind: found.kind,
            permissions: found.permissions,
            uid: found.uid,
            gid: found.gid,
            rdev: found.rdev,
            target: link.as_os_str().as_bytes(),
            ..WholeNode::default()
        };
        self.volume.create_node(to, &node)?;
        let filled = self.fill(name, to);
        if filled.is_err() && !found.is_dir() && !self.cp.partial {
            self.remove(to);
        }
        filled
    }

    /// Gives a new node what its source has.
    fn fill(&mut self, name: &Name, to: &Path) -> Result<()> {
        if name.found.is_file() {
            self.set_flags(to, name.found.flags & STORAGE_FLAGS)?;
            self.contents(name, to)?;
        }
        self.attributes(name, to)
    }

    /// Removes a copy that did not become whole.
    fn remove(&self, path: &Path) {
        // The failure before is what the caller hears of; where even this fails, the part stays.
        let _ = self.volume.remove_file(path);
    }

    /// A name that nothing has, in the directory of `path`.
    fn free_name(&self, path: &Path) -> Result<PathBuf> {
        let mut number = 0_u64;
        loop {
            let beside = path.with_file_name(format!(".spinney-cp-{number}"));
            match self.volume.symlink_metadata(&beside) {
                Err(error) if error.is_not_found() => return Ok(beside),
                there => there.map(drop)?,
            }
            number += 1;
        }
    }

    /// True where something has the name already, which the copy is to replace.
    fn is_replaced(&self, Name { from, to, found }: &Name) -> Result<bool> {
        let there = match self.volume.symlink_metadata(to) {
            Err(error) if error.is_not_found() => return Ok(false),
            there => there?,
        };
        if (there.home.subvolume, there.home.ino) == (found.home.subvolume, found.home.ino) {
            let (from, to) = (from.display(), to.display());
            return Err(Failure::refused(format!("{from} and {to} are the same file")).into());
        }
        if !self.cp.force || there.is_dir() || found.is_dir() {
            return Err(Failure::refused(format!("{}: exists already", to.display())).into());
        }
        Ok(true)
    }

    fn contents(&mut self, Name { from, found, .. }: &Name, to: &Path) -> Result<()> {
        if found.size == 0 {
            return Ok(());
        }
        let source = File::open(self.volume, from)?;
        let target = FileOptions::new().read(true).write(true).open(self.volume, to)?;
        if self.cp.reflink != Reflink::Never {
            match target.reflink(&source, 0, 0, 0) {
                Ok(()) => {
                    let shared = data_bytes(&source, found.size).map_err(|error| error.at(from))?;
                    self.shared = self.shared.saturating_add(shared);
                    self.progress.add_bytes(found.size);
                    return Ok(());
                }
                Err(error)
                    if self.cp.reflink == Reflink::Auto
                        && [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&error.errno()) => {}
                Err(error) => return Err(error.at(to).into()),
            }
        }
        // Holes stay holes, where the format tells them.
        copy_sparse((&source, from), found.size, &mut new_buffer(), |at, part| {
            target.write_at(part, at).map_err(|error| error.at(to))?;
            let bytes = u64::try_from(part.len())?;
            self.progress.add_bytes(bytes);
            self.copied = self.copied.saturating_add(bytes);
            Ok(())
        })?;
        Ok(target.set_len(found.size).map_err(|error| error.at(to))?)
    }

    /// Writing takes privileges away, and changes times: they come last.
    fn attributes(&self, Name { from, found, .. }: &Name, to: &Path) -> Result<()> {
        for name in self.volume.list_xattrs(from)? {
            if let Some(value) = self.volume.get_xattr(from, name.as_bytes())? {
                self.volume.set_xattr(to, name.as_bytes(), value, XattrMode::Either)?;
            }
        }
        let permissions = (found.kind != NodeKind::Symlink).then_some(found.permissions);
        self.volume.set_attributes(to, &SetAttr { permissions, ..SetAttr::from(times(found)) })?;
        if found.is_dir() { Ok(()) } else { self.set_flags(to, found.flags) }
    }

    /// Sets flags of a file or directory, where there are any.
    fn set_flags(&self, path: &Path, flags: NodeFlags) -> Result<()> {
        let found = self.volume.symlink_metadata(path)?;
        if flags == found.flags || !(found.is_file() || found.is_dir()) {
            return Ok(());
        }
        // What is overwritten in place cannot become compressed in one step, nor the other way round.
        if (flags ^ found.flags).contains(NodeFlags::NOCOW) {
            self.volume.set_flags(path, found.flags.difference(STORAGE_FLAGS))?;
        }
        Ok(self.volume.set_flags(path, flags)?)
    }
}

fn times(found: &Metadata) -> Times {
    Times { atime: Some(found.atime), mtime: Some(found.mtime), ..Times::default() }
}
