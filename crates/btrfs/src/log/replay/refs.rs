//! Replays back references: each name in them is in its directory afterwards. Called by the replay for each inode.

use btrfs_disk::hash::extref_hash;
use btrfs_disk::items::InodeExtrefEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, InodeNo, Key};
use btrfs_store::Txn;

use super::Replay;
use super::names::BackRef;
use crate::error::Result;
use crate::inode::Inode;

/// Items that a name and those in its way change.
const ITEMS_PER_NAME: usize = 24;
/// Items that the item of the references itself changes.
const ITEM_ITEMS: usize = 2;

/// A name in an item of back references.
#[derive(Clone, PartialEq, Eq)]
struct Ref {
    dir: InodeNo,
    index: u64,
    name: Vec<u8>,
}

impl Replay<'_> {
    /// Replays an item of references, of either kind: its names are in their directories afterwards, and other names of
    /// the subvolume's item with this key are removed.
    pub(super) fn refs(&mut self, key: &Key, bytes: &[u8]) -> Result<()> {
        let refs = parse(key, bytes).map_err(|wrong| wrong.at(At::Key(self.log.tree.id(), *key)))?;
        // A directory that was not logged does not exist: the name was not synced.
        let Some(first) = refs.first() else {
            return Ok(());
        };
        if self.find(first.dir)?.is_none() || is_of_root_dir(key) {
            return Ok(());
        }
        let inode = self.inode_of(InodeNo(key.objectid))?;
        for one in &refs {
            let Some(dir) = self.find(one.dir)? else {
                continue;
            };
            if self.is_linked(&dir, inode.ino(), &one.name, one.index)? {
                continue;
            }
            let unlinked = self.change(ITEMS_PER_NAME, |txn| {
                let unlinked = self.make_way(txn, &dir, &inode, one)?;
                self.link(txn, &dir, &inode, &one.name, one.index, BackRef::Logged)?;
                Ok(unlinked)
            })?;
            self.touched.extend(unlinked);
        }
        let old = self.refs_in_subvolume(key)?;
        self.change(ITEM_ITEMS + ITEMS_PER_NAME * old.len(), |txn| {
            for one in old.iter().filter(|old| !has(&refs, old)) {
                let dir = self.inode_of(one.dir)?;
                self.take(txn, &dir, &one.name, &inode)?;
            }
            Ok(txn.put(&self.root.tree, key, bytes)?)
        })
    }

    /// Removes names that conflict with `new`: names of the inode in the same directory that the log no longer has, and
    /// names of other inodes in its place.
    fn make_way(&self, txn: &Txn, dir: &Inode, inode: &Inode, new: &Ref) -> Result<Vec<InodeNo>> {
        let (ino, dir_ino) = (inode.ino(), dir.ino());
        let plain = Key::new(ino.0, item_type::INODE_REF, dir_ino.0);
        for one in self.refs_in_subvolume(&plain)? {
            if !self.log.has_ref(ino, dir_ino, &one.name)? {
                self.take(txn, dir, &one.name, inode)?;
            }
        }
        let extended = Key::new(ino.0, item_type::INODE_EXTREF, extref_hash(dir_ino.0, &new.name));
        let others = self.refs_in_subvolume(&extended)?;
        if has(&others, new) {
            for one in others.iter().filter(|one| one.dir == dir_ino) {
                if !self.log.has_extref(ino, dir_ino, &one.name)? {
                    self.take(txn, dir, &one.name, inode)?;
                }
            }
        }
        self.clear_way(txn, dir, &new.name, new.index)
    }

    fn refs_in_subvolume(&self, key: &Key) -> Result<Vec<Ref>> {
        let refs = self.root.tree.get_with(key, |bytes| parse(key, bytes))?;
        let place = At::Key(self.root.id, *key);
        Ok(refs.transpose().map_err(|wrong| wrong.at(place))?.unwrap_or_default())
    }

    /// How many names an inode has, from its references.
    pub(super) fn count_refs(&self, ino: InodeNo) -> Result<u32> {
        let from = Key::new(ino.0, item_type::INODE_REF, 0);
        let to = Key::new(ino.0, item_type::INODE_EXTREF, u64::MAX);
        let mut count = 0_u32;
        self.root.tree.scan(&from, &to, |key, bytes| {
            let names = parse(key, bytes)?.len();
            count = count.saturating_add(u32::try_from(names).unwrap_or(u32::MAX));
            Ok(btrfs_store::Scan::Continue)
        })?;
        Ok(count)
    }
}

/// The root directory of a subvolume is its own parent, regardless of the log.
fn is_of_root_dir(key: &Key) -> bool {
    key.item_type == item_type::INODE_REF && key.objectid == key.offset
}

fn has(refs: &[Ref], wanted: &Ref) -> bool {
    refs.iter().any(|one| one.dir == wanted.dir && one.name == wanted.name)
}

fn parse(key: &Key, bytes: &[u8]) -> Result<Vec<Ref>, Corrupt> {
    let entries = InodeExtrefEntry::iter_either(key, bytes).map(|entry| {
        let InodeExtrefEntry { parent, index, name } = entry?;
        Ok(Ref { dir: parent, index, name: name.to_vec() })
    });
    entries.collect()
}
