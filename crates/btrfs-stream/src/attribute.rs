//! Defines the attributes of commands: their numbers and names. The encoder, decoder and errors use them.

use std::fmt;

/// Attributes of commands, with their numbers in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation, and those of the format")]
pub enum Attribute {
    Uuid = 1,
    Ctransid = 2,
    Ino = 3,
    Size = 4,
    Mode = 5,
    Uid = 6,
    Gid = 7,
    Rdev = 8,
    Ctime = 9,
    Mtime = 10,
    Atime = 11,
    Otime = 12,
    XattrName = 13,
    XattrData = 14,
    Path = 15,
    PathTo = 16,
    PathLink = 17,
    FileOffset = 18,
    Data = 19,
    CloneUuid = 20,
    CloneCtransid = 21,
    ClonePath = 22,
    CloneOffset = 23,
    CloneLen = 24,
    FallocateMode = 25,
    Fileattr = 26,
    UnencodedFileLen = 27,
    UnencodedLen = 28,
    UnencodedOffset = 29,
    Compression = 30,
    Encryption = 31,
}

impl Attribute {
    /// Every attribute with its name, in the order of the numbers.
    const ALL: [(Self, &'static str); 31] = [
        (Self::Uuid, "uuid"),
        (Self::Ctransid, "ctransid"),
        (Self::Ino, "ino"),
        (Self::Size, "size"),
        (Self::Mode, "mode"),
        (Self::Uid, "uid"),
        (Self::Gid, "gid"),
        (Self::Rdev, "rdev"),
        (Self::Ctime, "ctime"),
        (Self::Mtime, "mtime"),
        (Self::Atime, "atime"),
        (Self::Otime, "otime"),
        (Self::XattrName, "xattr_name"),
        (Self::XattrData, "xattr_data"),
        (Self::Path, "path"),
        (Self::PathTo, "path_to"),
        (Self::PathLink, "path_link"),
        (Self::FileOffset, "file_offset"),
        (Self::Data, "data"),
        (Self::CloneUuid, "clone_uuid"),
        (Self::CloneCtransid, "clone_ctransid"),
        (Self::ClonePath, "clone_path"),
        (Self::CloneOffset, "clone_offset"),
        (Self::CloneLen, "clone_len"),
        (Self::FallocateMode, "fallocate_mode"),
        (Self::Fileattr, "fileattr"),
        (Self::UnencodedFileLen, "unencoded_file_len"),
        (Self::UnencodedLen, "unencoded_len"),
        (Self::UnencodedOffset, "unencoded_offset"),
        (Self::Compression, "compression"),
        (Self::Encryption, "encryption"),
    ];

    /// The attribute with this number.
    #[must_use]
    pub fn from_raw(raw: u16) -> Option<Self> {
        let index = usize::from(raw).checked_sub(1)?;
        Self::ALL.get(index).map(|(attribute, _)| *attribute)
    }

    /// The number in a stream.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the numbers stand in the enum, and fit")]
    pub const fn to_raw(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(attribute, _)| attribute == self).map_or("attribute", |(_, name)| name);
        f.write_str(name)
    }
}
