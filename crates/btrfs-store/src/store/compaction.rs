//! Removes block groups that are almost empty: copies their few tree blocks to groups in front of them, and removes the
//! groups. For volumes that were full.
//!
//! A copy is an ordinary edit that changes nothing: the path from the root to the block is copied into the transaction.
//! Blocks that several trees share stay where they are, as an edit in one tree would not move them. Failure: as of
//! every edit. `btrfs::open_volume` calls it when `vfs_impl` syncs a volume, and when a writable volume is closed.

use std::sync::Arc;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::ExtentView;
use btrfs_disk::key::item_type::METADATA_ITEM;
use btrfs_disk::{At, Generation, Key, Logical, TreeId};

use super::{Need, Store};
use crate::space::BlockGroup;
use crate::tree::{BlockSource as _, BlockView, EditItem, ReadExpect, Scan};
use crate::{Error, Result};

/// Most tree blocks of a group that counts as almost empty.
const BLOCKS_LEFT_MAX: u64 = 32;
/// Blocks that have to be free at the destination, for each block: it is copied with the blocks above it, and those are
/// freed only by a commit.
const BLOCKS_FREE_MIN: u64 = 16;
/// Limit on the rounds of one call: each takes a commit or two, and the last one finds nothing to remove.
const ROUNDS_MAX: usize = 4;
/// Items that are reserved for one copy: it may copy a whole path of the deepest tree.
const COPY_ITEMS: u32 = 2;

/// The use bits of block group flags.
const USES: BlockGroupFlags = BlockGroupFlags::DATA.union(BlockGroupFlags::METADATA).union(BlockGroupFlags::SYSTEM);

/// A block that only one tree refers to.
#[derive(Debug)]
struct Straggler {
    owner: TreeId,
    first: Key,
}

impl Store {
    /// Removes block groups that are empty or almost empty, but for one of each profile, so that their space is
    /// available for every kind; returns how many. For a volume that was just committed: later frees are still pinned.
    /// It may commit. Not to be called with an open handle.
    ///
    /// # Errors
    /// As [`Self::give_back_groups`] and [`Self::commit`].
    pub fn gather_groups(&self) -> Result<usize> {
        let mut gone = 0;
        for _ in 0..ROUNDS_MAX {
            let before = gone;
            gone += self.give_back_groups()?;
            if !self.0.options.read_only && self.move_stragglers()? {
                self.commit()?;
                gone += self.give_back_groups()?;
            }
            if gone == before {
                break;
            }
            // The commit frees the blocks of the removed groups' items, and blocks pinned for the last commit.
            self.commit()?;
        }
        Ok(gone)
    }

    /// Copies the blocks of almost empty groups; false where there is none to copy.
    fn move_stragglers(&self) -> Result<bool> {
        if self.0.log.unreplayed.is_waiting() || self.0.core.free_space.is_none() {
            return Ok(false);
        }
        let mut stragglers = Vec::new();
        for group in self.nearly_empty_groups() {
            stragglers.extend(self.stragglers_in(&group)?);
        }
        let Ok(count) = u32::try_from(stragglers.len()) else { return Ok(false) };
        if count == 0 {
            return Ok(false);
        }
        let reservation = match self.reserve_urgent(Need { items: count.saturating_mul(COPY_ITEMS), data: 0 }) {
            Err(Error::NoSpace { .. }) => return Ok(false),
            reserved => reserved?,
        };
        if reservation.items_left() < u64::from(count) {
            return Ok(false);
        }
        self.0.space.start_over();
        let txn = self.begin(reservation)?;
        let mut has_moved = false;
        for Straggler { owner, first } in stragglers {
            let Some(tree) = self.0.trees.try_tree(owner)? else { continue };
            // A copy that changes nothing but the block's place.
            txn.edit(&tree, &first, |_| Ok(EditItem::Keep))?;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Groups of few tree blocks, behind one that has room for all of them.
    fn nearly_empty_groups(&self) -> Vec<Arc<BlockGroup>> {
        let node = self.0.nodesize();
        let mut groups = self.0.space.all_groups();
        groups.retain(|group| group.flags() & USES == BlockGroupFlags::METADATA && !group.is_read_only());
        let has_little = |group: &BlockGroup| (1..=BLOCKS_LEFT_MAX * node).contains(&group.bytes().used);
        let left: u64 =
            groups.iter().map(|group| group.bytes().used).filter(|used| *used <= BLOCKS_LEFT_MAX * node).sum();
        let wanted = left.saturating_mul(BLOCKS_FREE_MIN).max(BLOCKS_LEFT_MAX * node);
        let has_room = |group: &Arc<BlockGroup>| {
            let bytes = group.bytes();
            group.is_loaded() && bytes.total.saturating_sub(bytes.used + bytes.allocated + bytes.pinned) >= wanted
        };
        let Some(first) = groups.iter().position(has_room) else { return Vec::new() };
        groups.split_off(first.saturating_add(1)).into_iter().filter(|group| has_little(group)).collect()
    }

    /// The tree blocks of a group; nothing where one of them cannot be moved, as the group would stay.
    fn stragglers_in(&self, group: &BlockGroup) -> Result<Vec<Straggler>> {
        let engine = &self.0;
        // No commit changes the trees meanwhile, or reuses freed blocks.
        let _serial = engine.gate.serialize();
        let tree = &engine.core.extent;
        let (from, to) = (Key::new(group.range().start, 0, 0), Key::new(group.range().end() - 1, u8::MAX, u64::MAX));
        let mut found: Vec<ReadExpect> = Vec::new();
        let mut is_movable = true;
        tree.scan(&from, &to, |key, bytes| {
            if key.item_type != METADATA_ITEM {
                // Only shared blocks have items for references; other items describe the group.
                return Ok(Scan::Continue);
            }
            let item = ExtentView::parse(key, bytes).map_err(|error| error.at(At::Key(tree.id(), *key)))?.item;
            let level = u8::try_from(key.offset).unwrap_or(u8::MAX);
            is_movable = item.refs.get() == 1 && found.len() < BLOCKS_LEFT_MAX.try_into().unwrap_or(usize::MAX);
            let generation = Generation(item.generation.get());
            found.push(ReadExpect { at: Logical(key.objectid), level, generation, first_key: None, owner: None });
            Ok(if is_movable { Scan::Continue } else { Scan::Stop })
        })?;
        let mut stragglers = Vec::new();
        for expect in found.iter().filter(|_| is_movable) {
            // If a block cannot be read, the group stays; the next operation that needs the block reports the error.
            let Ok(bytes) = engine.reader.read_block(expect) else { return Ok(Vec::new()) };
            let view = BlockView::new(&bytes);
            // A commit that changes anything also writes these two trees; an edit of the root tree makes it do so.
            stragglers.push(match view.owner {
                TreeId::EXTENT | TreeId::FREE_SPACE => Straggler { owner: TreeId::ROOT, first: Key::MIN },
                owner => Straggler { owner, first: view.first_key().unwrap_or(Key::MIN) },
            });
        }
        Ok(stragglers)
    }
}
