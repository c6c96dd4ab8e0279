//! How damage is planted: a function that changes an image, or cannot.

use std::sync::Arc;

use blockdev::Device;
use btrfs_check::{Code, Options, Pass, PassTable as _, check};
use btrfs_disk::node::{NodeView, header};
use btrfs_disk::{Key, Logical, TreeId};
use testkit::hostile::Editor;

/// One kind of damage.
#[derive(Clone, Copy)]
pub(crate) struct Plant {
    pub(crate) code: Code,
    pub(crate) name: &'static str,
    /// The device with the damage; `None` where there is nothing to damage in this way.
    pub(crate) plant: fn(&Planted) -> Option<Arc<dyn Device>>,
}

pub(crate) const fn plant(code: Code, name: &'static str, plant: fn(&Planted) -> Option<Arc<dyn Device>>) -> Plant {
    Plant { code, name, plant }
}

/// An image that is about to be damaged.
pub(crate) struct Planted {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) editor: Editor,
}

pub(crate) type Damaged = Option<Arc<dyn Device>>;

/// The findings of a check with all passes.
pub(crate) fn found(device: &Arc<dyn Device>) -> Vec<(Code, u64)> {
    let passes = Pass::all().iter().map(|info| info.pass).collect();
    let options = Options { passes, ..Options::default() };
    check(&[Arc::clone(device)], &options, &()).expect("a check is done, whatever is wrong").counts
}

impl Planted {
    pub(crate) fn done(&self) -> Damaged {
        Some(Arc::clone(&self.device))
    }

    /// All items of a tree.
    pub(crate) fn items(&self, tree: TreeId) -> Vec<(Key, Vec<u8>)> {
        self.editor.items(tree, Key::MIN..=Key::MAX).unwrap_or_default()
    }

    /// The first item of a type that passes.
    pub(crate) fn first(
        &self,
        tree: TreeId,
        kind: u8,
        is_wanted: impl Fn(&Key, &[u8]) -> bool,
    ) -> Option<(Key, Vec<u8>)> {
        self.items(tree).into_iter().find(|(key, data)| key.item_type == kind && is_wanted(key, data))
    }

    /// Changes the bytes of the first item of a type that passes.
    pub(crate) fn change(
        &self,
        (tree, kind): (TreeId, u8),
        is_wanted: impl Fn(&Key, &[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Damaged {
        let (key, _) = self.first(tree, kind, is_wanted)?;
        self.editor.change_item(tree, &key, change).ok()?;
        self.done()
    }

    /// Removes the first accepted item of a type that is not the first of its leaf.
    pub(crate) fn remove(&self, (tree, kind): (TreeId, u8), is_wanted: impl Fn(&Key, &[u8]) -> bool) -> Damaged {
        self.taken(tree, kind, is_wanted)?;
        self.done()
    }

    /// As `remove`; returns the removed item.
    pub(crate) fn taken(
        &self,
        tree: TreeId,
        kind: u8,
        is_wanted: impl Fn(&Key, &[u8]) -> bool,
    ) -> Option<(Key, Vec<u8>)> {
        let items = self.items(tree).into_iter();
        let mut wanted = items.filter(|(key, data)| key.item_type == kind && is_wanted(key, data));
        wanted.find(|(key, _)| self.editor.remove_item(tree, key).is_ok())
    }

    pub(crate) fn put(&self, tree: TreeId, key: Key, data: &[u8]) -> Damaged {
        self.editor.put_item(tree, &key, data).ok()?;
        self.done()
    }

    /// The blocks of a tree at a level.
    pub(crate) fn blocks(&self, tree: TreeId, level: u8) -> Vec<Logical> {
        let Ok((root, _)) = self.editor.root(tree) else { return Vec::new() };
        let mut todo = vec![root];
        let mut found = Vec::new();
        while let Some(at) = todo.pop() {
            let Ok(block) = self.editor.block(at) else { continue };
            let Some(head) = header(&block) else { continue };
            if head.level == level {
                found.push(at);
            } else if head.level > level {
                let node = NodeView::new(&block);
                todo.extend((0..node.nritems()).rev().map(|slot| node.ptr(slot).0));
            }
        }
        found
    }

    pub(crate) fn leaf(&self, tree: TreeId) -> Option<Logical> {
        self.blocks(tree, 0).last().copied()
    }

    /// Changes bytes of a block in all copies, with its checksum.
    pub(crate) fn change_block(&self, at: Logical, change: impl FnOnce(&mut [u8])) -> Damaged {
        self.editor.change_block(at, change).ok()?;
        self.done()
    }

    /// Inverts a byte on the device at each of these places.
    pub(crate) fn rot(&self, places: &[u64]) -> Damaged {
        for place in places {
            let mut byte = [0];
            self.device.read_at(*place, &mut byte).ok()?;
            self.device.write_at(*place, &[&[!byte[0]]]).ok()?;
        }
        self.done()
    }

    /// The tree that block groups are in.
    pub(crate) fn group_tree(&self) -> TreeId {
        if self.editor.root(TreeId::BLOCK_GROUP).is_ok() { TreeId::BLOCK_GROUP } else { TreeId::EXTENT }
    }
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub(crate) fn set_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn add_u64(bytes: &mut [u8], at: usize, more: u64) {
    let value = get_u64(bytes, at).wrapping_add(more);
    set_u64(bytes, at, value);
}

pub(crate) fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A device that cannot read some bytes.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) below: Arc<dyn Device>,
    pub(crate) bad: Vec<u64>,
}

impl Device for Faulty {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        let end = offset + buf.len() as u64;
        if self.bad.iter().any(|bad| (offset..end).contains(bad)) {
            // Past the end there is nothing to be read, which serves as well as a bad sector.
            return self.below.read_at(self.below.size_bytes(), &mut [0]);
        }
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[&[u8]]) -> blockdev::Result<()> {
        panic!("a check never writes")
    }

    fn flush(&self) -> blockdev::Result<()> {
        panic!("a check never flushes")
    }

    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        panic!("a check never discards")
    }

    fn grow(&self, _: u64) -> blockdev::Result<()> {
        panic!("a check never grows")
    }
}
