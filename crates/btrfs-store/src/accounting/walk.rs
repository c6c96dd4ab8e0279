//! Reads the trees of one state of the file system by address. Called by `reach` and `txn/quotas`.

use std::rc::Rc;

use btrfs_disk::error::{At, Detail};
use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Corrupt, Generation, Key, Logical, TreeId};

use crate::Result;
use crate::hash::NumberMap;
use crate::tree::{LEVEL_COUNT_MAX, RootPtr, layout, leaf, node};

/// Copies of blocks that are kept at a time.
const BLOCKS_MAX: usize = 1024;

/// A subvolume in a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subvolume {
    pub(super) root: RootPtr,
    pub(super) last_snapshot: Generation,
}

/// A state of the file system: all that a tree of roots leads to.
pub(crate) struct State<'a> {
    /// Reads a block, of this level, at an address.
    read: &'a dyn Fn(Logical, u8) -> Result<Box<[u8]>>,
    root_tree: RootPtr,
    blocks: NumberMap<u64, Rc<[u8]>>,
    subvolumes: NumberMap<TreeId, Option<Subvolume>>,
}

impl<'a> State<'a> {
    pub(crate) fn new(read: &'a dyn Fn(Logical, u8) -> Result<Box<[u8]>>, root_tree: RootPtr) -> Self {
        Self { read, root_tree, blocks: NumberMap::default(), subvolumes: NumberMap::default() }
    }

    /// A copy of a block.
    pub(super) fn block(&mut self, at: Logical, level: u8) -> Result<Rc<[u8]>> {
        if let Some(block) = self.blocks.get(&at.0) {
            check_level(at, level, layout::level(block))?;
            return Ok(Rc::clone(block));
        }
        let block: Rc<[u8]> = (self.read)(at, level)?.into();
        check_level(at, level, layout::level(&block))?;
        if self.blocks.len() >= BLOCKS_MAX {
            self.blocks.clear();
        }
        self.blocks.insert(at.0, Rc::clone(&block));
        Ok(block)
    }

    /// The subvolume `id`, if there is one.
    pub(super) fn subvolume(&mut self, id: TreeId) -> Result<Option<Subvolume>> {
        if let Some(known) = self.subvolumes.get(&id) {
            return Ok(*known);
        }
        let (from, to) = (Key::new(id.0, ROOT_ITEM, 0), Key::new(id.0, ROOT_ITEM, u64::MAX));
        let mut found = None;
        self.each_item(self.root_tree, &from, &to, |_, key, bytes| {
            found = Some(RootItem::read(bytes).map_err(|error| error.at(At::Key(TreeId::ROOT, *key)))?);
            Ok(())
        })?;
        let subvolume = found.map(|item| {
            let (at, generation) = item.root_block();
            let root = RootPtr { at, level: item.level, generation };
            Subvolume { root, last_snapshot: Generation(item.last_snapshot.get()) }
        });
        self.subvolumes.insert(id, subvolume);
        Ok(subvolume)
    }

    /// Shows the items of a tree from `from` to `to`, each with the address of its leaf.
    pub(super) fn each_item(
        &mut self,
        root: RootPtr,
        from: &Key,
        to: &Key,
        mut f: impl FnMut(Logical, &Key, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut from = *from;
        loop {
            let (at, block, upper) = self.way_down(root, &from, 0)?;
            let start = layout::search(&block, &from).unwrap_or_else(|slot| slot);
            let items = (start..layout::nritems(&block)).map(|slot| leaf::item(&block, slot));
            for (key, bytes) in items.take_while(|(key, _)| key <= to) {
                f(at, &key, bytes)?;
            }
            match upper {
                Some(upper) if upper <= *to && upper > from => from = upper,
                _ => return Ok(()),
            }
        }
    }

    /// The block of this level on the way to `key`, and where the next of its level begins.
    pub(super) fn way_down(&mut self, root: RootPtr, key: &Key, level: u8) -> Result<(Logical, Rc<[u8]>, Option<Key>)> {
        if root.level >= LEVEL_COUNT_MAX || root.level < level {
            return Err(wrong(root.at, "level of the root block", Detail::AtLeast(level.into()), root.level.into()));
        }
        let (mut at, mut here) = (root.at, root.level);
        let mut block = self.block(at, here)?;
        let mut upper = None;
        while here > level {
            let slot = layout::child_slot(&block, key);
            if slot + 1 < layout::nritems(&block) {
                upper = Some(layout::key_at(&block, slot + 1));
            }
            if layout::nritems(&block) == 0 {
                return Err(wrong(at, "pointers of the node", Detail::AtLeast(1), 0));
            }
            let (child, generation) = node::child(&block, slot);
            (at, here) = (child, here - 1);
            block = self.block(at, here)?;
            if layout::generation(&block) != generation.0 {
                let expected = Detail::Number(generation.0);
                return Err(wrong(at, "generation of the tree block", expected, layout::generation(&block)));
            }
        }
        Ok((at, block, upper))
    }
}

fn check_level(at: Logical, expected: u8, found: u8) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(wrong(at, "level of the tree block", Detail::Number(expected.into()), found.into())),
    }
}

#[cold]
pub(super) fn wrong(at: Logical, what: &'static str, expected: Detail, found: u64) -> crate::Error {
    Corrupt::new(what, expected, Detail::Number(found)).at(At::Data(at)).into()
}
