//! Defines resume points: positions in a stream, given by the number and digest of the commands applied.
//!
//! A resumed stream begins with a header of its own, so receivers that do not know it reject it. The original header
//! and the commands after the point follow.
//!
//! The digest is a hash chain over command headers, which include the checksums of the commands. Used by the encoder
//! and decoder here, by `btrfs-receive` to continue an interrupted receive, and by `send` of `btrfs` to send the rest
//! of a stream.

use crate::value::Uuid;
use crate::version::{COMMAND_HEADER_SIZE, MAGIC, Version};
use codec::checksum::{ChecksumType, checksum};
use std::fmt;
use std::str::FromStr;

/// Magic of a resumed stream.
pub(crate) const REST_MAGIC: [u8; MAGIC.len()] = *b"spinney-rest\0";

/// Prefix of a token.
const TOKEN_PREFIX: &str = "r1";

/// The beginning of a stream: the number of its commands, and their digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Number of commands.
    pub commands: u64,
    /// Digest of their headers.
    pub digest: u64,
}

impl Prefix {
    /// The empty prefix of a stream of this version.
    pub(crate) fn none(version: Version) -> Self {
        Self { commands: 0, digest: hash(&[&version.to_raw().to_le_bytes()]) }
    }

    /// Adds a command, given by its header.
    pub(crate) fn add(&mut self, header: &[u8; COMMAND_HEADER_SIZE]) {
        self.commands = self.commands.saturating_add(1);
        self.digest = hash(&[&self.digest.to_le_bytes(), header]);
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let sum = checksum(ChecksumType::Xxhash64, &parts.concat());
    sum.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A position in the stream of a subvolume. As text it is the token that the user passes from receiver to sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    /// UUID of the subvolume in the stream.
    pub uuid: Uuid,
    /// Transaction of the subvolume in the stream.
    pub ctransid: u64,
    /// The version of the stream.
    pub version: Version,
    /// The commands before the position.
    pub prefix: Prefix,
}

/// Bytes after the magic: version, UUID, ctransid, commands, digest.
pub(crate) const POINT_SIZE: usize = 4 + 16 + 8 + 8 + 8;

impl ResumePoint {
    /// The bytes after [`REST_MAGIC`].
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let Self { uuid, ctransid, version, prefix } = self;
        let mut bytes = version.to_raw().to_le_bytes().to_vec();
        bytes.extend_from_slice(&uuid);
        [ctransid, prefix.commands, prefix.digest].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    }

    /// Parses the bytes. An unknown version is the error.
    pub(crate) fn from_bytes(bytes: &[u8; POINT_SIZE]) -> Result<Self, u32> {
        let mut rest = bytes.as_slice();
        let version = u32::from_le_bytes(take(&mut rest));
        Ok(Self {
            version: Version::from_raw(version).ok_or(version)?,
            uuid: take(&mut rest),
            ctransid: u64::from_le_bytes(take(&mut rest)),
            prefix: Prefix {
                commands: u64::from_le_bytes(take(&mut rest)),
                digest: u64::from_le_bytes(take(&mut rest)),
            },
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let Some((head, tail)) = rest.split_first_chunk() else { return [0; N] };
    *rest = tail;
    *head
}

impl fmt::Display for ResumePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uuid, ctransid, version, prefix } = self;
        let uuid = u128::from_be_bytes(*uuid);
        write!(f, "{TOKEN_PREFIX}-{version}-{uuid:032x}-{ctransid}-{}-{:016x}", prefix.commands, prefix.digest)
    }
}

/// Error for a text that is not a token.
///
/// To do: give the token as the interrupted receive printed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a resume token; expected r1-VERSION-UUID-TRANSACTION-COMMANDS-DIGEST")]
pub struct NotAToken;

impl FromStr for ResumePoint {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let &[TOKEN_PREFIX, version, uuid, ctransid, commands, digest] = parts.as_slice() else {
            return Err(NotAToken);
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| NotAToken);
        let version = version.parse().ok().and_then(Version::from_raw).ok_or(NotAToken)?;
        let uuid = u128::from_str_radix(uuid, 16).map_err(|_| NotAToken)?.to_be_bytes();
        let digest = u64::from_str_radix(digest, 16).map_err(|_| NotAToken)?;
        let prefix = Prefix { commands: number(commands)?, digest };
        Ok(Self { uuid, ctransid: number(ctransid)?, version, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_come_back_from_bytes_and_text() {
        let mut prefix = Prefix::none(Version::V2);
        prefix.add(&[7; COMMAND_HEADER_SIZE]);
        let point = ResumePoint { uuid: [0xa1; 16], ctransid: u64::MAX, version: Version::V2, prefix };
        assert_eq!(point.to_string().parse(), Ok(point));
        assert_eq!(ResumePoint::from_bytes(&point.to_bytes().try_into().unwrap()), Ok(point));
        for text in ["", "r1", "r2-1-00-1-1-0", "r1-3-00-1-1-0", "r1-1-00-1-1-0-9", "r1-1-zz-1-1-0", "r1-1-00--1-1-0"] {
            assert_eq!(text.parse::<ResumePoint>(), Err(NotAToken), "{text}");
        }
    }
}
