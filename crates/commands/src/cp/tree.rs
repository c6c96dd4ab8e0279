//! Copying a tree within one volume, or from one to another.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use transfer::{SET_ID, VolumeFile, copy_data, data_bytes};
use vfs::file_system::{NodeFlags, NodeKind, SetAttr, WholeNode, XattrMode};
use vfs::{Errno, File, FileOptions, Metadata, Times, Volume};

use super::{Reflink, check_recursive};
use crate::dest::Dest;
use crate::failure::{Failure, Status};
use crate::failures::Failures;
use crate::get::means_contents;
use crate::image::maker;
use crate::progress::Progress;
use crate::trust::{Allowed, Withheld};

/// Flags for the storage of contents: a new file needs them before it has data.
const STORAGE_FLAGS: NodeFlags = NodeFlags::NOCOW.union(NodeFlags::COMPRESS).union(NodeFlags::NOCOMPRESS);

/// Flags that mean the same in every format.
const PORTABLE_FLAGS: NodeFlags = STORAGE_FLAGS
    .union(NodeFlags::SYNC)
    .union(NodeFlags::IMMUTABLE)
    .union(NodeFlags::APPEND)
    .union(NodeFlags::NODUMP)
    .union(NodeFlags::NOATIME)
    .union(NodeFlags::DIRSYNC);

/// A name to copy.
struct Name {
    from: PathBuf,
    to: PathBuf,
    found: Metadata,
}

/// A copy in progress.
pub(super) struct Copy<'a> {
    pub(super) from: &'a Volume,
    pub(super) to: &'a Volume,
    /// `from` and `to` are the same volume.
    pub(super) is_within: bool,
    /// True for an unprivileged user and a mount: new files belong to the user.
    pub(super) is_user: bool,
    pub(super) recursive: bool,
    /// Existing files are replaced.
    pub(super) force: bool,
    pub(super) reflink: Reflink,
    /// Whether the source is believed.
    pub(super) allowed: Allowed,
    /// The copied part of a file that does not fit is kept.
    pub(super) partial: bool,
    pub(super) progress: &'a Progress,
    /// Files with several names, by subvolume and inode: the path of the first copy.
    pub(super) links: HashMap<(u64, u64), PathBuf>,
    /// Existing directories of other users, whose attributes stay.
    pub(super) left: HashSet<PathBuf>,
    pub(super) counts: Counts,
    /// Failures of single files.
    pub(super) failures: &'a Failures,
}

/// The counts of a report.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Bytes of contents that are shared.
    pub(super) shared: u64,
    /// Bytes of contents that were copied.
    pub(super) copied: u64,
    /// Attributes and flags that the other format, or the mount, does not accept.
    pub(super) unkept: u64,
    /// Files of a source that is not believed.
    pub(super) withheld: Withheld,
    /// Files without set-user and set-group bits or capabilities, because their owner or group changed.
    pub(super) disowned: u64,
}

impl Copy<'_> {
    /// Copies everything; returns where the sources went.
    pub(super) fn all(&mut self, sources: &[PathBuf], (dest, dest_path): (Dest<'_>, &Path)) -> Result<Vec<PathBuf>> {
        let mut targets = Vec::new();
        for source in sources {
            let found = self.from.symlink_metadata(source)?;
            check_recursive(self.recursive, source, found.is_dir())?;
            let is_contents = found.is_dir() && !self.is_within && means_contents(source);
            let target = if is_contents { dest_path.to_owned() } else { dest.target(source, found.is_dir())? };
            // All names are listed before the first copy is made, because a directory may be copied into itself.
            let names = self.below(Name { from: source.clone(), to: target.clone(), found })?;
            let mut unmade: Vec<&Path> = Vec::new();
            for name in &names {
                // The entries of a directory that could not be made are skipped.
                if unmade.iter().any(|dir| name.to.starts_with(dir)) {
                    continue;
                }
                let copied = self.one(name);
                if self.failures.note(copied, false)? != Some(true) {
                    unmade.push(&name.to);
                }
            }
            // Making entries has changed the times of their directory, so times are set last.
            for Name { to, found, .. } in names.iter().rev().filter(|name| name.found.is_dir()) {
                if self.left.contains(to) || unmade.iter().any(|dir| to.starts_with(dir)) {
                    continue;
                }
                self.to.set_times(to, &times(found))?;
                self.set_flags(to, found.flags)?;
            }
            if !unmade.contains(&target.as_path()) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// A name and all names below it; a directory comes before its entries.
    fn below(&self, top: Name) -> Result<Vec<Name>> {
        let mut names = vec![top];
        let (mut next, mut dirs) = (0, HashSet::new());
        while let Some(Name { from, to, found }) = names.get(next) {
            next += 1;
            if !found.is_dir() {
                continue;
            }
            // A damaged image may have a directory below itself.
            if !dirs.insert((found.home.subvolume, found.home.ino)) {
                let text = format!("{}: the directory contains itself", from.display());
                return Err(Failure::new(Status::Corrupt, text).into());
            }
            let (from, to) = (from.clone(), to.clone());
            let listed = self.from.read_dir(&from).and_then(Iterator::collect::<vfs::Result<Vec<_>>>);
            for entry in self.failures.note(listed.map_err(Into::into), false)?.unwrap_or_default() {
                let (from, to) = (from.join(entry.file_name()), to.join(entry.file_name()));
                let found = self.from.symlink_metadata(&from).map_err(Into::into);
                let Some(found) = self.failures.note(found, false)? else { continue };
                self.progress.bytes_total.fetch_add(if found.is_file() { found.size } else { 0 }, Ordering::Relaxed);
                names.push(Name { from, to, found });
            }
        }
        Ok(names)
    }

    /// Copies a name; false for a device node that is left out.
    fn one(&mut self, name: &Name) -> Result<bool> {
        self.progress.add_name();
        let is_device = matches!(name.found.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        if is_device && !self.allowed.devices {
            self.counts.withheld.devices = self.counts.withheld.devices.saturating_add(1);
            return Ok(false);
        }
        let id = (name.found.home.subvolume, name.found.home.ino);
        if self.is_merged(name)? {
            self.merge(name)?;
        } else if !self.is_replaced(name)? {
            self.make(name, id, &name.to)?;
        } else if self.links.get(&id) != Some(&name.to) {
            // An existing file keeps the name until the copy is complete.
            let beside = self.free_name(&name.to)?;
            let replace = |target: &Path| format!("{}: not replaced", target.display());
            self.make(name, id, &beside).with_context(|| replace(&name.to))?;
            let renamed = self.to.rename(&beside, &name.to).inspect_err(|_| self.remove(&beside));
            renamed.with_context(|| replace(&name.to))?;
        }
        if name.found.nlink > 1 && !name.found.is_dir() {
            self.links.entry(id).or_insert_with(|| name.to.clone());
        }
        Ok(true)
    }

    /// Copies a name to `to`, which does not exist. After a failure `to` is removed, unless it is a directory.
    fn make(&mut self, name: &Name, id: (u64, u64), to: &Path) -> Result<()> {
        let Name { from, found, .. } = name;
        if let Some(first) = self.links.get(&id) {
            return Ok(self.to.hard_link(first, to)?);
        }
        let link = if found.is_symlink() { self.from.read_link(from)? } else { PathBuf::new() };
        let (uid, gid) = self.owner(found);
        let node = WholeNode {
            kind: found.kind,
            permissions: found.permissions & !self.lost_bits(found),
            uid,
            gid,
            rdev: found.rdev,
            target: link.as_os_str().as_bytes(),
            ..WholeNode::default()
        };
        self.to.create_node(to, &node)?;
        let filled = self.fill(name, to);
        if filled.is_err() && !found.is_dir() && !self.partial {
            self.remove(to);
        }
        filled
    }

    /// Owner and group of a copy.
    fn owner(&self, found: &Metadata) -> (u32, u32) {
        if self.is_user { maker() } else { (found.uid, found.gid) }
    }

    /// The set-user and set-group bits that a copy does not get; both where it gets no capability either.
    fn lost_bits(&self, found: &Metadata) -> u32 {
        let (uid, gid) = self.owner(found);
        if found.is_dir() {
            0
        } else if uid != found.uid || !self.allowed.setid {
            SET_ID
        } else if gid != found.gid {
            0o2000
        } else {
            0
        }
    }

    /// Counts a file that a copy takes power from.
    fn count_loss(&mut self, found: &Metadata) {
        let is_disowned = self.owner(found) != (found.uid, found.gid);
        let counts = &mut self.counts;
        let count = if is_disowned { &mut counts.disowned } else { &mut counts.withheld.setid };
        *count = count.saturating_add(1);
    }

    /// Sets the attributes of a new node to those of its source.
    fn fill(&mut self, name: &Name, to: &Path) -> Result<()> {
        if name.found.is_file() {
            self.set_flags(to, name.found.flags & STORAGE_FLAGS)?;
            self.contents(name, to)?;
        }
        self.attributes(name, to)
    }

    /// Removes an incomplete copy.
    fn remove(&self, path: &Path) {
        // The caller gets the first failure. If this removal fails too, the part stays.
        let _ = self.to.remove_file(path);
    }

    /// An unused name in the directory of `path`.
    fn free_name(&self, path: &Path) -> Result<PathBuf> {
        let mut number = 0_u64;
        loop {
            let beside = path.with_file_name(format!(".spinney-cp-{number}"));
            match self.to.symlink_metadata(&beside) {
                Err(error) if error.is_not_found() => return Ok(beside),
                there => there.map(drop)?,
            }
            number += 1;
        }
    }

    /// Sets the attributes of an existing directory to those of the source. For an unprivileged user, directories of
    /// others keep theirs.
    fn merge(&mut self, name: &Name) -> Result<()> {
        let Name { to, found, .. } = name;
        if !self.is_user {
            self.to.set_owner(to, Some(found.uid), Some(found.gid))?;
        } else if self.to.symlink_metadata(to)?.uid != maker().0 {
            self.left.insert(to.clone());
            return Ok(());
        }
        self.attributes(name, to)
    }

    /// True for a directory from another volume that is merged into an existing one.
    fn is_merged(&self, Name { to, found, .. }: &Name) -> Result<bool> {
        if self.is_within || !found.is_dir() {
            return Ok(false);
        }
        match self.to.symlink_metadata(to) {
            Err(error) if error.is_not_found() => Ok(false),
            there => Ok(there?.is_dir()),
        }
    }

    /// True if the name exists and the copy replaces it.
    fn is_replaced(&self, Name { from, to, found }: &Name) -> Result<bool> {
        let there = match self.to.symlink_metadata(to) {
            Err(error) if error.is_not_found() => return Ok(false),
            there => there?,
        };
        let is_same = (there.home.subvolume, there.home.ino) == (found.home.subvolume, found.home.ino);
        if self.is_within && is_same {
            let (from, to) = (from.display(), to.display());
            return Err(Failure::refused(format!("{from} and {to} are the same file")).into());
        }
        if !self.force || there.is_dir() || found.is_dir() {
            return Err(Failure::refused(format!("{}: exists already", to.display())).into());
        }
        Ok(true)
    }

    fn contents(&mut self, Name { from, found, .. }: &Name, to: &Path) -> Result<()> {
        if found.size == 0 {
            return Ok(());
        }
        let source = File::open(self.from, from)?;
        let target = FileOptions::new().read(true).write(true).open(self.to, to)?;
        if self.is_within && self.reflink != Reflink::Never {
            match target.reflink(&source, 0, 0, 0) {
                Ok(()) => {
                    let shared = data_bytes(&source, found.size).map_err(|error| error.about(from))?;
                    self.counts.shared = self.counts.shared.saturating_add(shared);
                    self.progress.add_bytes(found.size);
                    return Ok(());
                }
                Err(error)
                    if self.reflink == Reflink::Auto && [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&error.errno()) => {
                }
                Err(error) => return Err(error.at(to).into()),
            }
        }
        // Holes are kept if the format reports them.
        copy_data(&source, found.size, &mut vec![0; VolumeFile::PIECE_BYTES], |at, part| -> Result<()> {
            target.write_at(part, at).map_err(|error| error.at(to))?;
            let bytes = u64::try_from(part.len())?;
            self.progress.add_bytes(bytes);
            self.counts.copied = self.counts.copied.saturating_add(bytes);
            Ok(())
        })?;
        Ok(target.set_len(found.size).map_err(|error| error.at(to))?)
    }

    /// Writing clears set-user bits and changes times, so these are set last.
    fn attributes(&mut self, Name { from, found, .. }: &Name, to: &Path) -> Result<()> {
        let lost_bits = self.lost_bits(found);
        let mut is_less = found.permissions & lost_bits != 0;
        for name in self.from.list_xattrs(from)? {
            if lost_bits == SET_ID && name.as_bytes() == vfs::privileges::CAPABILITY_NAME {
                is_less = true;
                continue;
            }
            let is_privileged = name.as_bytes().starts_with(b"trusted.") || name.as_bytes().starts_with(b"security.");
            if self.is_user && is_privileged {
                self.counts.unkept = self.counts.unkept.saturating_add(1);
                continue;
            }
            let Some(value) = self.from.get_xattr(from, name.as_bytes())? else { continue };
            let set = self.to.set_xattr(to, name.as_bytes(), value, XattrMode::Either);
            self.keep(set)?;
        }
        if is_less {
            self.count_loss(found);
        }
        let permissions = (found.kind != NodeKind::Symlink).then_some(found.permissions & !lost_bits);
        self.to.set_attributes(to, &SetAttr { permissions, ..SetAttr::from(times(found)) })?;
        if found.is_dir() { Ok(()) } else { self.set_flags(to, found.flags) }
    }

    /// Counts attributes that the destination does not accept.
    fn keep(&mut self, set: vfs::Result<()>) -> Result<()> {
        let lacks = |error: &vfs::Error| {
            let errors = [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::EPERM, Errno::ERANGE];
            !self.is_within && errors.contains(&error.errno())
        };
        match set {
            Err(error) if lacks(&error) => self.counts.unkept = self.counts.unkept.saturating_add(1),
            set => set?,
        }
        Ok(())
    }

    /// Sets flags of a file or directory, where there are any.
    fn set_flags(&mut self, path: &Path, flags: NodeFlags) -> Result<()> {
        let flags = if self.is_within { flags } else { flags & PORTABLE_FLAGS };
        let found = self.to.symlink_metadata(path)?;
        let own = if self.is_within { found.flags } else { found.flags & PORTABLE_FLAGS };
        if flags == own || !(found.is_file() || found.is_dir()) {
            return Ok(());
        }
        // NOCOW and COMPRESS exclude each other: the old flag is cleared before the new one is set.
        if (flags ^ found.flags).contains(NodeFlags::NOCOW) {
            let set = self.to.set_flags(path, found.flags.difference(STORAGE_FLAGS));
            self.keep(set)?;
        }
        let set = self.to.set_flags(path, flags);
        self.keep(set)
    }
}

fn times(found: &Metadata) -> Times {
    Times { atime: Some(found.atime), mtime: Some(found.mtime), ..Times::default() }
}
