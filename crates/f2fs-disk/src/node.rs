//! Reads and makes nodes, blocks with the addresses of an inode's data, and finds which node has the address of which
//! block of a file. Called by `f2fs` (`map`, `change`) and `f2fs-check`.
//!
//! An inode points at data directly, and by five numbers of further nodes at more:
//!
//! ```text
//!    inode: addresses            offset 0
//!      nid 0, 1: direct nodes            1, 2
//!      nid 2, 3: indirect nodes          3, 1022       each with 1018 direct nodes, whose offsets follow
//!      nid 4: double indirect node       2041          with 1018 indirect nodes, each followed by its direct ones
//! ```
//!
//! The *offset* of a node is its position in this order; it is stored in the node's footer, so that a node cannot be in
//! two positions and a tree of nodes cannot loop.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::to_u64;
use crate::error::{At, Corrupt, Detail, equal};
use crate::ids::{Block, BlockAddr, Nid};
use crate::{BLOCK_SIZE, OnDisk};

/// Bytes of a footer.
pub const FOOTER_SIZE: usize = 24;
/// Numbers of nodes in an indirect node, and addresses in a direct one.
pub const ENTRIES_PER_NODE: u32 = 1018;
/// Offset of the node with extended attributes.
pub const XATTR_OFFSET: u32 = 0x1fff_ffff;
/// Flag bits below the offset.
const OFFSET_SHIFT: u32 = 3;
const FLAG_COLD: u32 = 0x1;
const FLAG_FSYNC: u32 = 0x2;
const FLAG_DENT: u32 = 0x4;
/// Levels of nodes below an inode.
pub const LEVELS_MAX: usize = 3;

/// The end of a node's block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Footer {
    /// Number of the node.
    pub nid: U32,
    /// Inode that it belongs to.
    pub ino: U32,
    /// Cold 1, fsync 2, dentry 4; above them the offset.
    pub flag: U32,
    /// Version of the checkpoint before it, and its checksum.
    pub cp_ver: U64,
    /// Where the next node of the log is.
    pub next_blkaddr: U32,
}

const _: () = assert!(size_of::<Footer>() == FOOTER_SIZE);

impl OnDisk for Footer {
    const NAME: &'static str = "node footer size";
}

impl Footer {
    /// Of a block.
    #[must_use]
    pub fn of(block: &Block) -> Self {
        let at = BLOCK_SIZE.saturating_sub(FOOTER_SIZE);
        Self::parse(block.split_at(at).1).copied().unwrap_or(Self::new_zeroed())
    }

    /// Of a node that has neither marks nor a place in a log yet.
    #[must_use]
    pub fn new(nid: Nid, ino: Nid, offset: u32) -> Self {
        let flag = U32::new(offset << OFFSET_SHIFT);
        Self { nid: U32::new(nid.0), ino: U32::new(ino.0), flag, ..Self::new_zeroed() }
    }

    /// With exactly these marks: of cold data, of the last node of an fsync, and of an inode whose name has to be made
    /// again.
    #[must_use]
    pub fn with_marks(self, is_cold: bool, is_fsync: bool, is_dent: bool) -> Self {
        let marks = [(is_cold, FLAG_COLD), (is_fsync, FLAG_FSYNC), (is_dent, FLAG_DENT)];
        let set = marks.iter().filter(|(is_set, _)| *is_set);
        let flag = set.fold(self.offset() << OFFSET_SHIFT, |all, (_, mark)| all | mark);
        Self { flag: U32::new(flag), ..self }
    }

    /// Writes it to the end of a block.
    pub fn put(&self, block: &mut Block) {
        if let Some(end) = block.last_chunk_mut::<FOOTER_SIZE>() {
            *end = zerocopy::transmute!(*self);
        }
    }

    /// Number of the node.
    #[must_use]
    pub fn nid(&self) -> Nid {
        Nid(self.nid.get())
    }

    /// Inode that it belongs to.
    #[must_use]
    pub fn ino(&self) -> Nid {
        Nid(self.ino.get())
    }

    /// True for the node of an inode itself.
    #[must_use]
    pub fn is_inode(&self) -> bool {
        self.nid.get() == self.ino.get()
    }

    /// Its place among the nodes of the inode.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.flag.get() >> OFFSET_SHIFT
    }

    /// True for the last node that an fsync wrote.
    #[must_use]
    pub fn is_fsync(&self) -> bool {
        self.flag.get() & FLAG_FSYNC != 0
    }

    /// True for an inode whose name has to be made again.
    #[must_use]
    pub fn is_dent(&self) -> bool {
        self.flag.get() & FLAG_DENT != 0
    }

    /// True for nodes with addresses of data: not indirect ones, and not those of attributes.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        let offset = self.offset();
        if offset == XATTR_OFFSET || offset == 3 || offset == FIRST_OF_NID3 || offset == FIRST_OF_NID4 {
            return false;
        }
        // Each indirect node below the double indirect one comes before its direct nodes.
        let below = offset.checked_sub(FIRST_OF_NID4.saturating_add(1));
        below.is_none_or(|below| below % NODES_OF_INDIRECT != 0)
    }

    /// Checks that a block is the node that was looked for.
    ///
    /// # Errors
    /// [`Corrupt`] for another number, inode or offset.
    pub fn verify(&self, nid: Nid, ino: Nid, offset: u32, at: BlockAddr) -> Result<(), Corrupt> {
        let checks = [
            ("node footer nid", nid.0, self.nid.get()),
            ("node footer ino", ino.0, self.ino.get()),
            ("node footer offset", offset, self.offset()),
        ];
        let checked =
            checks.iter().try_for_each(|(what, expected, found)| equal(what, u64::from(*expected), u64::from(*found)));
        checked.map_err(|error| error.at(At::Node(nid, at)))
    }
}

impl fmt::Display for Footer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fsync, dent) = (self.is_fsync(), self.is_dent());
        write!(f, "node {} of inode {}, offset {}, fsync {fsync}, dentry {dent}", self.nid, self.ino, self.offset())
    }
}

/// The numbers below: addresses in a direct node, or numbers of nodes in an indirect one.
#[must_use]
pub fn entries(block: &Block) -> &[U32] {
    let bytes = block.split_at(BLOCK_SIZE.saturating_sub(FOOTER_SIZE)).0;
    <[U32]>::ref_from_bytes(bytes).unwrap_or_default()
}

/// The same, to be changed.
pub fn entries_mut(block: &mut Block) -> &mut [U32] {
    let bytes = block.split_at_mut(BLOCK_SIZE.saturating_sub(FOOTER_SIZE)).0;
    <[U32]>::mut_from_bytes(bytes).unwrap_or_default()
}

/// An indirect node and those below it.
const NODES_OF_INDIRECT: u32 = ENTRIES_PER_NODE + 1;
const FIRST_OF_NID3: u32 = 4 + ENTRIES_PER_NODE;
const FIRST_OF_NID4: u32 = 5 + 2 * ENTRIES_PER_NODE;

/// One node on the way from an inode to a block of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Which of the numbers in the node above leads here: of the five in the inode, or of the entries of a node.
    pub slot: u32,
    /// Offset that the node must have.
    pub offset: u32,
    /// First block of the file that is reached through the node.
    pub first: u64,
    /// Blocks of the file that are reached through it.
    pub count: u64,
}

/// The way from an inode to a block of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    steps: [Step; LEVELS_MAX],
    depth: usize,
    /// Index of the address within the last node.
    pub slot: u32,
}

impl Way {
    /// The nodes to go through, below the inode.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.steps.get(..self.depth).unwrap_or_default()
    }
}

/// How many addresses the nodes of a file have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// In the inode.
    pub inode: u32,
    /// In each direct node.
    pub direct: u32,
}

impl Fanout {
    /// Blocks that a file can have.
    #[must_use]
    pub fn blocks_max(self) -> u64 {
        let (direct, node) = (u64::from(self.direct), u64::from(ENTRIES_PER_NODE));
        let indirect = direct.saturating_mul(node);
        let double = indirect.saturating_mul(node);
        let pairs = direct.saturating_add(indirect).saturating_mul(2);
        u64::from(self.inode).saturating_add(pairs).saturating_add(double)
    }

    /// The way to a block of a file.
    ///
    /// # Errors
    /// [`Corrupt`] for a block that no file can have.
    pub fn way(self, index: u64) -> Result<Way, Corrupt> {
        let too_far = || Corrupt::new("block of a file", Detail::AtMost(self.blocks_max()), Detail::Number(index));
        let inode = u64::from(self.inode);
        let Some(mut rest) = index.checked_sub(inode) else {
            let slot = u32::try_from(index).map_err(|_| too_far())?;
            return Ok(Way { steps: [Step::default(); LEVELS_MAX], depth: 0, slot });
        };
        for top in self.tops() {
            if rest < top.count {
                return Ok(descend(top, rest, self));
            }
            rest = rest.saturating_sub(top.count);
        }
        Err(too_far())
    }

    /// The steps that the five numbers in an inode lead to.
    #[must_use]
    pub fn tops(self) -> [Step; 5] {
        let direct = u64::from(self.direct.max(1));
        let indirect = direct.saturating_mul(u64::from(ENTRIES_PER_NODE));
        let double = indirect.saturating_mul(u64::from(ENTRIES_PER_NODE));
        let subtrees = [(1, direct), (2, direct), (3, indirect), (FIRST_OF_NID3, indirect), (FIRST_OF_NID4, double)];
        let (mut slot, mut first) = (0, u64::from(self.inode));
        subtrees.map(|(offset, count)| {
            let step = Step { slot, offset, first, count };
            (slot, first) = (slot.saturating_add(1), first.saturating_add(count));
            step
        })
    }

    /// The step from a node to one of those below it, which has this slot there; `None` where `above` has addresses of
    /// data.
    #[must_use]
    pub fn below(self, above: &Step, slot: u32) -> Option<Step> {
        let direct = u64::from(self.direct.max(1));
        if above.count <= direct {
            return None;
        }
        let count = above.count.checked_div(u64::from(ENTRIES_PER_NODE)).unwrap_or(1);
        // Between two nodes of a level lie those below the first.
        let nodes_each = if count > direct { NODES_OF_INDIRECT } else { 1 };
        Some(Step {
            slot,
            offset: above.offset.saturating_add(slot.saturating_mul(nodes_each)).saturating_add(1),
            first: above.first.saturating_add(u64::from(slot).saturating_mul(count)),
            count,
        })
    }

    /// The first block of a file whose address is in the node with this offset. Indirect nodes, which are counted among
    /// the offsets, have none.
    #[must_use]
    pub fn first_of(self, offset: u32) -> u64 {
        // Nodes with addresses before it: all but the indirect ones.
        let direct = match offset {
            0 => return 0,
            1..FIRST_OF_NID4 => {
                let indirect = offset.saturating_add(NODES_OF_INDIRECT).saturating_sub(4) / NODES_OF_INDIRECT;
                offset.saturating_sub(1).saturating_sub(indirect)
            }
            _ => {
                let below = offset.saturating_sub(FIRST_OF_NID4.saturating_add(1));
                let indirect = (below / NODES_OF_INDIRECT).saturating_add(1);
                offset.saturating_sub(4).saturating_sub(indirect)
            }
        };
        u64::from(self.inode).saturating_add(u64::from(direct).saturating_mul(u64::from(self.direct)))
    }
}

/// From the first node below the inode to the address of its block `rest`.
fn descend(top: Step, rest: u64, fanout: Fanout) -> Way {
    let mut way = Way { steps: [top, Step::default(), Step::default()], depth: 1, slot: 0 };
    let (mut above, mut rest) = (top, rest);
    let slot_of = |above: &Step, rest: u64| {
        let each = above.count.checked_div(u64::from(ENTRIES_PER_NODE)).unwrap_or(1);
        u32::try_from(rest.checked_div(each).unwrap_or(0)).unwrap_or(u32::MAX)
    };
    while let Some(step) = fanout.below(&above, slot_of(&above, rest)) {
        if let Some(place) = way.steps.get_mut(way.depth) {
            *place = step;
        }
        way.depth = way.depth.saturating_add(1).min(LEVELS_MAX);
        rest = rest.saturating_sub(step.first.saturating_sub(above.first));
        above = step;
    }
    way.slot = u32::try_from(rest).unwrap_or(u32::MAX);
    way
}

/// Refuses the number of a node that cannot be one: 0 to 2 are reserved.
///
/// # Errors
/// [`Corrupt`], without its place.
pub fn verify_nid(what: &'static str, nid: Nid, nid_count: u32) -> Result<(), Corrupt> {
    let max = u64::from(nid_count).saturating_sub(1);
    crate::error::within(what, u64::from(nid.0), 3, max)
}

/// The part of a block before the footer, which a node of attributes holds.
#[must_use]
pub fn contents(block: &Block) -> &[u8] {
    block.split_at(BLOCK_SIZE.saturating_sub(FOOTER_SIZE)).0
}

const _: () = assert!(ENTRIES_PER_NODE == 1018 && BLOCK_SIZE == 1018 * 4 + FOOTER_SIZE);

/// First byte of a block of a file.
#[must_use]
pub fn first_byte(index: u64) -> u64 {
    index.saturating_mul(to_u64(BLOCK_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FANOUT: Fanout = Fanout { inode: 923, direct: 1018 };

    fn offsets(index: u64) -> (Vec<u32>, u32) {
        let way = FANOUT.way(index).unwrap();
        (way.steps().iter().map(|step| step.offset).collect(), way.slot)
    }

    #[test]
    fn ways_lead_through_the_nodes_that_the_format_counts() {
        let n = 1018_u64;
        assert_eq!(offsets(0), (vec![], 0));
        assert_eq!(offsets(922), (vec![], 922));
        assert_eq!(offsets(923), (vec![1], 0));
        assert_eq!(offsets(923 + n), (vec![2], 0));
        assert_eq!(offsets(923 + 2 * n), (vec![3, 4], 0));
        assert_eq!(offsets(923 + 3 * n + 5), (vec![3, 5], 5));
        let second = 923 + 2 * n + n * n;
        assert_eq!(offsets(second), (vec![1022, 1023], 0));
        let double = second + n * n;
        assert_eq!(offsets(double), (vec![2041, 2042, 2043], 0));
        assert_eq!(offsets(double + n * n + n + 7), (vec![2041, 2042 + 1019, 2042 + 1019 + 2], 7));
        assert_eq!(FANOUT.blocks_max(), double + n * n * n);
        assert!(FANOUT.way(FANOUT.blocks_max() - 1).is_ok() && FANOUT.way(FANOUT.blocks_max()).is_err());
        assert!(FANOUT.way(u64::MAX).is_err());
    }

    #[test]
    fn a_step_knows_what_is_reached_through_it() {
        for index in [923, 5000, 923 + 1018 * 1020 + 3, 1 << 29] {
            let way = FANOUT.way(index).unwrap();
            let last = way.steps().last().unwrap();
            assert_eq!(last.first + u64::from(way.slot), index);
            assert!(way.steps().iter().all(|step| (step.first..step.first + step.count).contains(&index)));
        }
        let n = 1018;
        let far = 923 + 2 * n + 2 * n * n;
        for index in [0, 5, 1000, 2000, 5000, 2 * n * n, far - 1, far, far + n * n + 7, far + 3 * n * n] {
            let way = FANOUT.way(index).unwrap();
            let offset = way.steps().last().map_or(0, |step| step.offset);
            assert_eq!(FANOUT.first_of(offset) + u64::from(way.slot), index, "{offset}");
        }
        let small = Fanout { inode: 870, direct: 1016 }.way(870 + 2 * 1016 + 1016).unwrap();
        assert_eq!((small.steps()[1].offset, small.slot), (5, 0), "clusters do not straddle nodes");
    }

    #[test]
    fn a_built_block_parses() {
        let mut block = [0; BLOCK_SIZE];
        let footer = Footer { next_blkaddr: U32::new(8), ..Footer::new(Nid(6), Nid(5), XATTR_OFFSET) };
        footer.with_marks(true, true, false).put(&mut block);
        entries_mut(&mut block)[1017] = U32::new(9);
        let found = Footer::of(&block);
        assert_eq!((found.nid(), found.ino(), found.offset()), (Nid(6), Nid(5), XATTR_OFFSET));
        assert!(found.is_fsync() && !found.is_dent() && found.flag.get() & FLAG_COLD != 0);
        assert_eq!((entries(&block)[1017].get(), found.next_blkaddr.get()), (9, 8));
        found.with_marks(false, false, true).put(&mut block);
        let found = Footer::of(&block);
        assert_eq!((found.flag.get() & 7, found.offset()), (FLAG_DENT, XATTR_OFFSET));
    }

    #[test]
    fn a_footer_tells_the_kinds_of_nodes_apart() {
        let with = |offset: u32| Footer { flag: U32::new(offset << 3 | 2), ..Footer::new_zeroed() };
        for (offset, is_direct) in
            [(0, true), (1, true), (3, false), (4, true), (1022, false), (2041, false), (2042, false), (2043, true)]
        {
            assert_eq!(with(offset).is_direct(), is_direct, "{offset}");
        }
        assert!(!with(XATTR_OFFSET).is_direct() && with(4).is_fsync() && !with(4).is_dent());
        let error = with(4).verify(Nid(0), Nid(0), 5, BlockAddr(9)).unwrap_err();
        assert_eq!(error.to_string(), "corrupt node footer offset in node 0 at block 9: expected 5, found 4");
    }
}
