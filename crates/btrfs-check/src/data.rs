//! Reads all data and compares it with its checksums, on every mirror: the data pass. Called by `run`, before the
//! sweep.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;

use crate::code::Code;
use crate::collect::csum_geometry;
use crate::context::Context;
use crate::finding::Place;
use crate::marks::{BAD_MAX, BadRun, Marking, StateId};
use crate::names::holder_of_leaf;
use crate::records::{Ref, tree_number};
use crate::sort::lock;
use crate::threads::in_threads;

/// Bytes that are read at a time; a multiple of every sector size.
const READ_BYTES: usize = 1 << 20;

/// A run of sectors with a wrong checksum, and a holder of the extent.
#[derive(Clone, Debug)]
pub(crate) struct BadData {
    pub(crate) run: BadRun,
    pub(crate) holder: Option<Ref>,
}

impl BadRun {
    fn code(&self) -> Code {
        match (self.has_other, self.is_read) {
            (true, _) => Code::DataMirror,
            (false, true) => Code::DataChecksum,
            (false, false) => Code::DataRead,
        }
    }

    /// True where the other run continues this one on the same copy, in the same way.
    fn goes_on(&self, other: &Self) -> bool {
        self.at.saturating_add(self.len) == other.at && (self.code(), self.mirror) == (other.code(), other.mirror)
    }
}

impl BadData {
    /// Its start and end, if no copy has the right checksum.
    pub(crate) fn unread(&self) -> Option<(u64, u64)> {
        let BadRun { at, len, has_other, .. } = self.run;
        (!has_other).then(|| (at, at.saturating_add(len)))
    }

    pub(crate) fn report(&self, cx: &Context<'_>) {
        let BadRun { at, len, mirror, is_read, .. } = self.run;
        let place = match self.holder {
            Some(Ref::Data(root, inode, _)) => Place::inode(tree_number(root), inode),
            Some(Ref::Leaf(leaf)) => holder_of_leaf(&cx.media, leaf, at).unwrap_or_default(),
            _ => Place::default(),
        };
        let device = cx.media.place(at, mirror);
        let place = Place { device, ..place.at(at) };
        let expected = format!("{len} bytes that match their checksums");
        let why = if is_read { "others" } else { "a read error" };
        cx.findings.add(self.run.code(), place, expected, why);
    }
}

/// Reads all data that has checksums, from where an earlier check of the state was ended.
pub(crate) fn check(cx: &Context<'_>, leaves: &[u64]) -> Vec<BadData> {
    let mut leaves = leaves.to_vec();
    leaves.sort_unstable();
    let (marking, mark) = Marking::begin(cx.marks.as_ref(), state(cx, leaves.len()));
    if mark.leaves > 0 {
        cx.note(format!("data: {} bytes, which an earlier check of this state has read", mark.bytes));
        cx.watch.skip_bytes(mark.bytes);
    }
    let next = AtomicUsize::new(usize::try_from(mark.leaves).unwrap_or(leaves.len()));
    let found = Mutex::new(mark.bad);
    in_threads(cx.threads, || {
        let mut buffers = Buffers::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(leaf) = leaves.get(number) else { return };
            buffers.begin_leaf();
            if let Some(block) = cx.media.read_block(*leaf) {
                check_leaf(cx, &block, &mut buffers);
            }
            marking.done(number, buffers.bytes, &buffers.bad);
            let mut found = lock(&found);
            let room = BAD_MAX.saturating_sub(found.len());
            found.extend(buffers.bad.drain(..).take(room));
        }
    });
    marking.end();
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_unstable_by_key(|run| run.at);
    found.into_iter().map(|run| BadData { run, holder: None }).collect()
}

/// The identity of the state that is read.
fn state(cx: &Context<'_>, leaves: usize) -> StateId {
    let fields = &cx.fields;
    StateId { fsid: fields.fsid, generation: fields.generation.get(), csum: fields.csum, leaves: to_u64(leaves) }
}

#[derive(Default)]
struct Buffers {
    data: Vec<u8>,
    sums: Vec<u8>,
    /// Whether each sector was right on a copy, and which copy had it wrong.
    right: Vec<bool>,
    wrong: Vec<Option<(u32, bool)>>,
    /// Bytes read for a leaf, and its bad runs.
    bytes: u64,
    bad: Vec<BadRun>,
}

impl Buffers {
    fn begin_leaf(&mut self) {
        self.bytes = 0;
        self.bad.clear();
    }
}

fn check_leaf(cx: &Context<'_>, block: &[u8], buffers: &mut Buffers) {
    let leaf = LeafView::new(block);
    let csum_len = cx.media.format.csum_type.len().max(1);
    let sector = usize_from(cx.media.format.sectorsize).max(1);
    let piece = (READ_BYTES / sector).max(1).saturating_mul(csum_len);
    for (key, data) in leaf.iter().filter(|(key, _)| key.item_type == item_type::EXTENT_CSUM) {
        let mut at = Logical(key.offset);
        for sums in data.chunks(piece) {
            check_piece(cx, at.0, sums, buffers);
            at = csum_geometry(cx).end(at, sums.len());
        }
    }
}

fn check_piece(cx: &Context<'_>, at: u64, stored: &[u8], buffers: &mut Buffers) {
    let kind = cx.media.format.csum_type;
    let (csum_len, sector) = (kind.len().max(1), usize_from(cx.media.format.sectorsize).max(1));
    let count = stored.len() / csum_len;
    buffers.data.resize(count.saturating_mul(sector), 0);
    buffers.sums.resize(count.saturating_mul(csum_len), 0);
    buffers.right.clear();
    buffers.right.resize(count, false);
    buffers.wrong.clear();
    buffers.wrong.resize(count, None);
    let Some(chunk) = cx.media.chunk(at, to_u64(buffers.data.len())) else { return };
    for mirror in 0..chunk.profile().mirror_count() {
        let whole = cx.media.read_copy(at, &mut buffers.data, mirror);
        cx.watch.add_bytes(to_u64(buffers.data.len()));
        buffers.bytes = buffers.bytes.saturating_add(to_u64(buffers.data.len()));
        let is_read = whole.is_ok();
        if is_read {
            codec::checksum::checksum_many(kind, &buffers.data, sector, &mut buffers.sums);
            if buffers.sums == stored {
                buffers.right.fill(true);
                continue;
            }
        }
        let sums = buffers.sums.chunks(csum_len).zip(stored.chunks(csum_len));
        let flags = buffers.right.iter_mut().zip(&mut buffers.wrong);
        for ((computed, stored), (right, wrong)) in sums.zip(flags) {
            if is_read && computed == stored {
                *right = true;
            } else {
                *wrong = Some((mirror, is_read));
            }
        }
    }
    if chunk.is_parity() {
        compute(cx, at, stored, buffers);
    }
    collect(at, to_u64(sector), buffers);
}

/// Computes sectors that are wrong from parity, and notes those that are right then.
fn compute(cx: &Context<'_>, at: u64, stored: &[u8], buffers: &mut Buffers) {
    let kind = cx.media.format.csum_type;
    let (csum_len, sector) = (kind.len().max(1), usize_from(cx.media.format.sectorsize).max(1));
    let mut bytes = vec![0; sector];
    let sectors = (0..).map(|index: u64| at.saturating_add(index.saturating_mul(to_u64(sector))));
    let flags = buffers.right.iter_mut().zip(&buffers.wrong);
    for ((at, stored), (right, wrong)) in sectors.zip(stored.chunks(csum_len)).zip(flags) {
        if wrong.is_none() || *right {
            continue;
        }
        let mut ways = cx.media.ways(at, sector).into_iter();
        *right = ways.any(|way| {
            cx.media.read_copy(at, &mut bytes, way).is_ok() && codec::checksum::matches(kind, &bytes, stored)
        });
    }
}

/// Makes runs of bad sectors.
fn collect(at: u64, sector: u64, buffers: &mut Buffers) {
    let Buffers { right, wrong, bad, .. } = buffers;
    let sectors = (0..).map(|index: u64| at.saturating_add(index.saturating_mul(sector)));
    let before = bad.len();
    for (at, (right, wrong)) in sectors.zip(right.iter().zip(wrong)) {
        let Some((mirror, is_read)) = *wrong else { continue };
        let run = BadRun { at, len: sector, mirror, is_read, has_other: *right };
        // Each piece begins a run of its own, so that runs do not depend on the size of reads.
        let is_full = bad.len() >= BAD_MAX;
        match bad.get_mut(before..).and_then(<[BadRun]>::last_mut) {
            Some(last) if last.goes_on(&run) => last.len = last.len.saturating_add(sector),
            _ if is_full => {}
            _ => bad.push(run),
        }
    }
}
