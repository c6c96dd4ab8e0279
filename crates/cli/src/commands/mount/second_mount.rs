//! Mounts a mounted image once more: the same server, attached at another directory.
//!
//! Only root may do that, and only for a mount made by root: any other user chose the image's name in the table of
//! mounts. Caller: the front part.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use spinney::blockdev::{Identity, Locator};
use spinney::transfer::path_of;

use super::{Mount, Settings};
use crate::commands::failure::{Failure, Status, one_line};
use crate::commands::format::{self, Face};
use spinney::mounts::{self as table, Mount as Row};

/// Flags of each mount by the option that sets them.
const FLAGS: &[(&str, MountFlags)] = &[
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("nodiratime", MountFlags::NODIRATIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// The command line of the server of an existing mount.
struct First {
    options: Vec<String>,
    dir: PathBuf,
}

/// Attaches an existing mount at a further directory. Returns false if the image needs a server of its own, or if it
/// may be locked, which opening it will tell.
pub(super) fn mount(mount: &Mount, settings: &Settings) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    // A volume on several devices has one mount.
    let Ok([part]) = <[Locator; 1]>::try_from(Locator::parse_list(&mount.image)?) else { return Ok(false) };
    let Some((first, row)) = find(&part) else {
        return Ok(false);
    };
    let has = Settings::parse(&first.options)?;
    if has.request.read_only && settings.request.read_only {
        // Several servers may read an image.
        return Ok(false);
    }
    let refused = |text: &str| {
        let (image, dir) = (mount.image.display(), row.dir.display());
        Failure::new(Status::Busy, format!("{image}: mounted at {dir}; {text}"))
    };
    if table::find(&mount.dir)?.is_some_and(|there| there.is_of_the_same(&row)) {
        let text = format!("and at {} already", mount.dir.display());
        return Err(refused(&text).into());
    }
    if has.request.read_only {
        let text = "for reading only: mount it with `ro` here, too, or unmount it there first";
        return Err(refused(text).into());
    }
    if mount.foreground {
        return Err(refused("its server runs there: leave --foreground out").into());
    }
    let format = format::recognise(&part).ok().flatten().and_then(spinney::format_named);
    let Some(format) = format else { return Ok(false) };
    let face = format::face(format);
    if let Some(option) = has.contradiction(&mount.options, face.chooses)? {
        let text = format!("its server cannot have `{option}` for a further mount alone");
        return Err(refused(&text).into());
    }
    let place = (face.place)(&row.dir, &has.request, &settings.request).map_err(|error| refused(&one_line(&error)))?;
    let found = open(face, &row.dir, &place, settings)?;
    attach(&found, &mount.dir, settings)?;
    Ok(true)
}

/// The server of an image, and its mount.
fn find(image: &Locator) -> Option<(First, Row)> {
    let wanted = fs::metadata(image.path()?).ok()?;
    let is_wanted = |other: &Path| Locator::parse(other).is_ok_and(|other| other.is_same(image));
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| First::of(&entry.path(), is_wanted)).find_map(|first| {
        let row = table::find(&first.dir).ok()??;
        let is_root = row.user == Some(0) && row.root == Path::new("/");
        let is_same = Identity::of(&fs::metadata(row.image()).ok()?).is_same(&Identity::of(&wanted));
        // By now another file may have the image's name.
        let is_it = row.is_ours() && is_root && is_same && table::serves(&row.dir, &wanted) != Some(false);
        is_it.then_some((first, row))
    })
}

impl First {
    /// Reads the command line of a process of root, as [`Mount::as_role`] writes it.
    fn of(process: &Path, is_wanted: impl Fn(&Path) -> bool) -> Option<Self> {
        if fs::metadata(process).ok()?.uid() != 0 {
            return None;
        }
        let line = fs::read(process.join("cmdline")).ok()?;
        let mut words = line.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let start: [&[u8]; 4] = [b"spinney", b"mount", b"--role", b"server"];
        if !start.iter().all(|word| words.next() == Some(word)) {
            return None;
        }
        let mut options = Vec::new();
        loop {
            match words.next()? {
                b"-o" => options.push(String::from_utf8(words.next()?.to_vec()).ok()?),
                b"--log" => drop(words.next()?),
                b"--" => break,
                _ => {}
            }
        }
        let path = |word: &[u8]| PathBuf::from(OsStr::from_bytes(word));
        let (image, dir) = (path(words.next()?), path(words.next()?));
        is_wanted(&image).then_some(Self { options, dir })
    }
}

/// Opens the directory to attach. Nothing on the way leads out of the mount.
fn open(face: &Face, root: &Path, place: &Path, settings: &Settings) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let shown = || root.display().to_string();
    let root = rustix::fs::open(root, flags, Mode::empty()).with_context(shown)?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let walk = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        rustix::fs::openat2(&root, path, flags, Mode::empty(), beneath)
    };
    let found = walk(place)
        .map_err(|error| Failure::refused(format!("/{}: {}", place.display(), std::io::Error::from(error))))?;
    let above = place.parent().map(walk).transpose()?;
    (face.check_place)(&path_of(&found), above.as_ref().map(path_of).as_deref(), &settings.request)?;
    Ok(found)
}

/// Attaches a directory at `dir`, with the flags of this mount alone.
fn attach(found: &OwnedFd, dir: &Path, settings: &Settings) -> Result<()> {
    let shown = || dir.display().to_string();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(found.as_fd(), "", flags).with_context(shown)?;
    rustix::mount::move_mount(&tree, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).with_context(shown)?;
    drop(tree);
    let mut wanted = MountFlags::BIND;
    wanted.set(MountFlags::RDONLY, settings.request.read_only);
    for (name, flag) in FLAGS {
        wanted.set(*flag, settings.for_the_kernel.iter().any(|told| told == name));
    }
    if let Err(error) = rustix::mount::mount_remount(dir, wanted, c"") {
        // Without the requested flags the mount must not stay.
        spinney::fuse::unmount(dir, true)?;
        return Err(error).with_context(shown);
    }
    Ok(())
}
