//! Locators: the words that name a device, parsed once; and [`open`], which opens the device that a locator names.
//!
//! ```text
//! PATH                    a file or block device of the host
//! PATH?offset=N&size=M    M bytes of it from byte N on; either may be left out (decimal, without a unit)
//! file:PATH               the file of exactly that name, whatever it contains
//! SCHEME://..., qcow2:... a device of the backend that registered the scheme
//! ```
//!
//! The name of an existing file always means that file: a name with `?`, `:` or `,` stays reachable as long as it
//! exists, and `file:` reaches one that is to be made. A scheme is a lower-case letter, then lower-case letters,
//! digits, `+` or `-`.
//!
//! Several devices are written `A,B,C` ([`Locator::parse_list`]): a comma separates if the word before it names an
//! existing file, or begins with a scheme.
//!
//! Failure: [`Error::NotALocator`] for a malformed part, [`Error::NoBackend`] for an unregistered scheme, and the
//! errors of the backend. Callers: the front ends, for every device that a user names.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use portable::OsStrExt as _;

#[cfg(unix)]
use crate::Identity;
use crate::backends::{FileDevice, FileOptions};
use crate::{Device, Error, Result};

/// Begins the name of a file that is taken literally.
const LITERAL: &str = "file:";
/// A scheme that ends with its colon; all others end with `://`.
const QCOW2: &str = "qcow2";

/// How to open the device that a locator names. The default opens an existing device for writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Refuse every change; several readers may then share the device.
    pub read_only: bool,
    /// Make a regular file where there is none, and make it long enough for the size that the locator has.
    pub create: bool,
    /// Refuse a path whose last part is a symbolic link; for paths that an untrusted user chose.
    pub no_follow: bool,
    /// Wait without limit for a lock that another open file holds, instead of failing with [`Error::Locked`].
    pub wait: bool,
    /// Take no lock; only with `read_only`, for bytes that the holder of the lock does not change while they are read,
    /// and for a block device, whose caller may hold the lock.
    pub unlocked: bool,
}

impl Access {
    /// Reading alone.
    pub const READ: Self = Self { read_only: true, create: false, no_follow: false, wait: false, unlocked: false };
    /// Reading and writing.
    pub const WRITE: Self = Self { read_only: false, ..Self::READ };
}

/// Opens the device that a locator with the backend's scheme names.
pub type Opener = fn(&Locator, Access) -> Result<Arc<dyn Device>>;

static BACKENDS: RwLock<Vec<(&str, Opener)>> = RwLock::new(Vec::new());

/// Makes [`open`] call `opener` for every locator of this scheme (written without `://`), in the whole process. A
/// second call for the same scheme replaces the first.
pub fn register(scheme: &'static str, opener: Opener) {
    let mut backends = BACKENDS.write().unwrap_or_else(PoisonError::into_inner);
    backends.retain(|(known, _)| *known != scheme);
    backends.push((scheme, opener));
}

/// Opens the device that `locator` names, and locks it as [`FileDevice`] does.
///
/// # Errors
/// As [`FileDevice::open`]; [`Error::NoBackend`] for a scheme that is not registered.
pub fn open(locator: &Locator, access: Access) -> Result<Arc<dyn Device>> {
    let Some(scheme) = &locator.scheme else {
        let Access { read_only, create, no_follow, wait, unlocked } = access;
        let (offset, size) = (locator.offset, locator.size);
        let options = FileOptions { read_only, offset, size, create, no_follow, wait, unlocked };
        return Ok(Arc::new(FileDevice::open(&locator.target, &options)?));
    };
    let backends = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
    let found = backends.iter().find(|(known, _)| known == scheme).map(|(_, opener)| *opener);
    drop(backends);
    let missing = || Error::NoBackend { device: locator.to_string(), scheme: scheme.clone() };
    found.ok_or_else(missing)?(locator, access)
}

/// The name of a device, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locator {
    /// `None` for a file or block device of the host.
    scheme: Option<String>,
    /// The path, or all that follows the scheme.
    target: PathBuf,
    offset: u64,
    size: Option<u64>,
}

impl Locator {
    /// The whole file or block device at `path`, whatever its name contains.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { scheme: None, target: path.into(), offset: 0, size: None }
    }

    /// Parses the name of a device: `PATH`, `PATH?offset=N&size=M` (bytes, decimal, without a unit), `file:PATH` for a
    /// literal path, `SCHEME://...` or `qcow2:...`. The name of an existing file always means that file.
    ///
    /// # Errors
    /// [`Error::NotALocator`] if the text before the last `?` is an existing file and the text after it is not made of
    /// `offset=N` and `size=N`.
    pub fn parse(word: impl AsRef<OsStr>) -> Result<Self> {
        let word = word.as_ref();
        if exists(Path::new(word)) {
            return Ok(Self::file(word));
        }
        if let Some(rest) = word.as_bytes().strip_prefix(LITERAL.as_bytes()) {
            return Ok(Self::file(OsStr::from_bytes(rest)));
        }
        let (scheme, rest) = split_scheme(word.as_bytes());
        let mark = rest.iter().rposition(|byte| *byte == b'?').unwrap_or(rest.len());
        let (name, query) = rest.split_at(mark);
        let (target, part) = match Part::parse(query.get(1..)) {
            Ok(part) => (name, part),
            Err(pair) if scheme.is_none() && exists(Path::new(OsStr::from_bytes(name))) => {
                return Err(Error::NotALocator { device: word.to_string_lossy().into_owned(), pair });
            }
            Err(_) => (rest, Part::default()),
        };
        let target = PathBuf::from(OsStr::from_bytes(target));
        Ok(Self { scheme: scheme.map(str::to_owned), target, offset: part.offset, size: part.size })
    }

    /// Parses a list of devices, `A,B,C`; the head of this module says where a comma separates.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_list(word: impl AsRef<OsStr>) -> Result<Vec<Self>> {
        let word = word.as_ref();
        let mut found = Vec::new();
        let mut rest = word.as_bytes();
        while let Some(end) = first_of_list(rest) {
            let (first, others) = rest.split_at(end);
            found.push(Self::parse(OsStr::from_bytes(first))?);
            rest = others.get(1..).unwrap_or_default();
        }
        found.push(Self::parse(OsStr::from_bytes(rest))?);
        Ok(found)
    }

    /// Bytes of `word` up to the end of its scheme, or of `file:`; 0 where it begins with neither. Colons in them
    /// separate nothing else.
    #[must_use]
    pub fn scheme_len(word: &OsStr) -> usize {
        let bytes = word.as_bytes();
        if bytes.starts_with(LITERAL.as_bytes()) {
            return LITERAL.len();
        }
        bytes.len().saturating_sub(split_scheme(bytes).1.len())
    }

    /// The scheme without its colon; `None` for a file or block device of the host.
    #[must_use]
    pub fn scheme(&self) -> Option<&str> {
        self.scheme.as_deref()
    }

    /// The file or block device of the host; `None` for a device of another backend.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.scheme.is_none().then_some(&self.target)
    }

    /// All that follows the scheme, for the backend; of a file its path.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The byte at which the device begins in the named file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the device, if the locator says it.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The same device from `offset` bytes further on.
    #[must_use]
    pub fn from_byte(self, offset: u64) -> Self {
        Self { offset: self.offset.saturating_add(offset), ..self }
    }

    /// The same device with `size` bytes, unless the locator says how many.
    #[must_use]
    pub fn with_size(self, size: Option<u64>) -> Self {
        Self { size: self.size.or(size), ..self }
    }

    /// The same part of another file, for instance of the same one by its absolute path.
    #[must_use]
    pub fn at_path(self, path: PathBuf) -> Self {
        Self { scheme: None, target: path, ..self }
    }

    /// The text that names it. [`Locator::parse`] gives the same locator back, unless a file has this text as its name,
    /// or the path of a part (`?offset=N`) itself begins with a scheme.
    #[must_use]
    pub fn words(&self) -> OsString {
        let target = self.target.as_os_str().as_bytes();
        let mut words = match self.scheme.as_deref() {
            None if (self.offset, self.size) == (0, None) && is_special(target) => OsString::from(LITERAL),
            Some(QCOW2) => OsString::from("qcow2:"),
            Some(scheme) => OsString::from(format!("{scheme}://")),
            None => OsString::new(),
        };
        words.push(&self.target);
        match (self.offset, self.size) {
            (0, None) => {}
            (offset, None) => words.push(format!("?offset={offset}")),
            (offset, Some(size)) => words.push(format!("?offset={offset}&size={size}")),
        }
        words
    }

    /// Which file or block device it names now, by its numbers on the host; `None` for a device of another backend.
    ///
    /// # Errors
    /// The host's.
    #[cfg(unix)]
    pub fn identity(&self) -> std::io::Result<Option<Identity>> {
        self.path().map(|path| Ok(Identity::of(&std::fs::metadata(path)?))).transpose()
    }

    /// True if both name the same bytes: the same file or block device (also by other paths or links), with the same
    /// offset and size. False if either cannot be looked up on the host and the names differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_one_part = (self.offset, self.size) == (other.offset, other.size);
        self == other || (is_one_part && self.is_one_file(other))
    }

    #[cfg(unix)]
    fn is_one_file(&self, other: &Self) -> bool {
        matches!((self.identity(), other.identity()), (Ok(Some(one)), Ok(Some(other))) if one.is_same(&other))
    }

    #[cfg(not(unix))]
    fn is_one_file(&self, other: &Self) -> bool {
        let real = |locator: &Self| std::fs::canonicalize(locator.path()?).ok();
        real(self).is_some_and(|one| Some(one) == real(other))
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().display().fmt(f)
    }
}

/// The query of a locator, behind its question mark.
#[derive(Default)]
struct Part {
    offset: u64,
    size: Option<u64>,
}

impl Part {
    /// Parses `offset=N&size=M`; answers the pair that cannot be read where there is one.
    fn parse(query: Option<&[u8]>) -> std::result::Result<Self, String> {
        let mut part = Self::default();
        for pair in query.into_iter().flat_map(|query| query.split(|byte| *byte == b'&')) {
            let text = String::from_utf8_lossy(pair);
            match text.split_once('=').map(|(key, value)| (key, value.parse())) {
                Some(("offset", Ok(offset))) => part.offset = offset,
                Some(("size", Ok(size))) => part.size = Some(size),
                _ => return Err(text.into_owned()),
            }
        }
        Ok(part)
    }
}

/// True for the name of a file that is taken for something else while there is no such file.
fn is_special(name: &[u8]) -> bool {
    let query = name.iter().rposition(|byte| *byte == b'?').map(|mark| name.get(mark + 1..).unwrap_or_default());
    let has_part = query.is_some_and(|query| Part::parse(Some(query)).is_ok());
    name.starts_with(LITERAL.as_bytes()) || split_scheme(name).0.is_some() || has_part
}

fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// The scheme of a word, and the rest.
fn split_scheme(bytes: &[u8]) -> (Option<&str>, &[u8]) {
    let is_in_scheme = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-');
    let len = bytes.iter().take_while(|byte| is_in_scheme(byte)).count();
    let Some((scheme, rest)) = bytes.split_at_checked(len) else { return (None, bytes) };
    let Some(scheme) = std::str::from_utf8(scheme).ok().filter(|scheme| scheme.starts_with(char::is_alphabetic)) else {
        return (None, bytes);
    };
    let rest = if scheme == QCOW2 { rest.strip_prefix(b":") } else { rest.strip_prefix(b"://") };
    rest.map_or((None, bytes), |rest| (Some(scheme), rest))
}

/// Where the first word of a list ends; `None` where the rest is one word.
fn first_of_list(bytes: &[u8]) -> Option<usize> {
    if exists(Path::new(OsStr::from_bytes(bytes))) {
        return None;
    }
    let commas = bytes.iter().enumerate().filter(|(_, byte)| **byte == b',').map(|(at, _)| at);
    let mut is_device = commas.filter(|at| {
        let word = bytes.get(..*at).unwrap_or_default();
        let parsed = Locator::parse(OsStr::from_bytes(word));
        parsed.is_ok_and(|locator| locator.path().is_none_or(exists))
    });
    is_device.next()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::backends::MemoryDevice;

    #[test]
    fn parts_are_named_behind_a_question_mark() {
        let part = Locator::parse("no/such.img?offset=1048576&size=4096").unwrap();
        assert_eq!(part.path(), Some(Path::new("no/such.img")));
        assert_eq!((part.offset(), part.size()), (1 << 20, Some(4096)));
        assert_eq!(part.to_string(), "no/such.img?offset=1048576&size=4096");
        // No file stands before the question mark: it is part of the name of one that may be made.
        let plain = Locator::parse("no/such.img?other=1").unwrap();
        assert_eq!(plain.path(), Some(Path::new("no/such.img?other=1")));
    }

    #[test]
    fn a_part_that_cannot_be_read_is_refused_where_its_file_exists() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.img");
        fs::write(&image, "").unwrap();
        for part in ["offset=", "offset=1x", "offset=1M", "other=1", "", "size=1&offset"] {
            let error = Locator::parse(format!("{}?{part}", image.display())).unwrap_err();
            assert!(matches!(&error, Error::NotALocator { pair, .. } if part.ends_with(pair)), "{part}: {error}");
        }
    }

    #[test]
    fn a_file_that_has_the_whole_name_is_meant_and_file_reaches_one_that_is_to_be_made() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a?offset=1", "http:x", "a,b"] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            assert_eq!(Locator::parse(&path).unwrap(), Locator::file(&path));
            assert_eq!(Locator::parse_list(&path).unwrap(), [Locator::file(&path)]);
        }
        let literal = Locator::parse("file:nbd://x?offset=1").unwrap();
        assert_eq!(literal, Locator::file("nbd://x?offset=1"));
    }

    #[test]
    fn commas_separate_devices_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["a", "b,c", "d"] {
            fs::write(path(name), "").unwrap();
        }
        let list = |words: &[String]| {
            let found = Locator::parse_list(words.join(",")).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let all = [path("a?offset=0"), path("b,c"), "nbd://host/x".to_owned(), path("d")];
        assert_eq!(list(&all), [path("a"), path("b,c"), "nbd://host/x".to_owned(), path("d")]);
        assert_eq!(list(&[path("a"), path("none")]), [path("a"), path("none")]);
        // Nothing of it exists: it may be the name of one file that is to be made.
        assert_eq!(list(&["no,such".to_owned()]), ["no,such"]);
    }

    #[test]
    fn schemes_are_refused_by_name_until_a_backend_registers_them() {
        for (word, scheme, target) in [
            ("nbd://host:10809/disk", "nbd", "host:10809/disk"),
            ("nbd+unix:///disk?socket=/run/x", "nbd+unix", "/disk?socket=/run/x"),
            ("https://host/a.img?offset=512", "https", "host/a.img"),
            ("qcow2:disk.qcow2", "qcow2", "disk.qcow2"),
            ("locator-test://x", "locator-test", "x"),
        ] {
            let locator = Locator::parse(word).unwrap();
            assert_eq!((locator.scheme(), locator.target()), (Some(scheme), Path::new(target)));
            assert_eq!((locator.to_string().as_str(), locator.path()), (word, None));
            assert_eq!(Locator::scheme_len(OsStr::new(word)), word.find(target).unwrap());
            let error = open(&locator, Access::READ).unwrap_err();
            assert!(matches!(&error, Error::NoBackend { scheme: found, .. } if found == scheme), "{error}");
        }
        register("locator-test", |locator, access| {
            assert!(access.read_only);
            Ok(Arc::new(MemoryDevice::new(u64::try_from(locator.target().as_os_str().len()).unwrap())))
        });
        let device = open(&Locator::parse("locator-test://four").unwrap(), Access::READ).unwrap();
        assert_eq!(device.size_bytes(), 4);
        for word in ["1nbd://x", "NBD://x", "a.img://x", "nbd:x", "dir/nbd://x"] {
            assert_eq!(Locator::parse(word).unwrap().path(), Some(Path::new(word)));
            assert_eq!(Locator::scheme_len(OsStr::new(word)), 0);
        }
    }

    /// The words of a file whose name looks like something else lost their `file:`, and named something else.
    #[test]
    fn the_words_of_a_literal_file_name_it_again() {
        for name in ["nbd://host/a", "qcow2:a", "a?offset=512", "a?offset=1&size=2", "file:a", "a?", "plain", "a?b=1"] {
            let literal = Locator::file(name);
            assert_eq!(Locator::parse(literal.words()).unwrap(), literal, "{name}");
        }
        assert_eq!(Locator::file("plain").words(), "plain");
        assert_eq!(Locator::file("qcow2:a").words(), "file:qcow2:a");
    }
}
