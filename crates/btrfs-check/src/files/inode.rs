//! Collects the items of one inode, and compares them with each other. Called by `scan`.

use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{DirEntry, FileExtent, FileKind, InodeItem, LinkSizes};
use btrfs_disk::key::item_type;

use super::hash_name;
use super::verity::Verity;
use crate::code::Code;
use crate::context::Context;
use crate::finding::Place;

/// The subvolume of the inodes.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) tree: u64,
    pub(super) has_no_holes: bool,
}

/// Flags that cannot be set on a symbolic link.
const NOT_OF_SYMLINKS: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// The state of an inode whose items are being read.
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) item: Option<InodeItem>,
    /// Names in back references.
    pub(super) names: u64,
    /// Sums over the entries by name, and over those by position; and their numbers.
    by_name: (u128, u64),
    by_index: (u128, u64),
    /// Twice the bytes of the names.
    names_len: u64,
    /// Names that one item has twice: the first of them.
    double: Option<Vec<u8>>,
    is_compressed: bool,
    bytes: u64,
    extents: u64,
    /// Behind the last extent.
    end: u64,
    first_gap: Option<u64>,
    /// The sizes that an inline extent allows for a symbolic link.
    link: Option<LinkSizes>,
    pub(super) verity: Verity,
}

impl Inode {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            item: None,
            names: 0,
            by_name: (0, 0),
            by_index: (0, 0),
            names_len: 0,
            double: None,
            is_compressed: false,
            bytes: 0,
            extents: 0,
            end: 0,
            first_gap: None,
            link: None,
            verity: Verity::default(),
        }
    }

    pub(super) fn kind(&self) -> Option<FileKind> {
        self.item.as_ref().and_then(InodeItem::kind)
    }

    pub(super) fn has_checksums(&self) -> bool {
        self.item.is_some_and(|item| !item.inode_flags().contains(InodeFlags::NODATASUM))
    }

    /// True for an orphan that is being deleted: its items are incomplete.
    pub(super) fn is_going(&self) -> bool {
        self.names == 0 && self.item.is_some_and(|item| item.nlink.get() == 0)
    }

    /// Looks for a name that occurs twice in one item of names with one hash.
    pub(super) fn same_names(&mut self, data: &[u8]) {
        let mut names: Vec<&[u8]> = DirEntry::iter(data).map_while(Result::ok).map(|entry| entry.name).collect();
        names.sort_unstable();
        let double = names.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first());
        if let (Some(name), None) = (double, &self.double) {
            self.double = Some(name.to_vec());
        }
    }

    pub(super) fn entry(&mut self, entry: &DirEntry<'_>, is_index: bool) {
        let location = entry.location();
        let hash = hash_name(location.objectid, location.item_type.into(), 0, entry.name, entry.item.dir_type);
        let (sum, count) = if is_index { &mut self.by_index } else { &mut self.by_name };
        *sum = sum.wrapping_add(hash);
        *count = count.saturating_add(1);
        self.names_len = self.names_len.saturating_add(entry.name.len().try_into().unwrap_or(u64::MAX));
    }

    /// Returns the earliest valid start of the extent, and its start, when it overlaps the one before.
    pub(super) fn extent(&mut self, offset: u64, extent: &FileExtent<'_>, sector: u64) -> Option<(u64, u64)> {
        let len = extent.file_len();
        let overlap = (offset < self.end).then_some((self.end, offset));
        if offset > self.end {
            self.first_gap.get_or_insert(self.end);
        }
        self.extents = self.extents.saturating_add(1);
        let end = offset.saturating_add(len);
        match extent {
            FileExtent::Inline { head, data } => {
                // Kernels do not compress targets.
                let is_plain = head.compression == 0;
                self.link = Some(if is_plain { LinkSizes::of(data) } else { LinkSizes { stored: len, target: len } });
                self.bytes = self.bytes.saturating_add(len);
                self.end = self.end.max(end.checked_next_multiple_of(sector.max(1)).unwrap_or(end));
            }
            FileExtent::Extent(item) => {
                self.is_compressed |= item.head.compression != 0 && !item.is_hole();
                if !item.is_hole() {
                    self.bytes = self.bytes.saturating_add(len);
                }
                self.end = self.end.max(end);
            }
        }
        overlap
    }

    pub(super) fn judge(&self, scan: &View<'_>) {
        let findings = &scan.cx.findings;
        let place = Place::inode(scan.tree, self.number);
        let Some(item) = &self.item else {
            if !scan.cx.lost.has_files() {
                findings.add(Code::FileInodeMissing, place, "an inode item", "none");
            }
            return;
        };
        let Some(kind) = self.kind() else { return };
        if !scan.cx.lost.has_files() && !self.is_going() {
            self.verity.judge(findings, item, &place);
        }
        if kind == FileKind::Directory {
            self.judge_dir(scan, item, &place)
        } else {
            self.judge_file(scan, item, &place)
        }
        let entries = self.by_name.1.saturating_add(self.by_index.1);
        let holds_data = matches!(kind, FileKind::File | FileKind::Symlink);
        if (kind != FileKind::Directory && entries > 0) || (!holds_data && self.extents > 0) {
            let found = format!("{entries} directory entries, {} file extents", self.extents);
            findings.add(Code::FileKindItems, place, format!("the items of a {kind}"), found);
        }
    }

    /// The size that a symbolic link should have, if it is not `size`. Kernels since 6.7 refuse a target in a regular
    /// extent, which btrfs-convert leaves for long targets.
    fn wrong_link(&self, size: u64) -> Option<String> {
        match self.link {
            Some(link) if link.has(size) => None,
            Some(link) => Some(link.target.to_string()),
            None => Some("a target in its item".to_owned()),
        }
    }

    fn judge_dir(&self, scan: &View<'_>, item: &InodeItem, place: &Place) {
        let findings = &scan.cx.findings;
        if self.names > 1 {
            findings.add(Code::FileDirLinks, place.clone(), "one name", self.names);
        } else if u64::from(item.nlink.get()) != self.names {
            findings.add(Code::FileLinkCount, place.clone(), self.names, item.nlink);
        }
        if let Some(name) = &self.double {
            let found = format!("{:?} twice", String::from_utf8_lossy(name));
            findings.add(Code::FileDirDouble, place.clone(), "each name once", found);
        }
        if scan.cx.lost.has_files() || self.is_going() {
            return;
        }
        if item.size.get() != self.names_len {
            findings.add(Code::FileDirSize, place.clone(), self.names_len, item.size);
        }
        if self.by_name != self.by_index {
            compare_entries(scan, self.number, place);
        }
    }

    fn judge_file(&self, scan: &View<'_>, item: &InodeItem, place: &Place) {
        let findings = &scan.cx.findings;
        if u64::from(item.nlink.get()) != self.names {
            findings.add(Code::FileLinkCount, place.clone(), self.names, item.nlink);
        }
        let kind = self.kind();
        if matches!(kind, Some(FileKind::File | FileKind::Symlink))
            && item.nbytes.get() != self.bytes
            && !self.is_going()
            && !scan.cx.lost.has_files()
        {
            findings.add(Code::FileNbytes, place.clone(), self.bytes, item.nbytes);
        }
        let flags = item.inode_flags();
        if kind == Some(FileKind::Symlink) && flags.intersects(NOT_OF_SYMLINKS) {
            let flags = flags.intersection(NOT_OF_SYMLINKS);
            findings.add(Code::FileFlags, place.clone(), "a symbolic link without such flags", flags);
        }
        if self.is_compressed && flags.contains(InodeFlags::NODATASUM) {
            let expected = "checksums, which compressed data has always";
            findings.add(Code::FileCompressed, place.clone(), expected, InodeFlags::NODATASUM);
        }
        if kind == Some(FileKind::Symlink)
            && let Some(expected) = self.wrong_link(item.size.get())
        {
            findings.add(Code::FileSymlink, place.clone(), expected, item.size);
        }
        if kind == Some(FileKind::File) && !scan.has_no_holes && item.nlink.get() > 0 && !scan.cx.lost.has_files() {
            let end = Some(self.end).filter(|end| *end < item.size.get());
            let gap = self.first_gap.filter(|gap| *gap < item.size.get());
            if let Some(gap) = gap.or(end) {
                let found = format!("none at {gap}");
                findings.add(Code::FileHole, place.clone(), format!("extents up to {}", item.size), found);
            }
        }
    }
}

/// Finds the entries of a directory that differ by name and by position.
fn compare_entries(scan: &View<'_>, dir: u64, place: &Place) {
    let mut by_name: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut by_index: Vec<(Vec<u8>, u64)> = Vec::new();
    super::links::items_of(scan.cx, scan.tree, dir, |key, data| {
        let list = match key.item_type {
            item_type::DIR_ITEM => &mut by_name,
            item_type::DIR_INDEX => &mut by_index,
            _ => return,
        };
        let entries = DirEntry::iter(data).map_while(Result::ok);
        list.extend(entries.map(|entry| (entry.name.to_vec(), entry.location().objectid)));
    });
    by_name.sort_unstable();
    by_index.sort_unstable();
    let findings = &scan.cx.findings;
    let shown = |(name, inode): &(Vec<u8>, u64)| format!("{:?} of inode {inode}", String::from_utf8_lossy(name));
    let mut is_explained = false;
    for entry in by_index.iter().filter(|entry| by_name.binary_search(entry).is_err()) {
        is_explained = true;
        findings.add(Code::FileDirItemMissing, place.clone(), format!("an item by the name {}", shown(entry)), "none");
    }
    for entry in by_name.iter().filter(|entry| by_index.binary_search(entry).is_err()) {
        is_explained = true;
        findings.add(Code::FileDirIndexMissing, place.clone(), format!("a position for {}", shown(entry)), "none");
    }
    if !is_explained && by_name.len() == by_index.len() {
        findings.add(Code::FileEntryType, place.clone(), "one type by name and by position", "two");
    } else if !is_explained {
        let (expected, found) = (by_name.len(), by_index.len());
        findings.add_what(Code::FileDirItemMissing, "number of entries", place.clone(), expected, found);
    }
}
