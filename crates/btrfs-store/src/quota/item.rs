//! Reads quota groups from the items of the quota tree, and writes them back. Read at open, written by the commit
//! (`txn/quotas`).

use btrfs_disk::flags::QgroupStatusFlags;
use btrfs_disk::items::{OnDisk, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem};
use btrfs_disk::key::item_type::{QGROUP_INFO, QGROUP_LIMIT, QGROUP_RELATION, QGROUP_STATUS};
use btrfs_disk::{At, Corrupt, Generation, Key, QgroupId};

use super::groups::{Group, Groups, STATUS_KEY};
use crate::Result;
use crate::tree::{Edit, EditItem, Scan, Tree};

/// Version of the quota items that is written.
const STATUS_VERSION: u64 = 1;

impl Groups {
    /// Reads the groups from the quota tree of a file system whose last transaction was `committed`.
    ///
    /// # Errors
    /// `Corrupt` for an item that cannot be read; those of reading.
    pub(crate) fn load(tree: &Tree, committed: Generation) -> Result<Self> {
        let mut groups = Self::default();
        tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
            groups.add_item(key, bytes).map_err(|error| error.at(At::Key(tree.id(), *key)))?;
            if *key == STATUS_KEY {
                let written = QgroupStatusItem::parse_prefix(bytes)?.0.generation.get();
                groups.check_generation(Generation(written), committed);
            }
            Ok(Scan::Continue)
        })?;
        let known = &groups.groups;
        groups.parents.retain(|(member, parent)| known.contains_key(member) && known.contains_key(parent));
        groups.members = groups.parents.iter().map(|(member, parent)| (*parent, *member)).collect();
        if groups.flags.contains(QgroupStatusFlags::RESCAN) {
            // It is not continued: extents that it had not reached would be counted from zero.
            groups.set_inconsistent("a rescan was not finished");
            groups.flags.remove(QgroupStatusFlags::RESCAN);
        }
        Ok(groups)
    }

    fn check_generation(&mut self, written: Generation, committed: Generation) {
        let is_simple = self.flags.contains(QgroupStatusFlags::SIMPLE_MODE);
        if self.flags.contains(QgroupStatusFlags::ON) && !is_simple && written != committed {
            self.set_inconsistent("they were not kept by the last program that wrote");
        }
    }

    fn add_item(&mut self, key: &Key, bytes: &[u8]) -> Result<(), Corrupt> {
        let id = QgroupId(key.offset);
        match key.item_type {
            QGROUP_STATUS if *key == STATUS_KEY => {
                self.flags = QgroupStatusItem::parse_prefix(bytes)?.0.status_flags();
                self.enable_generation = QgroupStatusItem::enable_generation(bytes);
            }
            QGROUP_INFO if key.objectid == 0 => {
                self.groups.entry(id).or_insert_with(Group::new).info = *QgroupInfoItem::parse_prefix(bytes)?.0;
            }
            QGROUP_LIMIT if key.objectid == 0 => {
                self.groups.entry(id).or_insert_with(Group::new).limit = *QgroupLimitItem::parse_prefix(bytes)?.0;
            }
            // Each relation has an item in both directions.
            QGROUP_RELATION if key.objectid < key.offset => {
                self.parents.insert((QgroupId(key.objectid), id));
            }
            _ => {}
        }
        Ok(())
    }

    /// The changed items and the status, for the commit; clears the list of changes.
    pub(crate) fn take_items(&mut self, generation: Generation) -> Items {
        let mut keys = std::mem::take(&mut self.dirty);
        keys.insert(STATUS_KEY);
        Items(keys.into_iter().map(|key| (key, self.item(&key, generation))).collect())
    }

    /// The bytes of the item with this key; none where it is to be removed.
    fn item(&self, key: &Key, generation: Generation) -> Option<Vec<u8>> {
        let id = QgroupId(key.offset);
        match key.item_type {
            QGROUP_STATUS => Some(self.status(generation)),
            QGROUP_INFO => {
                let info = QgroupInfoItem { generation: generation.0.into(), ..self.groups.get(&id)?.info };
                Some(info.bytes().to_vec())
            }
            QGROUP_LIMIT => Some(self.groups.get(&id)?.limit.bytes().to_vec()),
            _ => {
                let (one, other) = (QgroupId(key.objectid), id);
                let is_there = self.parents.contains(&(one, other)) || self.members.contains(&(one, other));
                is_there.then(Vec::new)
            }
        }
    }

    fn status(&self, generation: Generation) -> Vec<u8> {
        let mut item = QgroupStatusItem::zeroed();
        item.version = STATUS_VERSION.into();
        item.generation = generation.0.into();
        item.flags = self.flags.bits().into();
        let mut bytes = item.bytes().to_vec();
        if let Some(enabled) = self.enable_generation {
            bytes.extend_from_slice(&enabled.0.to_le_bytes());
        }
        bytes
    }
}

/// Items to write, and keys to remove.
pub(crate) struct Items(Vec<(Key, Option<Vec<u8>>)>);

impl Items {
    /// Writes them. Not to be called with the groups locked.
    ///
    /// # Errors
    /// Those of the edits.
    pub(crate) fn write(&self, edit: &Edit<'_>, tree: &Tree) -> Result<()> {
        for (key, item) in &self.0 {
            edit.edit(tree, key, |old| {
                Ok(match (item, old) {
                    (Some(new), old) => EditItem::Put(with_rest(new, old.unwrap_or_default())),
                    (None, Some(_)) => EditItem::Remove,
                    (None, None) => EditItem::Keep,
                })
            })?;
        }
        Ok(())
    }
}

/// Bytes that a newer program wrote behind the known fields stay.
fn with_rest(new: &[u8], old: &[u8]) -> Vec<u8> {
    [new, old.get(new.len()..).unwrap_or_default()].concat()
}
