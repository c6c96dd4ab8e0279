//! Defines what an archive is read from, and the limits of reading. Callers make an `Input`; `bytes` reads it.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::accounts::Accounts;

/// The input that an archive is read from.
pub struct Input(pub(crate) Kind);

/// The two kinds of input.
pub(crate) enum Kind {
    /// A regular file, or a part of one, which can be read again: contents of an uncompressed archive stay in it.
    File(FilePart),
    /// A stream, which is read once.
    Stream(Box<dyn Read + Send>),
}

/// A part of a regular file.
#[derive(Clone)]
pub(crate) struct FilePart {
    pub(crate) file: Arc<File>,
    /// First byte.
    pub(crate) begin: u64,
    /// Byte behind the last one.
    pub(crate) end: u64,
}

impl Input {
    /// An archive in a file of the host.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::file(File::open(path)?)
    }

    /// An archive in an open file, from its position on. A regular file must not change as long as the tree is used:
    /// contents of an uncompressed archive are read from it later. Anything else (a pipe, a terminal) is a stream.
    ///
    /// # Errors
    /// Those of asking for its kind and position.
    pub fn file(mut file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(Self::stream(file));
        }
        let begin = file.stream_position()?;
        Ok(Self(Kind::File(FilePart { file: Arc::new(file), begin, end: found.len().max(begin) })))
    }

    /// An archive that is a part of a regular file: `len` bytes from byte `begin` on.
    #[must_use]
    pub fn part(file: Arc<File>, begin: u64, len: u64) -> Self {
        Self(Kind::File(FilePart { file, begin, end: begin.saturating_add(len) }))
    }

    /// An archive that a stream delivers. Contents go to a temporary file ([`ReadOptions::temp_dir`]).
    #[must_use]
    pub fn stream(stream: impl Read + Send + 'static) -> Self {
        Self(Kind::Stream(Box::new(stream)))
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::File(_) => "Input::File",
            Kind::Stream(_) => "Input::Stream",
        })
    }
}

/// How an archive is read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Directory of the temporary file for contents that cannot stay where they are. It has no name there.
    pub temp_dir: PathBuf,
    /// Most bytes of an archive after decompression, headers and contents together. Holes of sparse files do not
    /// count.
    pub max_bytes: u64,
    /// The users and groups that access lists may name. Owners are always numbers.
    pub accounts: Accounts,
}

impl Default for ReadOptions {
    /// The host's directory for temporary files (TMPDIR), any number of bytes, and the host's accounts.
    fn default() -> Self {
        Self { temp_dir: std::env::temp_dir(), max_bytes: u64::MAX, accounts: Accounts::of_host() }
    }
}
