//! Parses an argument to the path that it names: on the host, in an image, or below a mount.
//!
//! `IMAGE:/PATH` is a path in an image, as is `IMAGE?offset=N:/PATH`; a path below a mount of this program is a path in
//! the mounted image. If a host file with the whole name exists, that is used; an argument that begins with `./` is
//! always a host path. Of several colons the first one after the name of an existing file separates, so that host paths
//! and names in an image may have colons.
//!
//! This module opens no image. Callers: `short_form`, which rewrites the arguments of all commands to IMAGE PATH, and
//! `cp`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use spinney::blockdev::Locator;

use crate::commands::format;
use spinney::mounts::{self, Mount as Row};

/// The path that an argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path on the host.
    Host(PathBuf),
    /// A path in an image, from its root.
    Image { image: PathBuf, path: PathBuf },
    /// A path below a mount of this program, from its mount point.
    Mount { dir: PathBuf, path: PathBuf },
}

impl Place {
    /// Parses an argument.
    pub(crate) fn parse(word: &OsStr) -> Self {
        let path = Path::new(word);
        let exists = word.as_bytes().starts_with(b"./") || std::fs::symlink_metadata(path).is_ok();
        let image = if exists { None } else { in_image(word) };
        // A name that does not exist may be new below a mount, or else in an image that is missing.
        let mount = || below_mount(path).map(|(dir, path)| Self::Mount { dir, path });
        let missing = || if exists { None } else { in_missing(word) };
        image.or_else(mount).or_else(missing).unwrap_or_else(|| Self::Host(path.to_owned()))
    }

    /// Turns a path in an image that the caller has mounted into the same path in the mount.
    pub(crate) fn through_mount(self) -> Self {
        match self {
            Self::Image { image, path } => match mounted_at(&image) {
                Some(dir) => Self::Mount { dir, path },
                None => Self::Image { image, path },
            },
            place => place,
        }
    }

    /// The image or mount point, which commands take before paths, and the path in it.
    pub(crate) fn within(&self) -> Option<(&Path, &Path)> {
        match self {
            Self::Host(_) => None,
            Self::Image { image, path } => Some((image, path)),
            Self::Mount { dir, path } => Some((dir, path)),
        }
    }

    /// True if both are in the same image or mount.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(_), Self::Host(_)) => true,
            (Self::Image { image: one, .. }, Self::Image { image: other, .. }) => is_same(one, other),
            (Self::Mount { dir: one, .. }, Self::Mount { dir: other, .. }) => one == other,
            _ => false,
        }
    }
}

/// The parts before and after each colon of an argument.
fn parts(word: &OsStr) -> impl Iterator<Item = (&Path, &OsStr)> {
    let bytes = word.as_bytes();
    // A colon of a scheme, also of a further device of a list, does not separate, unless a file with that name exists.
    let has_file =
        |at: usize| std::fs::symlink_metadata(OsStr::from_bytes(bytes.get(..at).unwrap_or_default())).is_ok();
    let is_of_scheme = |at: usize| {
        let before = bytes.get(..at).unwrap_or_default();
        let start = before.iter().rposition(|byte| *byte == b',').map_or(0, |comma| comma + 1);
        at < start + Locator::scheme_len(OsStr::from_bytes(bytes.get(start..).unwrap_or_default()))
    };
    let is_separator = move |at: &usize| bytes.get(*at) == Some(&b':') && (!is_of_scheme(*at) || has_file(*at));
    let colons = (1..bytes.len()).filter(is_separator);
    colons.filter_map(|at| {
        let (image, rest) = bytes.split_at_checked(at)?;
        Some((Path::new(OsStr::from_bytes(image)), OsStr::from_bytes(rest.get(1..)?)))
    })
}

/// `IMAGE:PATH`, if the image exists.
fn in_image(word: &OsStr) -> Option<Place> {
    parts(word).find_map(|(image, rest)| {
        let devices = Locator::parse_list(image).ok()?;
        let in_image = || Place::Image { image: image.to_owned(), path: from_root(rest) };
        let Some(host) = devices.iter().map(Locator::path).collect::<Option<Vec<_>>>() else {
            // Other backends report a missing device when it is opened.
            return rest.as_bytes().starts_with(b"/").then(in_image);
        };
        let is_dir = |path: &&Path| Some(std::fs::metadata(path).ok()?.is_dir());
        if !host.iter().map(is_dir).collect::<Option<Vec<_>>>()?.contains(&true) {
            return Some(in_image());
        }
        let (dir, above) = below_mount(image)?;
        Some(Place::Mount { dir, path: join(&above, rest) })
    })
}

/// `NAME:/PATH`, read as a path in a missing image, so that the error of opening it names the image.
fn in_missing(word: &OsStr) -> Option<Place> {
    let (image, rest) = parts(word).find(|(_, rest)| rest.as_bytes().starts_with(b"/"))?;
    Some(Place::Image { image: image.to_owned(), path: from_root(rest) })
}

fn from_root(path: &OsStr) -> PathBuf {
    join(Path::new("/"), path)
}

/// Joins paths and keeps a final `/` or `/.`, which selects the contents of a directory.
fn join(dir: &Path, path: &OsStr) -> PathBuf {
    let rest = path.as_bytes();
    let plain = rest.iter().position(|byte| *byte != b'/').and_then(|start| rest.get(start..)).unwrap_or_default();
    let mut joined = dir.as_os_str().as_bytes().to_vec();
    if !joined.ends_with(b"/") && !plain.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(plain);
    PathBuf::from(OsStr::from_bytes(&joined))
}

/// Resolves the symbolic links of a path, except in its last component. Missing components stay as they are.
fn real(path: &Path) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(contents) = bytes.strip_suffix(b"/.").filter(|rest| !rest.is_empty()) {
        return Path::new(OsStr::from_bytes(contents)).canonicalize().ok();
    }
    let Some(name) = path.file_name() else { return path.canonicalize().ok() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().ok().or_else(|| real(parent))?;
    Some(parent.join(name))
}

/// The mount of this program that contains a path.
fn mount_of(path: &Path) -> Option<Row> {
    let there =
        path.ancestors().find_map(|above| std::fs::symlink_metadata(above).ok().filter(std::fs::Metadata::is_dir));
    let row = mounts::of(&there?).ok()??;
    // Of several mount points of one image, the one that is a prefix of the path.
    mounts::alike(&row)
        .ok()?
        .into_iter()
        .filter(|row| path.starts_with(&row.dir))
        .max_by_key(|row| row.dir.as_os_str().len())
}

/// The mount point above a path, and the path from there.
fn below_mount(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let found = real(path)?;
    let dir = mount_of(&found)?.dir;
    let mut inner = Path::new("/").join(found.strip_prefix(&dir).ok()?).into_os_string();
    // `strip_prefix` drops a final `/.`.
    if path.as_os_str().as_bytes().ends_with(b"/.") {
        inner.push("/.");
    }
    Some((dir, inner.into()))
}

/// True for two names of one image, or of one part of it.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((Locator::parse_list(one), Locator::parse_list(other)), (Ok(a), Ok(b))
        if a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.is_same(b)))
}

/// True for a file or device with a known format, and for a directory of a mount.
pub(crate) fn is_image(path: &Path) -> bool {
    if let Ok(found) = std::fs::metadata(path)
        && found.is_dir()
    {
        return mounts::of(&found).is_ok_and(|row| row.is_some());
    }
    let Ok(devices) = Locator::parse_list(path) else { return false };
    let Some(first) = devices.first() else { return false };
    let known = format::recognise(first);
    known.is_ok_and(|name| name.and_then(spinney::format_named).is_some())
}

/// The mount point of an image, if the caller has mounted it whole and writable, so that the mount shows all of it.
/// Mounts by other users do not count: they chose the name of the image in the mount table.
pub(crate) fn mounted_at(image: &Path) -> Option<PathBuf> {
    // The mount of a volume on several devices is named by its directory.
    let [part] = <[Locator; 1]>::try_from(Locator::parse_list(image).ok()?).ok()?;
    let found = std::fs::metadata(part.path()?).ok()?;
    if found.is_dir() {
        return None;
    }
    let real = part.path()?.canonicalize().ok()?;
    let wanted = part.at_path(real);
    let row = mounts::serving(|row| {
        // Compared by name: a `stat` of an image that lies in another user's mount may block for ever.
        let served = row.image();
        let is_whole = wanted.path() == Some(&served);
        let served = if is_whole { Ok(Locator::file(served)) } else { Locator::parse(&served) };
        served.is_ok_and(|served| served == wanted)
    });
    let row = row.ok()??;
    let is_whole = row.root == Path::new("/") && !row.read_only && mounts::find(&row.dir).ok()? == Some(row.clone());
    // By now another file may have the image's name.
    if !is_whole || mounts::serves(&row.dir, &found) != Some(true) {
        return None;
    }
    let name = format::recognise(&wanted).ok()??;
    let face = format::face(spinney::format_named(name)?);
    (face.shows_image)(&row.dir).then_some(row.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &Path) -> Place {
        Place::parse(word.as_os_str())
    }

    fn image(image: PathBuf, path: &str) -> Place {
        Place::Image { image, path: PathBuf::from(path) }
    }

    #[test]
    fn a_colon_leads_into_an_image_unless_a_file_has_the_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a.img", "b:c.img", "whole.img:", "10:30"] {
            std::fs::write(at(name), "").unwrap();
        }
        assert_eq!(parse(&at("a.img:/x/y")), image(at("a.img"), "/x/y"));
        assert_eq!(parse(&at("a.img:x")), image(at("a.img"), "/x"));
        assert_eq!(parse(&at("a.img:")), image(at("a.img"), "/"));
        assert_eq!(parse(&at("a.img://x/.")), image(at("a.img"), "/x/."));
        assert_eq!(parse(&at("a.img:/x:y")), image(at("a.img"), "/x:y"));
        assert_eq!(parse(&at("b:c.img:/x")), image(at("b:c.img"), "/x"));
        assert_eq!(parse(&at("a.img?offset=512:/x")), image(at("a.img?offset=512"), "/x"));
        assert_eq!(parse(&at("whole.img:")), Place::Host(at("whole.img:")));
        assert_eq!(parse(&at("10:30")), Place::Host(at("10:30")));
        // None of these is there yet: a name, and an image that is missing.
        assert_eq!(parse(&at("11:30")), Place::Host(at("11:30")));
        assert_eq!(parse(&at("none.img:/x")), image(at("none.img"), "/x"));
        for word in ["./none.img:/x", "plain", "/plain", "./a:b", ":/x"] {
            assert_eq!(parse(Path::new(word)), Place::Host(PathBuf::from(word)));
        }
    }

    #[test]
    fn the_colon_of_a_scheme_does_not_lead_into_an_image() {
        for devices in ["nbd://host/a", "nbd://host:10809/a,nbd+unix:///b?socket=s", "nbd+unix:///?socket=a,qcow2:b"] {
            let word = format!("{devices}:/x/y");
            assert_eq!(parse(Path::new(&word)), image(PathBuf::from(devices), "/x/y"), "{word}");
        }
    }
}
