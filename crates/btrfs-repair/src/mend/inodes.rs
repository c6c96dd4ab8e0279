//! Reads the inodes of a subvolume (items, extents, names from all three sides), and computes the right inode items.
//! Called by `names`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::flags::{Incompat, InodeFlags};
use btrfs_disk::items::{
    DirEntry, FileExtent, FileExtentItem, FileKind, InodeExtrefEntry, InodeItem, LinkSizes, OnDisk as _, mode,
};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Generation, Key, TreeId};
use zerocopy::FromZeros as _;

use super::Mending;

/// The target of a name, with the type and the transaction in its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) location: Key,
    pub(super) kind: u8,
    pub(super) transid: u64,
}

/// A name in a back reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) inode: u64,
    pub(super) index: u64,
    pub(super) is_long: bool,
}

/// A name in a directory, according to its three items.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) by_name: Option<Entry>,
    /// Its item by name has it more than once.
    pub(super) is_double: bool,
    pub(super) by_index: Vec<(u64, Entry)>,
    pub(super) known: Vec<Known>,
}

/// The extents of a file.
#[derive(Debug, Default)]
pub(super) struct Extents {
    count: u64,
    bytes: u64,
    end: u64,
    /// For an inline extent: the sizes that the inode of a symbolic link may have.
    inline: Option<LinkSizes>,
    is_compressed: bool,
    gaps: Vec<(u64, u64)>,
    /// Items that overlap the next, cut there.
    cut: Vec<(Key, Vec<u8>)>,
    last: Option<(Key, FileExtentItem)>,
}

/// An inode.
#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) item: Option<InodeItem>,
    pub(super) extents: Extents,
    /// It has entries of a directory.
    pub(super) has_entries: bool,
    /// It has attributes.
    pub(super) has_more: bool,
}

/// A name: directory and bytes.
pub(super) type Name = (u64, Vec<u8>);

/// All inodes of a subvolume.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) links: BTreeMap<Name, Link>,
    pub(super) orphans: BTreeSet<u64>,
    /// Items that do not belong in a subvolume, or that no kernel uses any more.
    pub(super) foreign: Vec<Key>,
    /// The root directory has its own name.
    pub(super) root_is_named: bool,
}

impl Files {
    /// Reads a subvolume.
    pub(super) fn of(mending: &Mending<'_>, tree: TreeId) -> Self {
        let mut files = Self::default();
        let sector = u64::from(mending.image.media.format.sectorsize);
        mending.each(tree, |key, data| files.item(key, data, sector));
        files.forget_deleted();
        files
    }

    /// Entries of a directory that is being deleted do not count.
    fn forget_deleted(&mut self) {
        let named: BTreeSet<u64> = self.links.values().flat_map(|link| &link.known).map(|known| known.inode).collect();
        let (orphans, inodes) = (&self.orphans, &self.inodes);
        self.links.retain(|(dir, _), _| {
            let item = inodes.get(dir).and_then(|inode| inode.item);
            let is_going =
                orphans.contains(dir) && !named.contains(dir) && item.is_some_and(|item| item.nlink.get() == 0);
            !is_going
        });
    }

    fn item(&mut self, key: &Key, data: &[u8], sector: u64) {
        let number = key.objectid;
        if number == objectid::ORPHAN && key.item_type == item_type::ORPHAN_ITEM {
            self.orphans.insert(key.offset);
        }
        if number == objectid::FREE_INO || number == objectid::FREE_SPACE {
            self.foreign.push(*key);
        }
        if !(objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&number) {
            return;
        }
        let inode = self.inodes.entry(number).or_default();
        match key.item_type {
            item_type::INODE_ITEM if key.offset == 0 => {
                if inode.item.is_none() {
                    inode.item = InodeItem::parse(data).ok().copied();
                }
            }
            item_type::INODE_REF | item_type::INODE_EXTREF => self.names(key, data),
            item_type::DIR_ITEM | item_type::DIR_INDEX => {
                inode.has_entries = true;
                self.entries(key, data);
            }
            item_type::EXTENT_DATA => inode.extents.add(key, data, sector),
            item_type::XATTR_ITEM | item_type::VERITY_DESC_ITEM | item_type::VERITY_MERKLE_ITEM => {
                inode.has_more = true;
            }
            _ => self.foreign.push(*key),
        }
    }

    fn names(&mut self, key: &Key, data: &[u8]) {
        for entry in InodeExtrefEntry::iter_either(key, data).map_while(Result::ok) {
            if entry.parent.0 == key.objectid && entry.name == b".." {
                self.root_is_named |= key.objectid == objectid::FIRST_FREE;
                continue;
            }
            let is_long = key.item_type == item_type::INODE_EXTREF;
            let known = Known { inode: key.objectid, index: entry.index, is_long };
            self.links.entry((entry.parent.0, entry.name.to_vec())).or_default().known.push(known);
        }
    }

    fn entries(&mut self, key: &Key, data: &[u8]) {
        for entry in DirEntry::iter(data).map_while(Result::ok) {
            let to = Entry { location: entry.location(), kind: entry.item.dir_type, transid: entry.item.transid.get() };
            let link = self.links.entry((key.objectid, entry.name.to_vec())).or_default();
            if key.item_type == item_type::DIR_INDEX {
                link.by_index.push((key.offset, to));
            } else {
                link.is_double = link.by_name.is_some();
                link.by_name.get_or_insert(to);
            }
        }
    }
}

impl Extents {
    fn add(&mut self, key: &Key, data: &[u8], sector: u64) {
        let Ok(extent) = FileExtent::parse(data) else { return };
        let start = key.offset;
        if start < self.end {
            self.cut_last(start);
        }
        if start > self.end {
            self.gaps.push((self.end, start));
        }
        self.count = self.count.saturating_add(1);
        let len = extent.file_len();
        match extent {
            FileExtent::Inline { head, data } => {
                let is_plain = head.compression == 0;
                self.inline = Some(if is_plain { LinkSizes::of(data) } else { LinkSizes { stored: len, target: len } });
                self.bytes = self.bytes.saturating_add(len);
                self.end = start.saturating_add(len).checked_next_multiple_of(sector.max(1)).unwrap_or(start);
                self.last = None;
            }
            FileExtent::Extent(item) => {
                self.is_compressed |= item.head.compression != 0 && !item.is_hole();
                if !item.is_hole() {
                    self.bytes = self.bytes.saturating_add(len);
                }
                self.end = self.end.max(start.saturating_add(len));
                self.last = Some((*key, *item));
            }
        }
    }

    /// Ends the last extent where the next begins, and no later than its own data.
    fn cut_last(&mut self, next: u64) {
        let Some((key, item)) = self.last.take() else { return };
        let whole = item.num_bytes.get();
        let own = if item.is_hole() { u64::MAX } else { item.head.ram_bytes.get().saturating_sub(item.offset.get()) };
        let len = next.saturating_sub(key.offset).min(own);
        if len == 0 || len >= whole {
            return;
        }
        if !item.is_hole() {
            self.bytes = self.bytes.saturating_sub(whole.saturating_sub(len));
        }
        self.end = key.offset.saturating_add(len);
        let cut = FileExtentItem { num_bytes: len.into(), ..item };
        self.cut.push((key, cut.bytes().to_vec()));
    }
}

impl Inode {
    /// Whether an inode of this type can have these items.
    fn fits(&self, kind: FileKind) -> bool {
        match kind {
            FileKind::Directory => self.extents.count == 0,
            FileKind::File => !self.has_entries,
            FileKind::Symlink => !self.has_entries && self.extents.count == 1,
            _ => !self.has_entries && self.extents.count == 0,
        }
    }

    /// The type: that of the mode if the items fit it, else that of entries, else that of the items.
    pub(super) fn kind(&self, number: u64, of_entries: Option<FileKind>) -> FileKind {
        if number == objectid::FIRST_FREE {
            return FileKind::Directory;
        }
        let of_mode = self.item.as_ref().and_then(InodeItem::kind);
        let kind = of_mode.into_iter().chain(of_entries).find(|kind| self.fits(*kind));
        kind.unwrap_or(if self.has_entries { FileKind::Directory } else { FileKind::File })
    }

    /// True if it exists: it has an inode item, or items that only an inode has.
    pub(super) fn is_there(&self) -> bool {
        self.item.is_some() || self.has_entries || self.has_more || self.extents.count > 0
    }

    /// The present inode item, or a new one that only root may use.
    pub(super) fn item_of(&self, kind: FileKind, generation: u64) -> InodeItem {
        let permissions = if kind == FileKind::Directory { 0o700 } else { 0o600 };
        let new = || InodeItem {
            generation: generation.into(),
            transid: generation.into(),
            size: self.extents.inline.map_or(self.extents.end, |inline| inline.stored).into(),
            mode: permissions.into(),
            ..InodeItem::new_zeroed()
        };
        let item = self.item.unwrap_or_else(new);
        let bits = kind.mode_bits() | item.mode.get() & mode::PERMISSIONS;
        InodeItem { mode: bits.into(), ..item }
    }
}

/// Computes sizes, byte counts, holes and overlaps of the extents of an inode; changes the item and the extents.
pub(super) fn numbers(
    mending: &mut Mending<'_>,
    (tree, number): (TreeId, u64),
    inode: &Inode,
    (kind, item): (FileKind, &mut InodeItem),
) {
    let image = mending.image;
    let extents = &inode.extents;
    if !matches!(kind, FileKind::File | FileKind::Symlink) {
        return;
    }
    for (key, data) in &extents.cut {
        mending.change(tree, *key, Some(data.clone()));
    }
    item.nbytes = extents.bytes.into();
    let mut flags = item.inode_flags();
    if kind == FileKind::Symlink {
        flags.remove(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    }
    if extents.is_compressed {
        // The checksum step makes the checksums, since they are missing then.
        flags.remove(InodeFlags::NODATASUM);
    }
    item.flags = flags.bits().into();
    if kind == FileKind::Symlink
        && let Some(inline) = extents.inline
        && !inline.has(item.size.get())
    {
        item.size = if inline.target > 0 { inline.target } else { inline.stored }.into();
    }
    let needs_holes = !image.fields.incompat().contains(Incompat::NO_HOLES);
    if kind == FileKind::File && needs_holes {
        let sector = u64::from(image.media.format.sectorsize).max(1);
        let size = item.size.get();
        let end = size.checked_next_multiple_of(sector).unwrap_or(size);
        let behind = (extents.end < end).then_some((extents.end, end));
        for (from, to) in extents.gaps.iter().copied().filter(|(from, _)| *from < size).chain(behind) {
            let hole = FileExtentItem::hole(Generation(image.generation()), to.saturating_sub(from));
            let key = Key::new(number, item_type::EXTENT_DATA, from);
            mending.change(tree, key, Some(hole.bytes().to_vec()));
        }
    }
}
