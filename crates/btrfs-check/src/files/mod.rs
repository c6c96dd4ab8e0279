//! Checks inodes and names, in the order of their keys: the file pass. Called by `run`.
//!
//! Nearly all items of an inode are adjacent: `inode` compares them as they are read. Only the other side of a name is
//! elsewhere: an entry of a directory and the back reference of its inode. Both sides are added up as hashes of (inode,
//! directory, position, name, type); where the sums of a subvolume are equal, so are the names, and only otherwise
//! `links` looks for those that differ.
//!
//! A few adjacent leaves are a run, which a thread takes at a time. An inode belongs to the run where its items begin.
//! The result of a run is kept by its leaves and the neighbouring leaves that were read ([`kept`]), and so are those of
//! its leaves, so that snapshots cost only their own leaves.
//!
//! Failure: findings only; unreadable blocks are skipped, and sums are not compared then.

mod inode;
mod kept;
mod links;
mod scan;
mod verity;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use btrfs_disk::TreeId;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::Incompat;
use btrfs_disk::key::item_type;

use crate::code::Code;
use crate::collect::Facts;
use crate::compressed_extents::Streams;
use crate::context::Context;
use crate::csums::Needs;
use crate::finding::Place;
use crate::order::{self, Run};
use crate::sort::lock;
use crate::threads::in_threads;

use kept::{Cache, Kept, Stretch};
pub(crate) use scan::SubvolumeEntry;
use scan::{Blocks, Found, Noted, Scan};

/// The results for other passes.
pub(crate) struct FilesFound {
    /// Data that has to have checksums.
    pub(crate) needs: Needs,
    /// Compressed extents to decompress; none unless data is checked.
    pub(crate) streams: Streams,
    /// Entries that lead to subvolumes which have a name in this tree, of each tree. A snapshot also has the entries of
    /// the subvolumes that its source contained.
    pub(crate) subvolume_entries: HashMap<u64, Vec<SubvolumeEntry>>,
}

/// The state shared by all subvolumes.
struct Shared<'a> {
    cx: &'a Context<'a>,
    needs: Needs,
    streams: Streams,
    has_no_holes: bool,
    /// Subvolumes and those that contain them.
    edges: HashSet<(u64, u64)>,
    /// Results of runs, and of the leaves of runs that some subvolumes have changed.
    runs: Cache<Run>,
    leaves: Cache<u64>,
}

/// Fewest runs without a known result for which a thread begins.
const RUNS_PER_THREAD: usize = 4;

/// Checks the inodes of every subvolume.
///
/// # Errors
/// The host's, where records do not fit into memory.
pub(crate) fn check(cx: &Context<'_>, facts: &Facts) -> io::Result<FilesFound> {
    let down = facts.root_refs.iter().filter(|(key, ..)| key.item_type == item_type::ROOT_REF);
    let shared = Shared {
        cx,
        needs: cx.sorter(),
        streams: cx.sorter(),
        has_no_holes: cx.fields.incompat().contains(Incompat::NO_HOLES),
        edges: down.map(|(key, ..)| (key.objectid, key.offset)).collect(),
        runs: Cache::default(),
        leaves: Cache::default(),
    };
    let mut subvolume_entries = HashMap::new();
    let has_several = facts.roots.iter().filter(|(key, _)| TreeId(key.objectid).is_subvolume()).count() > 1;
    for (key, item) in &facts.roots {
        // A subvolume that is being deleted is incomplete.
        if !TreeId(key.objectid).is_subvolume() || item.refs.get() == 0 {
            continue;
        }
        let runs = order::runs(&cx.media, item.bytenr.get(), item.level);
        let found = shared.subvolume(key.objectid, &runs, has_several);
        shared.judge(key.objectid, &runs, &found)?;
        subvolume_entries.insert(key.objectid, found.subvolumes);
    }
    Ok(FilesFound { needs: shared.needs, streams: shared.streams, subvolume_entries })
}

impl Shared<'_> {
    fn subvolume(&self, tree: u64, runs: &[Run], keeps: bool) -> Found {
        let is_inside = |child: u64| self.edges.contains(&(tree, child));
        let mut sum = Found::default();
        let mut missing: Vec<Stretch<'_>> = Vec::new();
        for stretch in (0..runs.len()).filter_map(|index| Stretch::of(runs, index)) {
            let known = if keeps { self.runs.get(&stretch.key(), || stretch.further()) } else { None };
            match known {
                Some(kept) => sum.add(&kept.found, is_inside),
                None => missing.push(stretch),
            }
        }
        let next = AtomicUsize::new(0);
        let sum = Mutex::new(sum);
        // Of a snapshot few runs are missing: to start threads would take longer than to read them.
        in_threads(self.cx.threads.min(missing.len().div_ceil(RUNS_PER_THREAD)), || {
            let mut own = Found::default();
            let (mut noted, mut blocks) = (Noted::default(), Blocks::new(&self.cx.media));
            while let Some(stretch) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut scan = |before, leaves: &[u64], behind: &mut dyn Iterator<Item = u64>| {
                    self.scan(tree, (before, leaves, behind), &mut noted, &mut blocks)
                };
                let found = match keeps {
                    true => self.by_leaves(*stretch, scan),
                    false => scan(stretch.before, stretch.run, &mut stretch.further()).found,
                };
                own.add(&found, is_inside);
                self.needs.take(&mut noted.needs);
                self.streams.take(&mut noted.streams);
            }
            lock(&sum).add(&own, |_| true);
        });
        sum.into_inner().unwrap_or_default()
    }

    /// The result of a run from those of its leaves, which are kept, too: of a snapshot that changed one leaf, only
    /// that and its neighbours are read.
    fn by_leaves(
        &self,
        stretch: Stretch<'_>,
        mut scan: impl FnMut(Option<u64>, &[u64], &mut dyn Iterator<Item = u64>) -> Kept,
    ) -> Arc<Found> {
        let (mut sum, mut behind) = (Found::default(), Vec::new());
        let mut before = stretch.before;
        for (slot, leaf) in stretch.run.iter().enumerate() {
            let rest = stretch.run.get(slot.saturating_add(1)..).unwrap_or_default();
            let further = || rest.iter().copied().chain(stretch.further());
            let key = (before, *leaf);
            let kept = self.leaves.get(&key, further).unwrap_or_else(|| {
                let kept = scan(before, &[*leaf], &mut further());
                self.leaves.put(key, kept.clone());
                kept
            });
            sum.add(&kept.found, |_| true);
            let beyond = kept.behind.get(rest.len()..).unwrap_or_default();
            if beyond.len() > behind.len() {
                behind = beyond.to_vec();
            }
            before = Some(*leaf);
        }
        let found = Arc::new(sum);
        self.runs.put(stretch.key(), Kept { behind, found: Arc::clone(&found) });
        found
    }

    fn scan(
        &self,
        tree: u64,
        (before, leaves, behind): (Option<u64>, &[u64], &mut dyn Iterator<Item = u64>),
        noted: &mut Noted,
        blocks: &mut Blocks<'_>,
    ) -> Kept {
        let mut scan = Scan::new(self.cx, tree, self.has_no_holes, noted);
        let behind = scan.run(before, leaves, behind, blocks);
        let found = scan.finish();
        self.cx.watch.add_inodes(found.inodes);
        Kept { behind, found: Arc::new(found) }
    }

    fn judge(&self, tree: u64, runs: &[Run], found: &Found) -> io::Result<()> {
        let findings = &self.cx.findings;
        if self.cx.lost.has_files() {
            self.cx.note("files: names were not compared, as tree blocks are lost");
            return Ok(());
        }
        if !found.has_root {
            let place = Place::inode(tree, btrfs_disk::key::objectid::FIRST_FREE);
            findings.add(Code::FileRootDir, place, "the directory with the number 256", "none");
        }
        let orphans: std::collections::BTreeSet<u64> = found.orphans.iter().copied().collect();
        let unnamed: std::collections::BTreeSet<u64> = found.unnamed.iter().copied().collect();
        for inode in unnamed.difference(&orphans) {
            findings.add(Code::FileOrphan, Place::inode(tree, *inode), "an orphan item, or a name", "neither");
        }
        for inode in orphans.difference(&unnamed) {
            // An inode with names is not an orphan any more, which a mount sees.
            if !links::exists(self.cx, runs, *inode) {
                findings.add(Code::FileOrphanItem, Place::inode(tree, *inode), "an inode", "none");
            }
        }
        if found.entries != found.refs {
            links::find(self.cx, tree, runs)?;
        }
        Ok(())
    }
}

/// Hash of a name, to be added up: equal sums mean equal names, in any order. Not keyed: a check does not have to
/// detect a file system made to have other names with equal sums.
pub(super) fn hash_name(inode: u64, dir: u64, index: u64, name: &[u8], kind: u8) -> u128 {
    let mut state = (0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f);
    for value in [inode, dir, index, u64::from(kind), to_u64(name.len())] {
        state = mix(state, value);
    }
    for part in name.chunks(8) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        state = mix(state, u64::from_le_bytes(bytes));
    }
    let (a, b) = mix(state, state.0.rotate_left(32));
    u128::from(a) << 64 | u128::from(b)
}

fn mix((a, b): (u64, u64), value: u64) -> (u64, u64) {
    let a = (a ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let b = (b.rotate_left(23) ^ value).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (a ^ a >> 32, b ^ b >> 29)
}
