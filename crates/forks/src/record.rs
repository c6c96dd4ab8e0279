//! The record of a fork: lines of `name value` in an extended attribute of its hidden directory. `fork` writes and
//! reads it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use portable::{OsStrExt as _, OsStringExt as _};

use crate::error::{Error, Result};

/// The extended attribute that has the record.
pub(crate) const XATTR: &str = "user.spinney.fork";
/// The first line: the version of the form.
const TITLE: &[u8] = b"spinney fork 1";

/// The UUID of a subvolume.
pub type Uuid = [u8; 16];

/// The facts about a fork that its subvolumes do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The base at the moment of the fork.
    pub base: Uuid,
    /// The path of the base at that moment, from the top level. A merge gives the base another UUID.
    pub base_path: PathBuf,
    /// The ancestor at the moment of the fork: the parent of the fork.
    pub first: Uuid,
    /// Further UUIDs by which the fork is known: a merge into it gives it another one.
    pub forks: Vec<Uuid>,
    /// When it may be dropped, in seconds since 1970.
    pub expires: Option<i64>,
    /// Bytes that its own data may take.
    pub limit: Option<u64>,
}

impl Record {
    /// The record as text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = TITLE.to_vec();
        let mut line = |name: &str, value: &[u8]| {
            text.extend_from_slice(b"\n");
            text.extend_from_slice(name.as_bytes());
            text.push(b' ');
            text.extend_from_slice(value);
        };
        line("base", hex(&self.base).as_bytes());
        line("first", hex(&self.first).as_bytes());
        self.forks.iter().for_each(|uuid| line("fork", hex(uuid).as_bytes()));
        if let Some(expires) = self.expires {
            line("expires", expires.to_string().as_bytes());
        }
        if let Some(limit) = self.limit {
            line("limit", limit.to_string().as_bytes());
        }
        // The last one, since a path may have line breaks in it.
        line("path", self.base_path.as_os_str().as_bytes());
        text
    }

    /// Reads a record that lies at `at`.
    ///
    /// # Errors
    /// `Record` for an unknown version or field, and for a value of another form.
    pub fn decode(mut text: &[u8], at: &Path) -> Result<Self> {
        let wrong = |expected, found: &[u8]| Error::Record {
            at: at.to_owned(),
            expected,
            found: String::from_utf8_lossy(found).into_owned(),
        };
        let mut record = Self::default();
        let title = next_line(&mut text);
        if title != TITLE {
            return Err(wrong("`spinney fork 1`", title));
        }
        loop {
            if let Some(path) = text.strip_prefix(b"path ") {
                record.base_path = PathBuf::from(OsString::from_vec(path.to_vec()));
                return Ok(record);
            }
            let line = next_line(&mut text);
            let mut parts = line.splitn(2, |byte| *byte == b' ');
            let name = parts.next().unwrap_or_default();
            let value = std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
            let uuid = || from_hex(value).ok_or_else(|| wrong("32 hexadecimal digits", line));
            match name {
                b"base" => record.base = uuid()?,
                b"first" => record.first = uuid()?,
                b"fork" => record.forks.push(uuid()?),
                b"expires" => record.expires = Some(value.parse().map_err(|_| wrong("seconds", line))?),
                b"limit" => record.limit = Some(value.parse().map_err(|_| wrong("bytes", line))?),
                _ => return Err(wrong("a field of version 1", line)),
            }
        }
    }
}

/// Takes the first line from `text`.
fn next_line<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let line = parts.next().unwrap_or_default();
    *text = parts.next().unwrap_or_default();
    line
}

pub(crate) fn hex(uuid: &Uuid) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Uuid> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_text() {
        let record = Record {
            base: [7; 16],
            base_path: PathBuf::from("a\nb/c d"),
            first: [0; 16],
            forks: vec![[1; 16], [255; 16]],
            expires: Some(-5),
            limit: Some(u64::MAX),
        };
        assert_eq!(Record::decode(&record.encode(), Path::new("x")).unwrap(), record);
        let plain = Record::default();
        assert_eq!(Record::decode(&plain.encode(), Path::new("x")).unwrap(), plain);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        for text in ["", "spinney fork 2\npath x", "spinney fork 1", "spinney fork 1\nbase zz\npath x"] {
            let refused = Record::decode(text.as_bytes(), Path::new("x"));
            assert!(matches!(refused, Err(Error::Record { .. })), "{text}: {refused:?}");
        }
    }
}
