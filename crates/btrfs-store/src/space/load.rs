//! Reads block groups and their free space from disk. Called at open, and when loaded space runs short.

use std::sync::Arc;

use btrfs_disk::convert::to_u64;
use btrfs_disk::items::{BlockGroupItem, OnDisk};
use btrfs_disk::key::item_type::{BLOCK_GROUP_ITEM, EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{At, Corrupt, Detail, Key, TreeId};

use super::Space;
use super::free_map::{FreeMap, Run};
use super::free_space_tree::Reader;
use super::group::{BlockGroup, GroupInfo};
use crate::error::Result;
use crate::tree::{Scan, Tree};
use btrfs_pool::chunk_map::superblock_runs;
use btrfs_pool::{Chunk, Profile};

/// The tree that tells which bytes of a group are free.
#[derive(Clone, Copy, Debug)]
pub enum LoadFrom<'a> {
    /// The free-space tree, valid.
    FreeSpaceTree(&'a Tree),
    /// The extent tree: space without an extent is free.
    ExtentTree(&'a Tree),
}

/// Looks up the block group item of every chunk.
///
/// # Errors
/// `Corrupt` when a chunk has none, or one that differs from it; `Unsupported` for
/// profiles that are refused by name.
pub fn group_infos(tree: &Tree, chunks: &[Arc<Chunk>]) -> Result<Vec<GroupInfo>> {
    chunks.iter().map(|chunk| group_info(tree, chunk)).collect()
}

fn group_info(tree: &Tree, chunk: &Chunk) -> Result<GroupInfo> {
    let key = Key::new(chunk.start().0, BLOCK_GROUP_ITEM, chunk.len_bytes());
    let at = At::Key(tree.id(), key);
    let item = tree.get_with(&key, |bytes| BlockGroupItem::parse(bytes).copied())?;
    let item = item.ok_or_else(|| {
        Corrupt::new("block group of the chunk", Detail::Text("an item"), Detail::Text("none")).at(at)
    })?;
    let item = item.map_err(|error| error.at(at))?;
    if item.group_flags() != chunk.flags() {
        let (expected, found) = (Detail::Hex(chunk.flags().bits()), Detail::Hex(item.flags.get()));
        return Err(Corrupt::new("flags of the block group", expected, found).at(at).into());
    }
    Profile::from_flags(item.group_flags())?;
    Ok(GroupInfo {
        start: chunk.start(),
        len: chunk.len_bytes(),
        flags: chunk.flags(),
        used: item.used.get(),
        excluded: excluded(chunk),
        // A read-only volume does not make its groups read-only: their free space counts as free.
        read_only: false,
        is_only_left: false,
    })
}

/// Where copies of the superblock lie in a chunk.
pub(super) fn excluded(chunk: &Chunk) -> Vec<Run> {
    let runs = superblock_runs(chunk);
    runs.into_iter().map(|(at, len)| Run { start: at.0, len }).collect()
}

/// Reads the free space of a group, so that it can be allocated from. Nothing happens when
/// that was done before.
///
/// To be called without any lock of the space or of trees, and while no commit can change
/// the trees: with a handle of the running transaction, or the commit gate held.
///
/// # Errors
/// `Corrupt` when the free space contradicts itself or the group's use, and whatever
/// reading a tree fails with.
pub fn load_group(space: &Space, group: &Arc<BlockGroup>, from: LoadFrom<'_>) -> Result<()> {
    if group.is_loaded() {
        return Ok(());
    }
    let map = match from {
        LoadFrom::FreeSpaceTree(tree) => from_free_space_tree(space, group.range(), tree)?,
        LoadFrom::ExtentTree(tree) => from_extent_tree(space, group.range(), tree)?,
    };
    space.install(group, map)
}

fn items_of(group: Run) -> (Key, Key) {
    (Key::new(group.start, 0, 0), Key::new(group.end() - 1, u8::MAX, u64::MAX))
}

fn from_free_space_tree(space: &Space, group: Run, tree: &Tree) -> Result<FreeMap> {
    let mut reader = Reader::new(group, space.config.sector_size);
    let (from, to) = items_of(group);
    tree.scan(&from, &to, |key, bytes| {
        reader.push(*key, bytes)?;
        Ok(Scan::Continue)
    })?;
    Ok(reader.finish()?)
}

fn from_extent_tree(space: &Space, group: Run, tree: &Tree) -> Result<FreeMap> {
    let mut gaps = Gaps::new(group, space.config.node_size, space.config.sector_size);
    let (from, to) = items_of(group);
    tree.scan(&from, &to, |key, _| {
        gaps.push(*key)?;
        Ok(Scan::Continue)
    })?;
    Ok(gaps.finish()?)
}

/// Collects the gaps between the extents of a group.
#[derive(Debug)]
struct Gaps {
    group: Run,
    node_size: u64,
    sector_size: u64,
    /// End of the last extent.
    end: u64,
    map: FreeMap,
}

impl Gaps {
    fn new(group: Run, node_size: u64, sector_size: u64) -> Self {
        Self { group, node_size, sector_size, end: group.start, map: FreeMap::default() }
    }

    fn push(&mut self, key: Key) -> Result<(), Corrupt> {
        let len = match key.item_type {
            EXTENT_ITEM => key.offset,
            METADATA_ITEM => self.node_size,
            _ => return Ok(()),
        };
        let end = key.objectid.checked_add(len).filter(|end| *end <= self.group.end());
        let is_aligned = key.objectid.is_multiple_of(self.sector_size) && len.is_multiple_of(self.sector_size);
        match end {
            Some(end) if key.objectid >= self.end && is_aligned => {
                self.gap_until(key.objectid)?;
                self.end = end;
                Ok(())
            }
            _ => {
                let expected = Detail::Range(self.end, self.group.end());
                let found = Detail::Number(key.objectid);
                Err(Corrupt::new("place of the extent", expected, found).at(At::Key(TreeId::EXTENT, key)))
            }
        }
    }

    fn gap_until(&mut self, end: u64) -> Result<(), Corrupt> {
        let run = Run { start: self.end, len: end - self.end };
        self.map
            .insert(run)
            .map_err(|_| Corrupt::new("gap between extents", Detail::AtLeast(self.end), Detail::Number(end)))
    }

    fn finish(mut self) -> Result<FreeMap, Corrupt> {
        self.gap_until(self.group.end())?;
        debug_assert!(to_u64(self.map.run_count()) <= self.group.len);
        Ok(self.map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(keys: &[Key]) -> Result<Vec<Run>, Corrupt> {
        let mut gaps = Gaps::new(Run { start: 1 << 20, len: 1 << 20 }, 16384, 4096);
        for key in keys {
            gaps.push(*key)?;
        }
        Ok(gaps.finish()?.iter().collect())
    }

    #[test]
    fn gaps_between_extents_are_free() {
        let start = 1 << 20;
        let keys = [
            Key::new(start, EXTENT_ITEM, 4096),
            Key::new(start, BLOCK_GROUP_ITEM, 1 << 20),
            Key::new(start + 4096, METADATA_ITEM, 0),
            Key::new(start + 65536, EXTENT_ITEM, 4096),
        ];
        let free = gaps(&keys).unwrap();
        let first = Run { start: start + 20480, len: 45056 };
        let rest = Run { start: start + 69632, len: (1 << 20) - 69632 };
        assert_eq!(free, [first, rest]);
        assert_eq!(gaps(&[]).unwrap(), [Run { start, len: 1 << 20 }]);
    }

    #[test]
    fn extents_that_overlap_or_leave_the_group_are_corrupt() {
        let start = 1 << 20;
        let overlap = [Key::new(start, EXTENT_ITEM, 8192), Key::new(start + 4096, EXTENT_ITEM, 4096)];
        assert!(gaps(&overlap).is_err());
        assert!(gaps(&[Key::new(start, EXTENT_ITEM, 2 << 20)]).is_err());
        assert!(gaps(&[Key::new(start + 4096, EXTENT_ITEM, u64::MAX)]).is_err());
        assert!(gaps(&[Key::new(start, EXTENT_ITEM, 100)]).is_err());
    }
}
