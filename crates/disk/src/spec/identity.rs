//! Makes identifiers that nobody gave. Called by `rules`.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// The use of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A partition's entry in the table.
    Partition,
    /// A file system or swap area.
    FileSystem,
}

impl Role {
    /// The text that is hashed.
    const fn text(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::FileSystem => "file system",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The identifier of a part of a disk: the first 16 bytes of the SHA-256 of the disk's identifier (16 bytes in the
/// order of its text), the role (`partition`, `file system`) and the partition's index from 0 (4 bytes, little-endian),
/// as a UUID of version 8, which RFC 9562 leaves to such uses.
#[must_use]
pub fn derived_id(disk: Uuid, role: Role, index: u32) -> Uuid {
    of_hash(Sha256::new().chain_update(disk.as_bytes()).chain_update(role.text()).chain_update(index.to_le_bytes()))
}

/// The identifier of a disk whose description has none: made the same way of `disk` and the text of the description.
pub(super) fn disk_id(text: &str) -> Uuid {
    of_hash(Sha256::new().chain_update("disk").chain_update(text))
}

fn of_hash(hash: Sha256) -> Uuid {
    let sum: [u8; 32] = hash.finalize().into();
    Builder::from_custom_bytes(sum.first_chunk().copied().unwrap_or_default()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_identifiers_never_change() {
        let disk = Uuid::from_bytes(*b"0123456789abcdef");
        // `printf '0123456789abcdefpartition\0\0\0\0' | sha256sum`, with the bits of version and variant.
        assert_eq!(derived_id(disk, Role::Partition, 0).to_string(), "a6902de6-07e4-8c6a-a213-2357b39e481b");
        assert_ne!(derived_id(disk, Role::Partition, 1), derived_id(disk, Role::Partition, 0));
        assert_ne!(derived_id(disk, Role::FileSystem, 0), derived_id(disk, Role::Partition, 0));
        assert_eq!(disk_id("").get_version_num(), 8);
    }
}
