//! Lists and changes the subvolumes beneath a directory of a mount: implements `Place`. `argument` opens it.
//!
//! Changes are requests to the server's socket: the server checks the caller's user and groups. Listing uses the ioctls
//! of the kernel's btrfs that are open to every user: they name the subvolumes in a subvolume, and the path to each
//! below an open directory. Subvolumes below directories that the caller may not search are not listed. Users who may
//! administer the mount get the whole list from its server, by one request ([`served`]).

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rustix::io::Errno;
use spinney::Time;
use spinney::btrfs::disk::hash::name_hash;
use spinney::btrfs::disk::items::DirEntry;
use spinney::btrfs::disk::key::item_type;
use spinney::btrfs::disk::{Generation, InodeNo, TreeId};
use spinney::btrfs::{QgroupReport, SubvolumeInfo};
use spinney::vfs::SnapshotMode;

use super::super::qgroup::read_quotas;
use super::place::{Place, group_of, no_subvolume, of_host};
use super::served;
use crate::commands::failure::Failure;
use crate::commands::image::{connect_mount, control};

const SYNC: u32 = 0x9408;
const TREE_SEARCH: u32 = 0xd000_9411;
const SUBVOL_GETFLAGS: u32 = 0x8008_9419;
const GET_SUBVOL_INFO: u32 = 0x81f8_943c;
const GET_SUBVOL_ROOTREF: u32 = 0xd000_943d;
const INO_LOOKUP_USER: u32 = 0xd000_943e;

const ARGS_BYTES: usize = 4096;
/// Offset of the number of subvolumes in an answer, which is also their maximum.
const ROOTREF_COUNT: usize = 4088;
const ROOTREFS_MAX: usize = 255;
/// Most nested subvolumes; a deeper nesting is a loop.
const DEPTH_MAX: usize = 4096;

/// A directory of a mount.
pub(super) struct Mounted {
    dir: PathBuf,
    file: File,
    /// The connection to its server, made for the first change.
    served: OnceCell<spinney::vfs::Volume>,
}

impl Mounted {
    pub(super) fn open(dir: PathBuf) -> Result<Self> {
        let file = open(&dir)?;
        Ok(Self { dir, file, served: OnceCell::new() })
    }

    /// A path beneath the directory; a path that leads out of it is refused.
    fn path(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.dir.join(plain(path)?))
    }

    /// Asks the server for a change at a path beneath the directory.
    fn change(
        &self,
        path: &Path,
        change: impl FnOnce(&spinney::vfs::Volume, &Path) -> spinney::vfs::Result<()>,
    ) -> Result<()> {
        let served = match self.served.get() {
            Some(served) => served,
            None => {
                let (remote, _) = connect_mount(&self.dir)?;
                self.served.get_or_init(|| spinney::vfs::Volume::new(Arc::new(remote)))
            }
        };
        let path = plain(path)?;
        let done = change(served, &Path::new("/").join(&path));
        done.map_err(|error| refusal(&self.dir.join(&path), error))
    }

    /// Adds the subvolumes beneath one, which is open as `file` and has the path `at`.
    fn add(&self, file: &File, at: &Path, depth: usize, all: &mut Vec<SubvolumeInfo>) -> Result<()> {
        for (id, dir) in children(file).map_err(|error| told(&self.dir.join(at), error))? {
            let Some(path) = path_to(file, id, dir).map_err(|error| told(&self.dir.join(at), error))? else {
                continue;
            };
            let path = at.join(path);
            // It may have been renamed or deleted meanwhile, or the caller may not open it.
            let Ok(child) = open(&self.dir.join(&path)) else { continue };
            match info_of(&child, &path) {
                Ok(info) if info.id.0 == id => all.push(info),
                _ => continue,
            }
            if depth < DEPTH_MAX {
                self.add(&child, &path, depth + 1, all)?;
            }
        }
        Ok(())
    }
}

impl Place for Mounted {
    fn list(&self) -> Result<Vec<SubvolumeInfo>> {
        if let Ok(all) = served::list(&self.dir) {
            return Ok(all);
        }
        let mut all = Vec::new();
        self.add(&self.file, Path::new(""), 0, &mut all)?;
        all.sort_by_key(|subvolume| subvolume.id);
        Ok(all)
    }

    fn deleted(&self) -> Result<Vec<SubvolumeInfo>> {
        Err(Failure::usage("--deleted needs an image: a mount's deleted subvolumes go with their last open file")
            .into())
    }

    fn at(&self, path: &Path) -> Result<SubvolumeInfo> {
        let plain = plain(path)?;
        let full = self.dir.join(&plain);
        let file = open(&full)?;
        if let Err(error) = flags_of(&file) {
            let is_none = error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
            return Err(if is_none { no_subvolume(path) } else { told(&full, error) });
        }
        info_of(&file, &plain).map_err(|error| told(&full, error))
    }

    fn of(&self, id: TreeId) -> Result<SubvolumeInfo> {
        if let Ok(own) = self.at(Path::new(""))
            && own.id == id
        {
            return Ok(own);
        }
        let found = self.list()?.into_iter().find(|subvolume| subvolume.id == id);
        found.ok_or_else(|| refused(&self.dir, &format!("no subvolume {} beneath it that you may see", id.0)))
    }

    fn create(&self, path: &Path) -> Result<()> {
        self.change(path, |served, path| served.create_subvolume(path))
    }

    fn snapshot(&self, source: &SubvolumeInfo, dest: &Path, mode: SnapshotMode) -> Result<()> {
        let source = Path::new("/").join(&source.path);
        self.change(dest, |served, dest| served.snapshot(&source, dest, mode))
    }

    fn remove_stand_in(&self, path: &Path) -> Result<()> {
        let path = self.path(path)?;
        std::fs::remove_dir(&path).map_err(|error| of_host(&path, error))
    }

    fn delete(&self, subvolume: &SubvolumeInfo) -> Result<()> {
        let path = self.dir.join(&subvolume.path);
        if subvolume.path.is_empty() {
            return Err(refused(&path, "the subvolume of the directory itself; name it from the one that contains it"));
        }
        self.change(Path::new(&subvolume.path), |served, path| served.delete_subvolume(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let from = self.path(from)?;
        std::fs::rename(&from, self.path(to)?).map_err(|error| of_host(&from, error))
    }

    fn set_read_only(&self, subvolume: &SubvolumeInfo, read_only: bool) -> Result<()> {
        let mode = if read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        self.change(Path::new(&subvolume.path), |served, path| served.set_subvolume_mode(path, mode))
    }

    fn forget_received(&self, subvolume: &SubvolumeInfo) -> Result<()> {
        self.change(Path::new(&subvolume.path), |served, path| served.forget_received_at(path))
    }

    fn default(&self) -> Result<TreeId> {
        default_of(&self.file).map_err(|error| told(&self.dir, error))
    }

    fn set_default(&self, path: &Path) -> Result<()> {
        self.at(path)?;
        self.change(path, |served, path| served.choose_default_subvolume(path))
    }

    fn quota(&self, id: TreeId) -> Result<Option<QgroupReport>> {
        // For who may look at all of them.
        let quotas = read_quotas(&self.dir).ok().flatten();
        Ok(quotas.and_then(|quotas| group_of(quotas.groups, id)))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        control(self.file.as_fd(), SYNC, &mut []).map_err(|error| told(&self.dir, error))
    }
}

/// True if the root of a mount is that of the default subvolume, as far as the caller may know.
pub(crate) fn shows_default(root: &Path) -> bool {
    let Ok(file) = open(root) else { return false };
    let (shown, default) = (info_of(&file, Path::new("")), default_of(&file));
    shown.is_ok_and(|shown| default.is_ok_and(|default| shown.id == default))
}

/// Removes `.` and a leading `/` from a path.
fn plain(path: &Path) -> Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                return Err(Failure::usage(format!("{}: leads out of the directory", path.display())).into());
            }
            _ => {}
        }
    }
    Ok(plain)
}

fn open(path: &Path) -> Result<File> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| of_host(path, error))
}

fn refused(path: &Path, text: &str) -> anyhow::Error {
    Failure::refused(format!("{}: {text}", path.display())).into()
}

/// The message for an error of the server.
fn told(path: &Path, error: io::Error) -> anyhow::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => refused(path, "not permitted: for root and the user who mounted it"),
        Some(Errno::NOTTY) => refused(path, "its server does not do that: it is of another version"),
        _ => of_host(path, error),
    }
}

/// The message for a refusal by the server, with the remedy.
fn refusal(path: &Path, error: spinney::vfs::Error) -> anyhow::Error {
    let text = match error.errno() {
        spinney::vfs::Errno::EPERM => {
            "not permitted: only root and the owner of the subvolume may take a snapshot or change `read-only`; only \
             root and the user who mounted it may set the default subvolume"
        }
        spinney::vfs::Errno::EROFS => {
            "read-only; `spinney subvolume read-only DIR PATH off` makes a subvolume writable"
        }
        spinney::vfs::Errno::ENOTEMPTY => "contains other subvolumes; --recursive deletes them too",
        spinney::vfs::Errno::EBUSY => {
            "the default subvolume, or the root of the mount; set another default subvolume first"
        }
        spinney::vfs::Errno::EINVAL => return no_subvolume(path),
        errno if error.blame() == spinney::vfs::Blame::Caller => {
            return spinney::vfs::Error::from(errno).at(path).into();
        }
        _ => return anyhow::Error::from(error).context(path.display().to_string()),
    };
    refused(path, text)
}

/// Arguments of a control operation, and its answer.
struct Args([u8; ARGS_BYTES]);

impl Args {
    fn new() -> Self {
        Self([0; ARGS_BYTES])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        if let Some(place) = self.0.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
        self
    }

    fn number(&mut self, at: usize, number: u64) -> &mut Self {
        self.put(at, &number.to_le_bytes())
    }

    fn ask(&mut self, file: &File, command: u32) -> io::Result<()> {
        control(file.as_fd(), command, &mut self.0)
    }

    fn u64(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }

    fn text(&self, at: usize) -> OsString {
        text_at(&self.0, at)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().map_or(0, u64::from_le_bytes)
}

/// Up to the first zero.
fn text_at(bytes: &[u8], at: usize) -> OsString {
    let text = bytes.get(at..).unwrap_or_default().split(|byte| *byte == 0).next();
    OsString::from_vec(text.unwrap_or_default().to_vec())
}

fn flags_of(file: &File) -> io::Result<u64> {
    let mut flags = [0; 8];
    control(file.as_fd(), SUBVOL_GETFLAGS, &mut flags)?;
    Ok(u64::from_le_bytes(flags))
}

/// The subvolumes that are named in that of an open directory, each with the directory that has its name.
fn children(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    let mut next = 0;
    loop {
        let mut args = Args::new();
        args.number(0, next);
        let asked = args.ask(file, GET_SUBVOL_ROOTREF);
        let has_more = matches!(&asked, Err(error) if error.raw_os_error() == Some(Errno::OVERFLOW.raw_os_error()));
        if !has_more {
            asked?;
        }
        let count = args.0.get(ROOTREF_COUNT).copied().map_or(0, usize::from).min(ROOTREFS_MAX);
        all.extend((0..count).map(|index| (args.u64(8 + index * 16), args.u64(16 + index * 16))));
        if !has_more || args.u64(0) <= next {
            return Ok(all);
        }
        next = args.u64(0);
    }
}

/// The path of a subvolume below an open directory; `None` for one that is not below it, or that the caller may not
/// know of.
fn path_to(file: &File, id: u64, dir: u64) -> io::Result<Option<PathBuf>> {
    let mut args = Args::new();
    args.number(0, dir).number(8, id);
    match args.ask(file, INO_LOOKUP_USER) {
        Ok(()) => Ok(Some(Path::new(&args.text(272)).join(args.text(16)))),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::NOENT) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Facts about the subvolume that contains an open directory.
fn info_of(file: &File, path: &Path) -> io::Result<SubvolumeInfo> {
    let mut bytes = [0; 504];
    control(file.as_fd(), GET_SUBVOL_INFO, &mut bytes)?;
    let number = |at| u64_at(&bytes, at);
    let uuid = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    let time = |at: usize| {
        let nsec = u32::try_from(number(at + 8) & u64::from(u32::MAX)).unwrap_or(0);
        Time { sec: number(at).cast_signed(), nsec }
    };
    let some = |number: u64| (number != 0).then_some(number);
    Ok(SubvolumeInfo {
        id: TreeId(number(0)),
        parent: some(number(264)).map(TreeId),
        dir: some(number(272)).map(InodeNo),
        path: path.as_os_str().to_owned(),
        generation: Generation(number(280)),
        read_only: number(288) & 1 != 0,
        uuid: uuid(296),
        parent_uuid: uuid(312),
        received_uuid: uuid(328),
        changed: Generation(number(344)),
        created: Generation(number(352)),
        sent: Generation(number(360)),
        received: Generation(number(368)),
        otime: time(392),
        stime: time(408),
        rtime: time(424),
    })
}

/// Looks for the default subvolume, for who may search trees.
fn default_of(file: &File) -> io::Result<TreeId> {
    const NAME: &[u8] = b"default";
    const FOUND: usize = 104 + 32;
    let kind = u32::from(item_type::DIR_ITEM);
    let mut args = Args::new();
    args.number(0, TreeId::ROOT.0);
    for at in [8, 16] {
        args.number(at, TreeId::ROOT_DIR.0);
    }
    for at in [24, 32] {
        args.number(at, name_hash(NAME));
    }
    args.number(48, u64::MAX);
    for at in [56, 60] {
        args.put(at, &kind.to_le_bytes());
    }
    args.put(64, &1_u32.to_le_bytes());
    args.ask(file, TREE_SEARCH)?;
    let len = usize::try_from(u64_at(&args.0, FOUND - 8) >> 32).unwrap_or(0);
    let item = args.0.get(FOUND..).and_then(|rest| rest.get(..len)).unwrap_or_default();
    let entry = DirEntry::find(item, NAME).ok().flatten();
    Ok(entry.map_or(TreeId::FS, |(entry, _)| TreeId(entry.location().objectid)))
}
