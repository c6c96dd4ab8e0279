//! Parses and builds blocks of orphans: inodes that lost their last name while they were open. The next mount that
//! writes removes them. The commit of `f2fs` builds these blocks; `f2fs` (`read_volume`) and `f2fs-check` parse them.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::{u32_len, usize_from};
use crate::error::{Corrupt, within};
use crate::ids::{Block, Nid};
use crate::{BLOCK_SIZE, OnDisk};

/// The most orphans that one block holds.
pub const ORPHANS_PER_BLOCK: usize = 1020;

/// A block of orphans, as on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct OrphanBlock {
    /// Inode numbers.
    pub ino: [U32; ORPHANS_PER_BLOCK],
    /// Zeros.
    pub reserved: U32,
    /// Number of this block among the orphan blocks of the checkpoint, counted from 1.
    pub blk_addr: U16,
    /// Number of orphan blocks of the checkpoint.
    pub blk_count: U16,
    /// Orphans in this block.
    pub entry_count: U32,
    /// Not used.
    pub check_sum: U32,
}

const _: () = assert!(size_of::<OrphanBlock>() == BLOCK_SIZE);

impl OnDisk for OrphanBlock {
    const NAME: &'static str = "orphan block size";
}

/// The orphans of a block.
///
/// # Errors
/// [`Corrupt`] if `entry_count` is larger than [`ORPHANS_PER_BLOCK`].
pub fn orphans(block: &Block) -> Result<impl Iterator<Item = Nid> + '_, Corrupt> {
    let block = OrphanBlock::parse(block)?;
    within("orphan entry_count", u64::from(block.entry_count.get()), 0, 1020)?;
    Ok(block.ino.iter().take(usize_from(block.entry_count.get())).map(|ino| Nid(ino.get())))
}

/// Builds the block with the orphans `inos`, at most [`ORPHANS_PER_BLOCK`]. `index` is its number among the `count`
/// orphan blocks of the checkpoint, counted from 1.
#[must_use]
pub fn block_of(inos: &[Nid], index: u16, count: u16) -> Block {
    debug_assert!(inos.len() <= ORPHANS_PER_BLOCK, "too many orphans for a block");
    let mut block = OrphanBlock::new_zeroed();
    block.ino.iter_mut().zip(inos).for_each(|(to, ino)| *to = U32::new(ino.0));
    block.blk_addr = U16::new(index);
    block.blk_count = U16::new(count);
    block.entry_count = U32::new(u32_len(inos.len()));
    zerocopy::transmute!(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_end_at_the_entry_count() {
        let mut block = [0; 4096];
        block[..8].copy_from_slice(&[9, 0, 0, 0, 7, 0, 0, 0]);
        block[4088] = 2;
        assert_eq!(orphans(&block).unwrap().collect::<Vec<_>>(), [Nid(9), Nid(7)]);
        block[4090] = 1;
        assert!(orphans(&block).is_err());
    }

    #[test]
    fn a_built_block_parses() {
        let inos: Vec<_> = (3..1023).map(Nid).collect();
        let block = block_of(&inos, 2, 3);
        assert_eq!(orphans(&block).unwrap().collect::<Vec<_>>(), inos);
        assert_eq!(block[4084..], [2, 0, 3, 0, 0xfc, 3, 0, 0, 0, 0, 0, 0]);
    }
}
