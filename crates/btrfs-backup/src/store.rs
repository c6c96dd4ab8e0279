//! Defines [`Store`], a place that keeps objects under keys and changes one only on a condition, and [`FileStore`],
//! which is a directory of the host. `repository` reads and writes backups through it; the library `spinney` has the
//! stores in S3 and on web servers.
//!
//! Invariant of every store: of two writes with the same condition at most one succeeds. An object that was put is
//! durable when the call returns.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use codec::checksum::{ChecksumType, checksum};

use crate::digest::hex;
use crate::error::SideError;

/// The result of a request to a store.
pub type StoreResult<T> = std::result::Result<T, SideError>;

/// The condition under which an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition<'a> {
    /// There is no object of this key.
    Absent,
    /// The object has this tag.
    Matches(&'a str),
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// The object is there, with this tag if the store told it.
    Done(Option<String>),
    /// The condition does not hold.
    Refused,
}

/// An object that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Another one after each change.
    pub tag: Option<String>,
}

/// A place for objects. Keys are letters, digits and any of `-_.+@`. Every method fails with the errors of the place.
#[expect(clippy::missing_errors_doc, reason = "the errors of all are those of the place")]
pub trait Store: Send + Sync {
    /// Names the place in messages.
    fn name(&self) -> String;

    /// Reads an object; `None` if there is none. One of more than `bytes_max` bytes is an error.
    fn get(&self, key: &str, bytes_max: u64) -> StoreResult<Option<Object>>;

    /// The bytes of an object; `None` if there is none.
    fn size(&self, key: &str) -> StoreResult<Option<u64>>;

    /// Writes an object if the condition holds.
    fn put(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> StoreResult<Put>;

    /// Deletes an object, which may be missing.
    fn delete(&self, key: &str) -> StoreResult<()>;
}

/// The end of the name of a file that is being written.
const PARTIAL: &str = ".partial";
/// The file whose lock a writer holds.
const LOCK: &str = ".lock";

/// A directory of the host. Its tag of an object is the SHA-256 of the bytes.
#[derive(Debug)]
pub struct FileStore {
    dir: PathBuf,
}

impl FileStore {
    /// The store in a directory.
    ///
    /// # Errors
    /// The host's, where there is no directory at the path.
    pub fn open(dir: &Path) -> io::Result<Self> {
        if !std::fs::metadata(dir)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { dir: dir.to_owned() })
    }

    fn path(&self, key: &str) -> io::Result<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@".contains(&byte);
        if key.is_empty() || key.starts_with('.') || !key.bytes().all(is_plain) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{key:?} is no key")));
        }
        Ok(self.dir.join(key))
    }

    /// Locks the directory against other writers, until the file is closed.
    fn lock(&self) -> io::Result<File> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(self.dir.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    fn read(&self, key: &str, bytes_max: u64) -> io::Result<Option<Object>> {
        let path = self.path(key)?;
        let Some((file, len)) = open(&path)? else { return Ok(None) };
        let long = || io::Error::new(io::ErrorKind::InvalidData, format!("expected at most {bytes_max} bytes"));
        if len > bytes_max {
            return Err(long());
        }
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|len| len > bytes_max) {
            return Err(long());
        }
        let tag = Some(tag(&bytes));
        Ok(Some(Object { bytes, tag }))
    }

    fn write(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> io::Result<Put> {
        let path = self.path(key)?;
        let partial = self.dir.join(format!("{key}{PARTIAL}"));
        let _lock = self.lock()?;
        let holds = match condition {
            Condition::Absent => std::fs::symlink_metadata(&path).is_err(),
            Condition::Matches(wanted) => {
                let found = self.read(key, u64::MAX)?;
                found.is_some_and(|found| found.tag.as_deref() == Some(wanted))
            }
        };
        if !holds {
            return Ok(Put::Refused);
        }
        remove(&partial)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        portable::sync_dir(&self.dir)?;
        Ok(Put::Done(Some(tag(bytes))))
    }
}

impl Store for FileStore {
    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn get(&self, key: &str, bytes_max: u64) -> StoreResult<Option<Object>> {
        Ok(self.read(key, bytes_max)?)
    }

    fn size(&self, key: &str) -> StoreResult<Option<u64>> {
        Ok(open(&self.path(key)?)?.map(|(_, len)| len))
    }

    fn put(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> StoreResult<Put> {
        Ok(self.write(key, bytes, condition)?)
    }

    fn delete(&self, key: &str) -> StoreResult<()> {
        remove(&self.path(key)?)?;
        // Left by a write that was cut short.
        Ok(remove(&self.dir.join(format!("{key}{PARTIAL}")))?)
    }
}

fn tag(bytes: &[u8]) -> String {
    hex(&checksum(ChecksumType::Sha256, bytes))
}

/// Opens a regular file, without following a link or waiting for a pipe; `None` if there is none.
fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    let file = match crate::host_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    Ok(Some((file, found.len())))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_only_on_its_condition() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        assert_eq!(store.get("one", 9).unwrap(), None);
        assert_eq!(store.put("one", b"a", Condition::Matches("x")).unwrap(), Put::Refused);
        let Put::Done(Some(tag)) = store.put("one", b"a", Condition::Absent).unwrap() else { panic!("refused") };
        assert_eq!(store.put("one", b"b", Condition::Absent).unwrap(), Put::Refused);
        assert_eq!(store.put("one", b"b", Condition::Matches("x")).unwrap(), Put::Refused);
        assert!(matches!(store.put("one", b"bb", Condition::Matches(&tag)).unwrap(), Put::Done(_)));
        assert_eq!(store.get("one", 9).unwrap().unwrap().bytes, b"bb");
        assert_eq!((store.size("one").unwrap(), store.size("two").unwrap()), (Some(2), None));
        assert!(store.get("one", 1).unwrap_err().to_string().contains("at most 1"));
        store.delete("one").unwrap();
        store.delete("one").unwrap();
        assert_eq!(store.size("one").unwrap(), None);
    }

    #[test]
    fn keys_lead_to_files_of_the_directory_only() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        for key in ["", "../one", "/one", "a/b", ".lock", "..", "link"] {
            assert!(store.get(key, 9).is_err(), "{key}");
        }
    }
}
