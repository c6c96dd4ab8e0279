//! Compares a received or restored copy with its source: two directories with all their contents. Called by `image` and
//! `restore` to verify a copy.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use checking::Watch;
use vfs::file_system::NodeKind;
use vfs::{File, Metadata, Volume};

use crate::error::{Error, Result};

/// Bytes of a file that are compared at once.
const CHUNK_BYTES: usize = 1 << 20;
/// The number that a directory has in place of a subvolume inside of a snapshot. It is not sent.
const EMPTY_SUBVOLUME_INO: u64 = 2;

/// A directory of a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dir<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) path: &'a Path,
}

impl Dir<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.path.to_owned() } else { self.path.join(path) }
    }

    fn names(&self, path: &Path) -> Result<BTreeMap<OsString, Metadata>> {
        let mut names = BTreeMap::new();
        let dir = self.at(path);
        for entry in self.volume.read_dir(&dir)? {
            let name = entry?.file_name().to_owned();
            let found = self.volume.symlink_metadata(dir.join(&name))?;
            if found.home.ino != EMPTY_SUBVOLUME_INO {
                names.insert(name, found);
            }
        }
        Ok(names)
    }
}

/// Walks and reads both directories.
///
/// # Errors
/// [`Error::Differs`] for the first difference that a backup has to keep; damage, I/O; [`Error::Cancelled`].
pub(crate) fn compare(source: Dir<'_>, copy: Dir<'_>, watch: &dyn Watch) -> Result<()> {
    let differs = |path: PathBuf, what: String| Error::Differs { copy: copy.path.to_owned(), path, what };
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        if watch.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let found = [source.volume.metadata(source.at(&dir))?, copy.volume.metadata(copy.at(&dir))?];
        if let Some(what) = node(source, copy, &dir, &found, watch)? {
            return Err(differs(dir, what));
        }
        let (names, mut others) = (source.names(&dir)?, copy.names(&dir)?);
        for (name, found) in names {
            let path = dir.join(&name);
            let Some(other) = others.remove(&name) else {
                return Err(differs(path, "is missing".to_owned()));
            };
            if found.is_dir() && other.is_dir() {
                dirs.push(path);
            } else if let Some(what) = node(source, copy, &path, &[found, other], watch)? {
                return Err(differs(path, what));
            }
            watch.add_inodes(1);
        }
        if let Some((name, _)) = others.pop_first() {
            return Err(differs(dir.join(name), "is not in the source".to_owned()));
        }
    }
    Ok(())
}

fn node(
    source: Dir<'_>,
    copy: Dir<'_>,
    path: &Path,
    found: &[Metadata; 2],
    watch: &dyn Watch,
) -> Result<Option<String>> {
    if let Some(what) = metadata(found) {
        return Ok(Some(what));
    }
    let [first, _] = found;
    let (from, to) = (source.at(path), copy.at(path));
    if xattrs(source.volume, &from)? != xattrs(copy.volume, &to)? {
        return Ok(Some("its extended attributes differ".to_owned()));
    }
    match first.kind {
        NodeKind::Symlink if source.volume.read_link(&from)? != copy.volume.read_link(&to)? => {
            Ok(Some("it leads elsewhere".to_owned()))
        }
        NodeKind::File => contents((source.volume, &from), (copy.volume, &to), watch),
        _ => Ok(None),
    }
}

fn metadata([source, copy]: &[Metadata; 2]) -> Option<String> {
    let differs = |what: &str, source: u64, copy: u64| {
        (source != copy).then(|| format!("its {what}: expected {source}, found {copy}"))
    };
    // Directories have sizes of their own, and one name.
    let counted = |found: &Metadata, number: u64| if found.is_dir() { 0 } else { number };
    differs("type and mode", source.mode().into(), copy.mode().into())
        .or_else(|| differs("owner", source.uid.into(), copy.uid.into()))
        .or_else(|| differs("group", source.gid.into(), copy.gid.into()))
        .or_else(|| differs("device", source.rdev.into(), copy.rdev.into()))
        .or_else(|| differs("size", counted(source, source.size), counted(copy, copy.size)))
        .or_else(|| differs("number of names", counted(source, source.nlink.into()), counted(copy, copy.nlink.into())))
        .or_else(|| (source.mtime != copy.mtime).then(|| "its time of change differs".to_owned()))
}

fn xattrs(volume: &Volume, path: &Path) -> Result<BTreeMap<OsString, Option<Vec<u8>>>> {
    let mut found = BTreeMap::new();
    for name in volume.list_xattrs(path)? {
        let value = volume.get_xattr(path, portable::OsStrExt::as_bytes(name.as_os_str()))?;
        found.insert(name, value);
    }
    Ok(found)
}

fn contents(source: (&Volume, &Path), copy: (&Volume, &Path), watch: &dyn Watch) -> Result<Option<String>> {
    let (source, copy) = (File::open(source.0, source.1)?, File::open(copy.0, copy.1)?);
    let (mut from, mut to) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0u64;
    loop {
        let (len, copied) = (read(&source, &mut from, at)?, read(&copy, &mut to, at)?);
        if len != copied || from.get(..len) != to.get(..len) {
            let same = from.iter().zip(&to).take(len.min(copied)).take_while(|(from, to)| from == to).count();
            let at = at.saturating_add(u64::try_from(same).unwrap_or(0));
            return Ok(Some(format!("its contents differ from byte {at}")));
        }
        if watch.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let read = u64::try_from(len).unwrap_or(0);
        watch.add_bytes(read);
        at = at.saturating_add(read);
        if len < CHUNK_BYTES {
            return Ok(None);
        }
    }
}

/// Fills the buffer as far as the file goes.
fn read(file: &File, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at.saturating_add(u64::try_from(len).unwrap_or(0)))? {
            0 => break,
            count => len += count,
        }
    }
    Ok(len)
}
