//! Reads and writes entries of the node address table (NAT): where each node is, and which inode it belongs to. Called
//! by `f2fs` (`read_volume`, the commit) and `f2fs-check`.

use std::fmt;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::OnDisk;
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail};
use crate::ids::{Block, BlockAddr, Nid};

/// An entry, as it lies on disk. An entry of zeros stands for a node that does not exist.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NatEntry {
    /// Counts how often the number was given to another node.
    pub version: u8,
    /// Inode that the node belongs to.
    pub ino: U32,
    /// Block of the node.
    pub block_addr: U32,
}

const _: () = assert!(size_of::<NatEntry>() == 9);

impl OnDisk for NatEntry {
    const NAME: &'static str = "NAT entry size";
}

impl NatEntry {
    /// An entry for a node.
    #[must_use]
    pub fn new(version: u8, ino: Nid, at: BlockAddr) -> Self {
        Self { version, ino: U32::new(ino.0), block_addr: U32::new(at.0) }
    }

    /// Block of the node.
    #[must_use]
    pub fn at(&self) -> BlockAddr {
        BlockAddr(self.block_addr.get())
    }

    /// Inode that the node belongs to.
    #[must_use]
    pub fn ino(&self) -> Nid {
        Nid(self.ino.get())
    }
}

impl fmt::Display for NatEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} version {} at {}", self.ino, self.version, self.at())
    }
}

/// An entry of a NAT block.
///
/// # Errors
/// [`Corrupt`] for an index that no block has.
pub fn entry(block: &Block, index: usize) -> Result<NatEntry, Corrupt> {
    let start = index.saturating_mul(size_of::<NatEntry>());
    let bytes = block.get(start..);
    let out = || Corrupt::new("index of a NAT entry", Detail::AtMost(454), Detail::Number(to_u64(index)));
    bytes.and_then(|bytes| NatEntry::parse(bytes).ok()).copied().ok_or_else(out)
}

/// Writes an entry of a NAT block.
pub fn put(block: &mut Block, index: usize, entry: &NatEntry) {
    let start = index.saturating_mul(size_of::<NatEntry>());
    let to = block.get_mut(start..).and_then(|bytes| NatEntry::mut_from_prefix(bytes).ok());
    debug_assert!(to.is_some(), "no block has NAT entry {index}");
    if let Some((to, _)) = to {
        *to = *entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_each_other() {
        let mut block = [0; 4096];
        block[9..18].copy_from_slice(&[1, 5, 0, 0, 0, 0, 0x20, 0, 0]);
        let found = entry(&block, 1).unwrap();
        assert_eq!((found.ino(), found.at()), (Nid(5), BlockAddr(0x2000)));
        assert_eq!(found.to_string(), "inode 5 version 1 at 8192");
        put(&mut block, 454, &NatEntry::new(2, Nid(7), BlockAddr(9)));
        assert_eq!(entry(&block, 454).unwrap().to_string(), "inode 7 version 2 at 9");
        assert!(entry(&block, 454).is_ok() && entry(&block, 455).is_err());
    }
}
