//! Checks the names of a directory, and enters their inodes. Called by the walk (`mod.rs`) for each directory of its
//! queue.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use f2fs_disk::dentry::{DEPTH_MAX, Entry, Slots, bucket};
use f2fs_disk::flags::{InlineFlags, InodeFlags};
use f2fs_disk::inode::{Inode, Kind};
use f2fs_disk::{BLOCK_SIZE, BlockAddr, Nid, fold, hash};

use super::contents::File;
use super::{Directory, LedBy, Walk};
use crate::code::Code;
use crate::finding::Place;

/// Links of a directory without directories in it: its name, and `.`.
const LINKS_OF_EMPTY: u32 = 2;

/// Counts of a directory while it is listed.
struct Listing {
    dir: Directory,
    inode: Inode,
    /// Fingerprints of the names so far, to find duplicates: names themselves would take too much memory.
    names: HashSet<u64>,
    directories: u32,
    /// Which of `.` and `..` were seen.
    dots: [bool; 2],
    /// Inodes of the names.
    targets: Vec<(Nid, Option<Kind>)>,
}

impl Walk<'_, '_> {
    /// Lists a queued directory, and enters the inodes of its names.
    pub(super) fn list(&mut self, dir: Directory) {
        let Some((inode, entered)) = self.directory(dir.ino) else { return };
        let mut listing =
            Listing { dir, inode, names: HashSet::new(), directories: 0, dots: [false; 2], targets: Vec::new() };
        let mut file = File::new(&inode);
        self.attributes(&mut file, &entered);
        self.contents(&mut file, &entered, &mut |walk, index, at| walk.names_block(&mut listing, index, at));
        if inode.inline().contains(InlineFlags::DENTRY) {
            let slots = Slots::inline(inode.inline_area(&entered.block));
            self.names(&mut listing, slots, None);
        }
        self.check_file(&file);
        self.check_listing(&listing);
        for (ino, kind) in listing.targets {
            self.enter(ino, LedBy::Name { dir: dir.ino, kind });
        }
    }

    fn names_block(&mut self, listing: &mut Listing, index: u64, at: BlockAddr) {
        let ino = listing.dir.ino;
        match self.volume.media.read(at) {
            Ok(block) => self.names(listing, Slots::of_block(&block), Some(index)),
            Err(error) => {
                let place = Place::inode(ino).file_block(index).at(at);
                self.findings.add(Code::NodeRead, place, "a block of names", error);
            }
        }
        let size = u64::try_from(BLOCK_SIZE).unwrap_or(u64::MAX);
        if index.saturating_mul(size) >= listing.inode.size() {
            let place = Place::inode(ino).file_block(index);
            let expected = format!("a block below the size of {}", listing.inode.size());
            self.findings.add_what(Code::DirPlace, "block", place, expected, index);
        }
    }

    fn names(&mut self, listing: &mut Listing, slots: Slots<'_>, block: Option<u64>) {
        let dir = listing.dir.ino;
        let place = |index: Option<u64>| Place { file_block: index, ..Place::inode(dir) };
        for slot in slots.stray() {
            let expected = "a slot in use for a name, and nothing else in use";
            self.findings.add(Code::DirSlots, place(block), expected, format!("slot {slot}"));
        }
        for entry in slots.entries_from(0) {
            match entry {
                Ok(entry) => self.name(listing, &entry, block),
                Err(error) => self.findings.add_corrupt(Code::DirEntry, place(block), &error),
            }
        }
    }

    fn name(&mut self, listing: &mut Listing, entry: &Entry<'_>, block: Option<u64>) {
        let dir = listing.dir.ino;
        let place = || Place { file_block: block, ..Place::inode(dir) };
        let shown = || entry.name.escape_ascii().to_string();
        let (expected, folded) = self.hash_of(&listing.inode, entry.name);
        if let Some(expected) = expected.filter(|expected| entry.hash != *expected) {
            let (expected, found) = (format!("{expected:#x}"), format!("{:#x}", entry.hash));
            self.findings.add_what(Code::DirHash, &shown(), place(), expected, found);
        }
        if block.is_some_and(|index| !is_in_bucket(&listing.inode, index, entry.hash)) {
            let expected = format!("a bucket of the hash {:#x} in a level that is looked at", entry.hash);
            self.findings.add_what(Code::DirPlace, &shown(), place(), expected, format!("block {block:?}"));
        }
        if !listing.names.insert(fingerprint(folded.as_deref().unwrap_or(entry.name))) {
            self.findings.add(Code::DirDouble, place(), "one name", shown());
            return;
        }
        let dots = match entry.name {
            b"." => Some((0, Some(dir))),
            b".." => Some((1, listing.dir.parent)),
            _ => None,
        };
        let Some((which, expected)) = dots else {
            listing.directories = listing.directories.saturating_add(u32::from(entry.kind == Some(Kind::Directory)));
            listing.targets.push((entry.ino, entry.kind));
            return;
        };
        if let Some(seen) = listing.dots.get_mut(which) {
            *seen = true;
        }
        if expected.is_some_and(|expected| expected != entry.ino) || entry.kind != Some(Kind::Directory) {
            let expected = expected.map_or("a directory".to_owned(), |ino| format!("directory {ino}"));
            let found = format!("{} of type {:?}", entry.ino, entry.kind);
            self.findings.add_what(Code::DirDots, &shown(), place(), expected, found);
        }
    }

    /// The expected hash of a name, if it is known; and its folded form if case is ignored.
    fn hash_of(&self, dir: &Inode, name: &[u8]) -> (Option<u32>, Option<Vec<u8>>) {
        if !dir.flags().contains(InodeFlags::CASEFOLD) || matches!(name, b"." | b"..") {
            return (Some(hash::of_name(name)), None);
        }
        let fields = self.volume.superblock.fields();
        if fields.s_encoding.get() != fold::UTF8_12_1 {
            return (None, None);
        }
        let folded = fold::folded(name);
        (Some(fold::hash(name, folded.as_deref())), folded)
    }

    fn check_listing(&mut self, listing: &Listing) {
        let place = || Place::inode(listing.dir.ino);
        let has_dots = listing.dots == [true; 2];
        // With this flag the kernel makes them when the directory is read.
        if !has_dots && !listing.inode.inline().contains(InlineFlags::DOTS) {
            self.findings.add(Code::DirDots, place(), "`.` and `..`", "not both");
        }
        let is_orphan = listing.dir.parent.is_none();
        let expected = LINKS_OF_EMPTY.saturating_add(listing.directories);
        let counted = listing.inode.fields().i_links.get();
        if !is_orphan && counted != expected {
            self.findings.add(Code::DirLinks, place(), expected, counted);
        }
    }
}

/// Tells names apart: among ten million names two share a fingerprint with a probability of three in a million.
fn fingerprint(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// True if a look-up of a hash reads this block of a directory.
fn is_in_bucket(inode: &Inode, index: u64, hash: u32) -> bool {
    let fields = inode.fields();
    (0..fields.i_current_depth.get().min(DEPTH_MAX)).any(|level| {
        let (first, count) = bucket(level, fields.i_dir_level, hash);
        index.checked_sub(first).is_some_and(|within| within < count)
    })
}
