//! Parses, changes and rebuilds extent items: the number of references, and the references that stand in the item.
//!
//! References stand inside the item while there is room, and in items of their own beyond that. Inside they are ordered
//! by type, ascending, and within a type by hash (data references) or number, descending; the kernel refuses anything
//! else. Once a reference has an item of its own, further ones get items too, so that none ever stands in both places.
//! `apply` changes items with it, `backrefs` splits references; `lookup`, `free_check` and the engine use the sizes.

use btrfs_disk::convert::usize_from;
use btrfs_disk::error::{At, Detail};
use btrfs_disk::flags::{ExtentFlags, Incompat};
use btrfs_disk::items::{ExtentItem, ExtentView, InlineRef, TreeBlockInfo};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{ITEM_SIZE, leaf_data_size};
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::{Corrupt, Generation, Key, Logical, TreeId};

use super::ref_change::{ExtentKind, RefKey};
use super::ref_queue::Head;

/// The kernel leaves this much of a leaf to one extent item, less an item header.
const ITEM_SHARE_OF_LEAF: u32 = 16;

/// The parameters of the layout of extent items.
#[derive(Clone, Copy, Debug)]
pub struct ExtentSizes {
    /// Bytes of a tree block.
    pub nodesize: u32,
    /// Tree blocks have `METADATA_ITEM`s (`SKINNY_METADATA`).
    pub is_skinny: bool,
}

impl ExtentSizes {
    /// The parameters of a file system with this superblock.
    #[must_use]
    pub fn of(fields: &DiskSuperblock) -> Self {
        let is_skinny = fields.incompat().contains(Incompat::SKINNY_METADATA);
        Self { nodesize: fields.nodesize.get(), is_skinny }
    }

    /// Bytes of an extent.
    #[must_use]
    pub fn len(&self, kind: ExtentKind) -> u64 {
        match kind {
            ExtentKind::Tree { .. } => self.nodesize.into(),
            ExtentKind::Data { len } => len,
        }
    }

    /// An extent item must stay smaller than this.
    pub(super) fn item_size_limit(&self) -> usize {
        usize_from(leaf_data_size(self.nodesize) / ITEM_SHARE_OF_LEAF).saturating_sub(ITEM_SIZE)
    }

    /// Key of a new extent's item.
    pub(super) fn key(&self, at: Logical, kind: ExtentKind) -> Key {
        match kind {
            ExtentKind::Tree { level } if self.is_skinny => Key::new(at.0, item_type::METADATA_ITEM, level.into()),
            _ => self.fat_key(at, kind),
        }
    }

    /// Key in the old form, which a file system with skinny items may still have for blocks
    /// that were written before it got the feature.
    pub(super) fn fat_key(&self, at: Logical, kind: ExtentKind) -> Key {
        Key::new(at.0, item_type::EXTENT_ITEM, self.len(kind))
    }
}

/// An extent item with everything inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExtentRecord {
    pub(super) refs: u64,
    pub(super) generation: Generation,
    pub(super) flags: ExtentFlags,
    /// First key and level of a tree block, in the old form. The kernel checks the level but never reads the key, so
    /// the key may be outdated, or zero.
    pub(super) info: Option<TreeBlockInfo>,
    pub(super) inline: Vec<InlineRef>,
}

impl RefKey {
    /// The entry for this reference with the given count.
    pub(super) fn counted(self, count: u32) -> InlineRef {
        match self {
            Self::TreeRef { owner } => InlineRef::TreeBlock { root: owner },
            Self::DataRef { root, inode, offset } => InlineRef::Data { root, inode, offset, count },
            Self::SharedTree { parent } => InlineRef::SharedBlock { parent },
            Self::SharedData { parent } => InlineRef::SharedData { parent, count },
        }
    }

    /// The holder and its count; `None` where the entry is no reference.
    pub(super) fn split(entry: &InlineRef) -> Option<(Self, u32)> {
        Some(match *entry {
            InlineRef::Owner { .. } => return None,
            InlineRef::TreeBlock { root } => (Self::TreeRef { owner: root }, 1),
            InlineRef::SharedBlock { parent } => (Self::SharedTree { parent }, 1),
            InlineRef::SharedData { parent, count } => (Self::SharedData { parent }, count),
            InlineRef::Data { root, inode, offset, count } => (Self::DataRef { root, inode, offset }, count),
        })
    }

    /// Key of the item of its own for this reference. Data references whose hashes collide use the offsets that follow.
    pub(super) fn key(self, at: Logical) -> Key {
        let entry = self.counted(1);
        Key::new(at.0, entry.item_type(), entry.sequence())
    }

    /// The error for a reference that is dropped and was not there. It names the extent and the type by the key of the
    /// reference, and the expected holder: for data (subvolume, type, inode).
    #[cold]
    pub(super) fn missing(self, at: Logical) -> Corrupt {
        let expected = match self {
            Self::DataRef { root, inode, .. } => Detail::from(Key::new(root.0, item_type::EXTENT_DATA_REF, inode.0)),
            _ => Detail::Number(self.counted(1).sequence()),
        };
        Corrupt::new("reference to an extent", expected, Detail::Text("none")).at(At::Key(TreeId::EXTENT, self.key(at)))
    }

    /// `old` plus `change`, within the limits of the format's count.
    pub(super) fn changed_count(self, at: Logical, old: u32, change: i64) -> Result<u32, Corrupt> {
        let sum = i64::from(old).saturating_add(change);
        if sum < 0 {
            return Err(self.missing(at));
        }
        let max = if self.is_tree() { 1 } else { u32::MAX };
        u32::try_from(sum).ok().filter(|sum| *sum <= max).ok_or_else(|| {
            let found = Detail::Number(sum.unsigned_abs());
            Corrupt::new("reference count", Detail::AtMost(max.into()), found).at(At::Key(TreeId::EXTENT, self.key(at)))
        })
    }
}

impl ExtentRecord {
    /// The record of an extent without references.
    pub(super) fn new(sizes: &ExtentSizes, kind: ExtentKind, generation: Generation) -> Self {
        let (flags, info) = match kind {
            ExtentKind::Data { .. } => (ExtentFlags::DATA, None),
            ExtentKind::Tree { level } => {
                let info = (!sizes.is_skinny).then(|| TreeBlockInfo { key: Key::MIN.into(), level });
                (ExtentFlags::TREE_BLOCK, info)
            }
        };
        Self { refs: 0, generation, flags, info, inline: Vec::with_capacity(1) }
    }

    /// Parses an item. `key` is its key, which shows whether the item of a tree block has the old or the skinny form.
    pub(super) fn parse(key: &Key, bytes: &[u8]) -> Result<Self, Corrupt> {
        Self::parse_body(key, bytes).map_err(|error| error.at(At::Key(TreeId::EXTENT, *key)))
    }

    fn parse_body(key: &Key, bytes: &[u8]) -> Result<Self, Corrupt> {
        let view = ExtentView::parse(key, bytes)?;
        Ok(Self {
            refs: view.item.refs.get(),
            generation: Generation(view.item.generation.get()),
            flags: view.item.extent_flags(),
            info: view.block_info.copied(),
            inline: view.refs().collect::<Result<_, _>>()?,
        })
    }

    /// Checks that the item is of this kind.
    ///
    /// # Errors
    /// [`Corrupt`] when it is of the other kind.
    pub(super) fn check_kind(&self, key: &Key, kind: ExtentKind) -> Result<(), Corrupt> {
        let wanted = match kind {
            ExtentKind::Tree { .. } => ExtentFlags::TREE_BLOCK,
            ExtentKind::Data { .. } => ExtentFlags::DATA,
        };
        if self.flags.contains(wanted) {
            return Ok(());
        }
        let (expected, found) = (Detail::Hex(wanted.bits()), Detail::Hex(self.flags.bits()));
        Err(Corrupt::new("extent flags", expected, found).at(At::Key(TreeId::EXTENT, *key)))
    }

    /// The item's bytes.
    pub(super) fn build(&self) -> Vec<u8> {
        let item = ExtentItem::new(self.refs, self.generation, self.flags);
        ExtentView::build(&item, self.info.as_ref(), &self.inline)
    }

    fn size(&self) -> usize {
        let info = self.info.map_or(0, |_| size_of::<TreeBlockInfo>());
        let inline: usize = self.inline.iter().map(InlineRef::size).sum();
        size_of::<ExtentItem>() + info + inline
    }

    /// The tree that allocated the data, where the item records it.
    pub(super) fn owner(&self) -> Option<TreeId> {
        self.inline.iter().find_map(|entry| match entry {
            InlineRef::Owner { root } => Some(*root),
            _ => None,
        })
    }

    /// The number of references that stand inside; the others have items of their own.
    pub(super) fn inline_refs(&self) -> u64 {
        self.inline.iter().fold(0, |sum, entry| sum.saturating_add(entry.count()))
    }

    /// Applies the changes of references to the extent at `at`, and returns those that concern items of their own. An
    /// item stays smaller than `size_limit`.
    ///
    /// # Errors
    /// [`Corrupt`] when a reference is dropped that cannot exist.
    pub(super) fn change(
        &mut self,
        at: Logical,
        head: &Head,
        size_limit: usize,
    ) -> Result<Vec<(RefKey, i64)>, Corrupt> {
        let mut has_keyed = self.refs > self.inline_refs();
        let mut keyed = Vec::new();
        let (mut gained, mut lost) = (0u64, 0u64);
        // Drops first: they make room, and show whether the remaining references have items of their own.
        for (key, count) in head.deltas().filter(|(_, count)| *count < 0) {
            lost = lost.saturating_add(count.unsigned_abs());
            match self.position(key) {
                Some(index) => self.change_at(index, at, count)?,
                None if has_keyed => keyed.push((key, count)),
                None => return Err(key.missing(at)),
            }
        }
        for (key, count) in head.deltas().filter(|(_, count)| *count > 0) {
            gained = gained.saturating_add(count.unsigned_abs());
            match self.position(key) {
                Some(index) => self.change_at(index, at, count)?,
                None if !has_keyed && self.size() + key.counted(1).size() < size_limit => {
                    self.insert(key, key.changed_count(at, 0, count)?);
                }
                None => {
                    has_keyed = true;
                    keyed.push((key, count));
                }
            }
        }
        let sum = self.refs.checked_add(gained).and_then(|sum| sum.checked_sub(lost));
        self.refs = sum.filter(|sum| *sum >= self.inline_refs()).ok_or_else(|| {
            Corrupt::new("number of references", Detail::AtLeast(lost), Detail::Number(self.refs))
                .at(At::Key(TreeId::EXTENT, Key::new(at.0, item_type::EXTENT_ITEM, 0)))
        })?;
        Ok(keyed)
    }

    fn position(&self, key: RefKey) -> Option<usize> {
        let is_it = |entry| RefKey::split(entry).is_some_and(|(present, _)| present == key);
        self.inline.iter().position(is_it)
    }

    fn change_at(&mut self, index: usize, at: Logical, change: i64) -> Result<(), Corrupt> {
        let Some(place) = self.inline.get_mut(index) else { return Ok(()) };
        if let Some((key, count)) = RefKey::split(place) {
            match key.changed_count(at, count, change)? {
                0 => drop(self.inline.remove(index)),
                count => *place = key.counted(count),
            }
        }
        Ok(())
    }

    fn insert(&mut self, key: RefKey, count: u32) {
        let entry = key.counted(count);
        // The order that the format requires: by type, then by the complement of the sequence.
        let rank = |entry: &InlineRef| (entry.item_type(), !entry.sequence());
        let index = self.inline.partition_point(|present| rank(present) <= rank(&entry));
        self.inline.insert(index, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use btrfs_disk::InodeNo;

    const AT: Logical = Logical(1 << 20);
    const SIZES: ExtentSizes = ExtentSizes { nodesize: 16384, is_skinny: true };
    const DATA: ExtentKind = ExtentKind::Data { len: 8192 };

    fn file(inode: u64) -> RefKey {
        RefKey::DataRef { root: TreeId(5), inode: InodeNo(inode), offset: 0 }
    }

    fn leaf(parent: u64) -> RefKey {
        RefKey::SharedData { parent: Logical(parent) }
    }

    fn changed(record: &mut ExtentRecord, deltas: &[(RefKey, i64)]) -> Vec<(RefKey, i64)> {
        let head = Head::with_deltas(DATA, false, deltas);
        record.change(AT, &head, SIZES.item_size_limit()).unwrap()
    }

    #[test]
    fn the_inline_limit_is_the_kernels() {
        assert_eq!(SIZES.item_size_limit(), (16384 - 101) / 16 - 25);
    }

    #[test]
    fn references_stand_in_the_order_of_the_format() {
        let mut record = ExtentRecord::new(&SIZES, DATA, Generation(7));
        record.inline.push(InlineRef::Owner { root: TreeId(5) });
        for key in [leaf(4096), file(257), leaf(1 << 16), file(300), file(258)] {
            assert_eq!(changed(&mut record, &[(key, 1)]), []);
        }
        let ranks: Vec<_> = record.inline.iter().map(|entry| (entry.item_type(), !entry.sequence())).collect();
        assert!(ranks.is_sorted());
        assert_eq!((record.refs, record.inline_refs()), (5, 5));
        let key = SIZES.key(AT, DATA);
        assert_eq!(ExtentRecord::parse(&key, &record.build()).unwrap(), record);
    }

    #[test]
    fn a_swap_of_holders_never_passes_through_zero() {
        let mut record = ExtentRecord::new(&SIZES, DATA, Generation(7));
        changed(&mut record, &[(file(257), 1)]);
        changed(&mut record, &[(file(257), -1), (leaf(4096), 1)]);
        assert_eq!(record.inline, [leaf(4096).counted(1)]);
        assert_eq!(record.refs, 1);
    }

    #[test]
    fn what_does_not_fit_goes_elsewhere_and_stays_there() {
        let mut record = ExtentRecord::new(&SIZES, DATA, Generation(7));
        let mut keyed = 0;
        for inode in 257..357 {
            keyed += changed(&mut record, &[(file(inode), 1)]).len();
        }
        assert!(record.build().len() < SIZES.item_size_limit());
        assert_eq!(record.inline.len() + keyed, 100);
        assert_eq!(record.refs, 100);
        // There is room again, but others have items of their own.
        changed(&mut record, &[(file(257), -1)]);
        assert_eq!(changed(&mut record, &[(file(400), 1)]), [(file(400), 1)]);
        assert_eq!(changed(&mut record, &[(file(356), -1)]), [(file(356), -1)]);
        assert_eq!(record.refs, 99);
    }

    #[test]
    fn dropping_a_reference_nobody_holds_names_it() {
        let mut record = ExtentRecord::new(&SIZES, DATA, Generation(7));
        changed(&mut record, &[(file(257), 1)]);
        let head = Head::with_deltas(DATA, false, &[(file(258), -1)]);
        let error = record.change(AT, &head, 1000).unwrap_err().to_string();
        assert!(error.contains("1048576 178") && error.contains("(5 178 258)"), "{error}");
        let head = Head::with_deltas(DATA, false, &[(file(257), -2)]);
        assert!(record.change(AT, &head, 1000).is_err());
    }

    #[test]
    fn a_tree_refers_to_a_block_once() {
        let kind = ExtentKind::Tree { level: 0 };
        let mut record = ExtentRecord::new(&SIZES, kind, Generation(7));
        let key = RefKey::TreeRef { owner: TreeId(5) };
        let head = Head::with_deltas(kind, false, &[(key, 1)]);
        record.change(AT, &head, 1000).unwrap();
        assert!(record.clone().change(AT, &head, 1000).is_err());
        assert!(record.check_kind(&SIZES.key(AT, kind), DATA).is_err());
    }

    #[test]
    fn the_old_form_of_tree_blocks_round_trips() {
        let sizes = ExtentSizes { is_skinny: false, ..SIZES };
        let kind = ExtentKind::Tree { level: 2 };
        let mut record = ExtentRecord::new(&sizes, kind, Generation(7));
        let key = RefKey::SharedTree { parent: Logical(4096) };
        record.change(AT, &Head::with_deltas(kind, true, &[(key, 1)]), 1000).unwrap();
        let key = sizes.key(AT, kind);
        assert_eq!(key, Key::new(AT.0, item_type::EXTENT_ITEM, 16384));
        let bytes = record.build();
        assert_eq!(bytes.len(), 24 + 18 + 9);
        assert_eq!(ExtentRecord::parse(&key, &bytes).unwrap(), record);
    }
}
