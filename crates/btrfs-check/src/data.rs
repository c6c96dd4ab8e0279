//! The data itself against its checksums, on every mirror.

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
use crate::names::holder_of_leaf;
use crate::records::{Ref, tree_number};
use crate::sort::lock;
use crate::threads::in_threads;

/// Bytes that are read at a time; a multiple of every sector size.
const READ_BYTES: usize = 1 << 20;
/// Bad runs that are kept.
const BAD_MAX: usize = 10_000;

/// A run of sectors with a wrong checksum.
#[derive(Clone, Debug)]
pub(crate) struct BadData {
    pub(crate) at: u64,
    len: u64,
    code: Code,
    mirror: u32,
    why: String,
    pub(crate) holder: Option<Ref>,
}

impl BadData {
    pub(crate) fn report(&self, cx: &Context<'_>) {
        let place = match self.holder {
            Some(Ref::Data(root, inode, _)) => Place::inode(tree_number(root), inode),
            Some(Ref::Leaf(leaf)) => holder_of_leaf(&cx.media, leaf, self.at).unwrap_or_default(),
            _ => Place::default(),
        };
        let device = cx.media.place(self.at, self.mirror);
        let place = Place { device, ..place.at(self.at) };
        let expected = format!("{} bytes that match their checksums", self.len);
        cx.findings.add(self.code, place, expected, &self.why);
    }
}

/// Reads all data that has checksums.
pub(crate) fn check(cx: &Context<'_>, leaves: &[u64]) -> Vec<BadData> {
    let mut leaves = leaves.to_vec();
    leaves.sort_unstable();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    in_threads(cx.threads, || {
        let mut buffers = Buffers::default();
        while let Some(leaf) = leaves.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(block) = cx.media.read_block(*leaf) {
                check_leaf(cx, &block, &mut buffers, &found);
            }
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_unstable_by_key(|bad| bad.at);
    found
}

#[derive(Default)]
struct Buffers {
    data: Vec<u8>,
    sums: Vec<u8>,
    /// Whether each sector was right on a copy, and which copy had it wrong.
    right: Vec<bool>,
    wrong: Vec<Option<(u32, bool)>>,
}

fn check_leaf(cx: &Context<'_>, block: &[u8], buffers: &mut Buffers, found: &Mutex<Vec<BadData>>) {
    let leaf = LeafView::new(block);
    let csum_len = cx.media.format.csum_type.len().max(1);
    let sector = usize_from(cx.media.format.sectorsize).max(1);
    let piece = (READ_BYTES / sector).max(1).saturating_mul(csum_len);
    for (key, data) in leaf.iter().filter(|(key, _)| key.item_type == item_type::EXTENT_CSUM) {
        let mut at = Logical(key.offset);
        for sums in data.chunks(piece) {
            check_piece(cx, at.0, sums, buffers, found);
            at = csum_geometry(cx).end(at, sums.len());
        }
    }
}

fn check_piece(cx: &Context<'_>, at: u64, stored: &[u8], buffers: &mut Buffers, found: &Mutex<Vec<BadData>>) {
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
    collect(at, to_u64(sector), buffers, found);
}

/// Makes runs of bad sectors.
fn collect(at: u64, sector: u64, buffers: &Buffers, found: &Mutex<Vec<BadData>>) {
    let mut bad: Vec<BadData> = Vec::new();
    let sectors = (0..).map(|index: u64| at.saturating_add(index.saturating_mul(sector)));
    for (at, (right, wrong)) in sectors.zip(buffers.right.iter().zip(&buffers.wrong)) {
        let Some((mirror, is_read)) = *wrong else { continue };
        let code = match (*right, is_read) {
            (true, _) => Code::DataMirror,
            (false, true) => Code::DataChecksum,
            (false, false) => Code::DataRead,
        };
        let why = if is_read { "others" } else { "a read error" }.to_owned();
        match bad.last_mut() {
            Some(last) if last.at.saturating_add(last.len) == at && last.code == code && last.mirror == mirror => {
                last.len = last.len.saturating_add(sector);
            }
            _ => bad.push(BadData { at, len: sector, code, mirror, why, holder: None }),
        }
    }
    if !bad.is_empty() {
        let mut found = lock(found);
        let room = BAD_MAX.saturating_sub(found.len());
        found.extend(bad.into_iter().take(room));
    }
}
