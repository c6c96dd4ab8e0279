//! Records the contents of a file in the log: extents, holes, checksums. Called by `inode`.

use btrfs_disk::Logical;
use btrfs_store::ablation::{Mutation, mutated};

use super::ITEMS_MAX;
use super::extents::{Source, Stretch, join};
use super::recorder::{Recorder, Result, Stop};
use crate::extents::FILE_BYTES_MAX;
use crate::inode::{Inode, InodeFlags};
use crate::notes::Note;

/// The changes of a file's contents.
#[derive(Default)]
pub(super) struct Contents {
    stretches: Vec<Stretch>,
    csums: Vec<(Logical, Vec<u8>)>,
}

impl Recorder<'_> {
    /// The changes of a file's contents, if they are not too many.
    pub(super) fn contents(&self, inode: &Inode, note: &Note) -> Result<Contents> {
        let stretches = self.stretches(inode, note)?;
        let csums = self.csums(inode, &stretches)?;
        Ok(Contents { stretches, csums })
    }

    pub(super) fn put_contents(&mut self, contents: Contents) {
        for Stretch { first, last, items, .. } in contents.stretches {
            self.plan.replace(first, last, items.into_iter().map(|item| (item.key, item.bytes)).collect());
        }
        for (at, csums) in contents.csums.into_iter().filter(|_| !mutated(Mutation::NoCsums)) {
            self.plan.put_csums(at, csums);
        }
    }

    /// The stretches of the contents that changed, if they have not too many items.
    fn stretches(&self, inode: &Inode, note: &Note) -> Result<Vec<Stretch>> {
        let sector = self.names.core.store.sizes().sector;
        let is_whole = self.is_new(inode) && !note.is_logged;
        let everything = 0..FILE_BYTES_MAX;
        let ranges = if is_whole { vec![everything] } else { join(note.ranges.clone()) };
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let disk_size = inode.state().disk_size;
        let needs_holes = !self.is_new(inode) && !mutated(Mutation::NoHoles);
        let holes_below = if needs_holes { disk_size.next_multiple_of(sector.into()) } else { 0 };
        let log = self.txn.log(inode.tree_id())?;
        let source = Source { tree: &inode.root.tree, log: log.tree(), ino: inode.ino(), sector, holes_below };
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut count = 0;
        for range in ranges {
            // A stretch that was widened may include this one.
            if stretches.last().is_some_and(|last| last.range.end >= range.end) {
                continue;
            }
            let from = stretches.last().map_or(0, |last| last.range.end);
            let stretch = source.stretch(range.start.max(from)..range.end)?;
            count += stretch.items.len();
            stretches.push(stretch);
        }
        if count > ITEMS_MAX { Err(Stop::NeedsCommit) } else { Ok(stretches) }
    }

    /// Checksums of the data that this transaction wrote.
    fn csums(&self, inode: &Inode, stretches: &[Stretch]) -> Result<Vec<(Logical, Vec<u8>)>> {
        let store = &self.names.core.store;
        let mut csums = Vec::new();
        if inode.state().flags.contains(InodeFlags::NODATASUM) {
            return Ok(csums);
        }
        let sector = u64::from(store.sizes().sector);
        let items = stretches.iter().flat_map(|stretch| &stretch.items);
        for item in items.filter(|item| item.extent.generation == self.txn.generation()) {
            let Some((at, len)) = item.data() else { continue };
            for (index, bytes) in store.data_csums(at, len)?.runs() {
                let offset = btrfs_disk::convert::to_u64(index) * sector;
                csums.push((Logical(at.0 + offset), bytes.to_vec()));
            }
        }
        Ok(csums)
    }
}
