//! Applies the options of `mkfs` that say something of a path of the contents: `--subvol` and `--inode-flags`, with the
//! meanings that `mkfs.btrfs` 6.19 gives them. `btrfs::mkfs` makes the directories before it copies, and completes them
//! after.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use spinney::btrfs::Volume;
use spinney::btrfs::disk::flags::InodeFlags;
use spinney::transfer::{Source, copy_data};
use spinney::vfs::{Times, Volume as Files};

use crate::commands::failure::Failure;

/// Bytes of contents that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A directory that becomes a subvolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subvolume {
    path: PathBuf,
    is_read_only: bool,
    is_default: bool,
}

/// A file or directory with flags of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flagged {
    path: PathBuf,
    flags: InodeFlags,
}

/// `[rw|ro|default|default-ro:]PATH`. A `./` before the path keeps a colon in it.
pub(super) fn parse_subvolume(text: &OsStr) -> Result<Subvolume, String> {
    let (kind, path) = match split(text) {
        Some((kind @ (b"rw" | b"ro" | b"default" | b"default-ro"), path)) => (kind, path),
        Some((kind, _)) if !kind.contains(&b'/') => {
            let kind = String::from_utf8_lossy(kind);
            return Err(format!("`{kind}` is no kind of subvolume; there are rw, ro, default and default-ro"));
        }
        _ => (&b"rw"[..], text.as_bytes()),
    };
    let path = within(path)?;
    Ok(Subvolume { path, is_read_only: kind.ends_with(b"ro"), is_default: kind.starts_with(b"default") })
}

/// `FLAG,..:PATH`.
pub(super) fn parse_flagged(text: &OsStr) -> Result<Flagged, String> {
    let (names, path) = split(text).ok_or("expected FLAGS:PATH, for instance nodatacow:var/lib/images")?;
    let mut flags = InodeFlags::empty();
    for name in names.split(|byte| *byte == b',') {
        flags |= match name {
            b"nodatacow" => InodeFlags::NODATACOW | InodeFlags::NODATASUM,
            b"nodatasum" => InodeFlags::NODATASUM,
            name => {
                let name = String::from_utf8_lossy(name);
                return Err(format!("`{name}` is no flag; there are nodatacow and nodatasum"));
            }
        };
    }
    Ok(Flagged { path: within(path)?, flags })
}

fn split(text: &OsStr) -> Option<(&[u8], &[u8])> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    Some((bytes.get(..colon)?, bytes.get(colon + 1..)?))
}

/// A path below the root of the contents, with plain names only.
fn within(path: &[u8]) -> Result<PathBuf, String> {
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir | Component::RootDir);
    if !path.components().all(|part| is_plain(&part)) {
        return Err(format!("`{}`: a path of the contents without `..` is expected", path.display()));
    }
    let plain: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    match plain.as_os_str().is_empty() {
        true => Err("the path is missing".to_owned()),
        false => Ok(plain),
    }
}

/// The options of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct PathOptions {
    subvolumes: Vec<Subvolume>,
    flagged: Vec<Flagged>,
}

impl PathOptions {
    /// Sorts the options: a directory comes before what is in it.
    ///
    /// # Errors
    /// `Usage` for a path that is named twice, and for several default subvolumes.
    pub(super) fn new(subvolumes: &[Subvolume], flagged: &[Flagged]) -> Result<Self> {
        let (mut subvolumes, mut flagged) = (subvolumes.to_vec(), flagged.to_vec());
        subvolumes.sort_by(|a, b| a.path.cmp(&b.path));
        flagged.sort_by(|a, b| a.path.cmp(&b.path));
        let twice = subvolumes.array_windows().find(|[a, b]| a.path == b.path).map(|[a, _]| &a.path);
        if let Some(path) = twice {
            return Err(Failure::usage(format!("--subvol: `{}` is given twice", path.display())).into());
        }
        if subvolumes.iter().filter(|one| one.is_default).count() > 1 {
            return Err(Failure::usage("--subvol: more than one default subvolume").into());
        }
        Ok(Self { subvolumes, flagged })
    }

    /// Refuses what the contents do not have.
    ///
    /// # Errors
    /// `Usage` with the option and the path.
    pub(super) fn check<S: Source>(&self, source: &S) -> Result<()> {
        for Subvolume { path, .. } in &self.subvolumes {
            let is_dir = source.open_dir(path).is_ok();
            if !is_dir {
                let text = format!("--subvol: `{}` is no directory of the contents", path.display());
                return Err(Failure::usage(text).into());
            }
        }
        for Flagged { path, .. } in &self.flagged {
            let found = kind_of(source, path);
            if found.is_none_or(|is_plain| !is_plain) {
                let text = format!("--inode-flags: `{}` is no file or directory of the contents", path.display());
                return Err(Failure::usage(text).into());
            }
        }
        Ok(())
    }

    /// Makes the subvolumes and the directories with flags, which the copy then fills.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) fn begin<S: Source>(&self, volume: &Volume, source: &S) -> Result<()> {
        for Subvolume { path, .. } in &self.subvolumes {
            if let Some(parent) = path.parent() {
                volume.create_dir_all(Path::new("/").join(parent))?;
            }
            volume.create_subvolume(Path::new("/").join(path))?;
        }
        for Flagged { path, flags } in &self.flagged {
            if source.open_dir(path).is_ok() {
                let path = Path::new("/").join(path);
                volume.create_dir_all(&path)?;
                volume.set_data_flags(&path, *flags)?;
            }
        }
        Ok(())
    }

    /// Gives files their flags.
    ///
    /// # Errors
    /// Those of the volume and of reading the contents again.
    pub(super) fn write_flagged<S: Source>(&self, volume: &Volume, source: &S) -> Result<()> {
        for Flagged { path, flags } in &self.flagged {
            if source.open_dir(path).is_err() {
                self::write_again(volume, source, path, *flags)?;
            }
        }
        Ok(())
    }

    /// Gives subvolumes their mode, and chooses the default.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) fn finish(&self, volume: &Volume) -> Result<()> {
        for Subvolume { path, is_read_only, is_default } in &self.subvolumes {
            let path = Path::new("/").join(path);
            if *is_default {
                volume.set_default_subvolume(&path)?;
            }
            if *is_read_only {
                volume.by_paths().sync()?;
                volume.set_subvolume_read_only(&path, true)?;
            }
        }
        Ok(())
    }
}

/// Whether the node at `path` is a file or directory; `None` if it is not there.
fn kind_of<S: Source>(source: &S, path: &Path) -> Option<bool> {
    let dir = source.open_dir(path.parent().unwrap_or(Path::new(""))).ok()?;
    let name = spinney::transfer::Name { name: path.file_name()?.to_owned(), kind: None };
    let found = source.stat(&dir, &name).ok()?;
    Some(found.is_dir() || found.is_file())
}

/// Empties a file, sets its flags, which a file with data does not take, and copies its data again.
fn write_again<S: Source>(volume: &Volume, source: &S, path: &Path, flags: InodeFlags) -> Result<()> {
    let target = Path::new("/").join(path);
    let files: &Files = volume.by_paths();
    let made = files.symlink_metadata(&target)?;
    let file = spinney::OpenOptions::new().write(true).truncate(true).open(files, &target)?;
    volume.set_data_flags(&target, flags)?;
    let dir = source.open_dir(path.parent().unwrap_or(Path::new("")))?;
    let name = spinney::transfer::Name { name: path.file_name().unwrap_or_default().to_owned(), kind: None };
    let found = source.look_at_one(&dir, &name)?;
    let mut buffer = vec![0; PIECE_BYTES];
    copy_data(&found.contents, made.size, &mut buffer, |at, piece| -> Result<(), anyhow::Error> {
        Ok(file.write_at(piece, at)?)
    })?;
    file.set_len(made.size)?;
    drop(file);
    let times = Times { atime: Some(made.atime), mtime: Some(made.mtime), ctime: Some(made.ctime), btime: None };
    Ok(files.set_times(&target, &times)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subvolume(text: &str) -> Result<(String, bool, bool), String> {
        let Subvolume { path, is_read_only, is_default } = parse_subvolume(OsStr::new(text))?;
        Ok((path.display().to_string(), is_read_only, is_default))
    }

    #[test]
    fn subvolumes_have_kinds() {
        assert_eq!(subvolume("home"), Ok(("home".into(), false, false)));
        assert_eq!(subvolume("ro:/usr/"), Ok(("usr".into(), true, false)));
        assert_eq!(subvolume("default-ro:a/b"), Ok(("a/b".into(), true, true)));
        assert_eq!(subvolume("./ro:x"), Ok(("ro:x".into(), false, false)));
        for wrong in ["", "rw:", "new:x", "a/../b", "/"] {
            assert!(subvolume(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_are_known_by_name() {
        let flagged = parse_flagged(OsStr::new("nodatasum:var/log")).unwrap();
        assert_eq!((flagged.path.to_str(), flagged.flags), (Some("var/log"), InodeFlags::NODATASUM));
        let both = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(parse_flagged(OsStr::new("nodatacow,nodatasum:x")).unwrap().flags, both);
        for wrong in ["x", "nodata:x", "nodatacow:", "nodatacow,:x"] {
            assert!(parse_flagged(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
