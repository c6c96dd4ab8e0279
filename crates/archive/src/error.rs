//! Defines the failures of reading and writing archives. Every part of the crate returns them.

use std::io;

/// The result of a step of reading or writing an archive.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an archive was not read or written. Offsets are bytes from the begin of the archive, after decompression.
///
/// To do: see the cause behind the colon; check the archive with the program that made it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host failed to read the archive.
    ///
    /// To do: see the cause behind the colon; read the archive again.
    #[error("byte {at} of the archive: {source}")]
    Read {
        /// Where.
        at: u64,
        /// The failure of the host.
        source: io::Error,
    },
    /// Compressed data is damaged or cut off.
    ///
    /// To do: get the archive again; `gzip -t`, `xz -t`, `zstd -t` and `bzip2 -t` say the same.
    #[error("byte {at} of the archive: {compression} data is damaged or cut off: {source}")]
    Compressed {
        /// Where, in decompressed bytes.
        at: u64,
        /// Name of the compression.
        compression: &'static str,
        /// The words of the decompressor.
        source: io::Error,
    },
    /// The host failed to keep the contents of files in its temporary directory.
    ///
    /// To do: free space there, or set TMPDIR to another directory.
    #[error("temporary file for contents: {0}")]
    Spool(#[source] io::Error),
    /// The host failed to take the archive that is written.
    ///
    /// To do: see the cause behind the colon.
    #[error("writing the archive: {0}")]
    Write(#[source] io::Error),
    /// The input has no bytes.
    ///
    /// To do: check what was to write the archive.
    #[error("expected an archive of tar or cpio, found an empty input")]
    Empty,
    /// The input is something else than an archive that this program reads.
    ///
    /// To do: give an archive of tar, or of cpio in its newc format, uncompressed or in gzip, zstd, xz or bzip2.
    #[error("expected an archive of tar or cpio, found {found}")]
    NotArchive {
        /// Words for the first bytes.
        found: String,
    },
    /// The archive ends too early.
    ///
    /// To do: get the archive again; it was cut off.
    #[error("ends within {member} at byte {at}: expected {expected} bytes more of {part}, found {found}")]
    Truncated {
        /// The member, in quotes.
        member: String,
        /// Where the part begins.
        at: u64,
        /// The part that is cut off.
        part: &'static str,
        /// Bytes that the part has.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The checksum of a header or of contents is wrong.
    ///
    /// To do: get the archive again; it is damaged.
    #[error("{member} at byte {at}: checksum: expected {expected}, found {found}")]
    Checksum {
        /// The member, in quotes, or what stands there.
        member: String,
        /// Where the header begins.
        at: u64,
        /// The sum of what is there.
        expected: u64,
        /// The sum that the archive names.
        found: u64,
    },
    /// A field has a value that it cannot have.
    ///
    /// To do: the archive is damaged, or made by a faulty program: make it again.
    #[error("{member} at byte {at}: {field}: expected {expected}, found `{found}`")]
    Field {
        /// The member, in quotes, or what stands there.
        member: String,
        /// Where the header begins.
        at: u64,
        /// Name of the field.
        field: String,
        /// The legal values.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// A member is of a kind that no file is of.
    ///
    /// To do: make the archive without this member, or with another program.
    #[error("{member} at byte {at}: not supported: {what}")]
    Unsupported {
        /// The member, in quotes.
        member: String,
        /// Where the header begins.
        at: u64,
        /// The thing that is not supported.
        what: String,
    },
    /// The archive is larger than the caller allows, after decompression.
    ///
    /// To do: allow more, if the archive is trusted.
    #[error("more than the {max} bytes that are allowed after decompression")]
    TooLarge {
        /// Bytes that are allowed.
        max: u64,
    },
    /// Names, attributes and places of contents are kept in memory, and are too much for it.
    ///
    /// To do: divide the archive.
    #[error("names and attributes of the members: more than {max} bytes")]
    TooManyNames {
        /// Bytes that are allowed.
        max: u64,
    },
    /// The tree has no place for a member, or reading the source of an archive failed.
    ///
    /// To do: see the cause behind the colon.
    #[error("{0}")]
    Transfer(#[from] transfer::Error),
}

impl Error {
    /// True if the caller asked for the end.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Transfer(error) if error.is_cancelled())
    }
}

/// A member of an archive, for messages: its name, and where its header begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(crate) name: Vec<u8>,
    /// Bytes from the begin of the archive.
    pub(crate) at: u64,
}

impl Place {
    pub(crate) fn shown(&self) -> String {
        if self.name.is_empty() { "a header".to_owned() } else { format!("`{}`", shown(&self.name)) }
    }

    pub(crate) fn field(&self, field: impl Into<String>, expected: &'static str, found: impl Into<String>) -> Error {
        Error::Field { member: self.shown(), at: self.at, field: field.into(), expected, found: found.into() }
    }

    pub(crate) fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported { member: self.shown(), at: self.at, what: what.into() }
    }
}

/// Bytes of an archive, short enough and printable.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 200;
    let part = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(part).escape_debug().to_string()
}
