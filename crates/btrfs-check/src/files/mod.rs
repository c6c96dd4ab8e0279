//! Checks inodes and names, in the order of their keys: the file pass. Called by `run`.
//!
//! Nearly all items of an inode are adjacent: `inode` compares them as they are read. Only the other side of a name is
//! elsewhere: an entry of a directory and the back reference of its inode. Both sides are added up as hashes of (inode,
//! directory, position, name, type); where the sums of a subvolume are equal, so are the names, and only otherwise
//! `links` looks for those that differ.
//!
//! A few adjacent leaves are a run, which a thread takes at a time. An inode belongs to the run where its items begin.
//! The result of a run is cached by its leaves and the neighbouring leaves that were read, so that snapshots cost only
//! their own leaves.
//!
//! Failure: findings only; unreadable blocks are skipped, and sums are not compared then.

mod inode;
mod links;
mod scan;
mod verity;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use btrfs_disk::TreeId;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::Incompat;

use crate::code::Code;
use crate::collect::Facts;
use crate::compressed_extents::Streams;
use crate::context::Context;
use crate::csums::Needs;
use crate::finding::Place;
use crate::order::{self, Run};
use crate::sort::lock;
use crate::threads::in_threads;

pub(crate) use scan::SubvolumeEntry;
use scan::{Found, Noted, Scan};

/// The results for other passes.
pub(crate) struct FilesFound {
    /// Data that has to have checksums.
    pub(crate) needs: Needs,
    /// Compressed extents to decompress; none unless data is checked.
    pub(crate) streams: Streams,
    /// Entries that lead to subvolumes: of each tree.
    pub(crate) subvolume_entries: HashMap<u64, Vec<SubvolumeEntry>>,
}

/// The state shared by all subvolumes.
struct Shared<'a> {
    cx: &'a Context<'a>,
    needs: Needs,
    streams: Streams,
    has_no_holes: bool,
    /// Results of runs, each with the leaves behind it.
    known: Mutex<HashMap<RunKey, Vec<Kept>>>,
}

/// A run and the leaf before it.
type RunKey = (Option<u64>, Run);

/// The result of a run, and the leaves behind it that its last inode extends into: equal for equal items.
struct Kept {
    behind: Vec<u64>,
    found: Found,
}

/// Results kept for equal runs with different leaves behind them.
const KEPT_MAX: usize = 4;

/// Checks the inodes of every subvolume.
///
/// # Errors
/// The host's, where records do not fit into memory.
pub(crate) fn check(cx: &Context<'_>, facts: &Facts) -> io::Result<FilesFound> {
    let shared = Shared {
        cx,
        needs: cx.sorter(),
        streams: cx.sorter(),
        has_no_holes: cx.fields.incompat().contains(Incompat::NO_HOLES),
        known: Mutex::default(),
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
        let next = AtomicUsize::new(0);
        let sum = Mutex::new(Found::default());
        in_threads(self.cx.threads.min(runs.len()), || {
            let mut own = Found::default();
            let mut noted = Noted::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= runs.len() {
                    break;
                }
                own.add(&self.run(tree, runs, index, keeps, &mut noted));
                self.needs.take(&mut noted.needs);
                self.streams.take(&mut noted.streams);
            }
            lock(&sum).add(&own);
        });
        sum.into_inner().unwrap_or_default()
    }

    fn run(&self, tree: u64, runs: &[Run], index: usize, keeps: bool, noted: &mut Noted) -> Found {
        let Some(run) = runs.get(index) else { return Found::default() };
        let before = index.checked_sub(1).and_then(|index| runs.get(index)?.last()).copied();
        let further = || {
            let behind = runs.get(index.saturating_add(1)..).unwrap_or_default();
            behind.iter().flat_map(|run| run.iter().copied())
        };
        let key = (before, Arc::clone(run));
        if keeps && let Some(kept) = lock(&self.known).get(&key) {
            let same = kept.iter().find(|kept| scan::goes_on(&kept.behind, further()));
            if let Some(kept) = same {
                return kept.found.clone();
            }
        }
        let mut scan = Scan::new(self.cx, tree, self.has_no_holes, noted);
        let behind = scan.run(before, run, further());
        let found = scan.finish();
        self.cx.watch.add_inodes(found.inodes);
        if keeps {
            let mut known = lock(&self.known);
            let kept = known.entry(key).or_default();
            if kept.len() >= KEPT_MAX {
                kept.remove(0);
            }
            kept.push(Kept { behind, found: found.clone() });
        }
        found
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
