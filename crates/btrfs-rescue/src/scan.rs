//! Finds every tree block on the devices by its header and checksum: the scan.
//!
//! A header records the file system, logical address, tree, level and generation, so an unreferenced block can serve as
//! another mirror, as a leaf of a tree with lost nodes, or as the root of an older state. Holes of sparse images are
//! skipped. `Blocks` calls it once, when the first block is missing.
//!
//! Invariants: a block is listed only if its checksum matches; at most [`RECORDS_MAX`] blocks are kept, and
//! [`Table::is_cut`] is set if there were more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use blockdev::Device;
use btrfs_check::Disk;
use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::node::{BlockView, CSUM_FIELD_SIZE, LEVELS_MAX, header};
use btrfs_disk::verify::{Format, has_right_checksum};
use btrfs_disk::{Key, Uuid};

use crate::locks::lock;
use crate::watch::Watch;

/// Tree blocks that are remembered; about 100 bytes each.
pub const RECORDS_MAX: usize = 4 << 20;
/// Limit on bytes per read.
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Minimum number of pieces of a small device, so that its holes are skipped.
const PIECES_MIN: u64 = 64;
/// Size of reads after a read error.
const SMALL_BYTES: u64 = 64 << 10;
/// Alignment of tree blocks.
pub(crate) const STEP_BYTES: u64 = 4096;

/// A tree block found by the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) logical: u64,
    pub(crate) generation: u64,
    pub(crate) owner: u64,
    pub(crate) first: Key,
    /// The last key; for a node, that of its last pointer.
    pub(crate) last: Key,
    pub(crate) physical: u64,
    /// Index of the device.
    pub(crate) device: u16,
    pub(crate) level: u8,
}

/// All tree blocks found.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By address, newest first.
    blocks: Vec<Found>,
    /// Indexes of `blocks` by owner and level, newest first.
    by_owner: Vec<u32>,
    pub(crate) is_cut: bool,
}

impl Table {
    /// Scans all devices.
    pub(crate) fn read(disks: &[Disk], format: &Format, threads: usize, watch: &dyn Watch) -> Self {
        let scan = Scan { disks, format, watch, found: Mutex::default(), is_cut: AtomicBool::new(false) };
        watch.begin(disks.iter().map(|disk| disk.device.size_bytes()).sum());
        for index in 0..disks.len() {
            scan.device(index, threads);
        }
        watch.end();
        let is_cut = scan.is_cut.into_inner();
        let mut blocks = scan.found.into_inner().unwrap_or_default();
        blocks.sort_unstable_by_key(|found| {
            (found.logical, std::cmp::Reverse(found.generation), found.device, found.physical)
        });
        let mut by_owner: Vec<u32> = (0..u32::try_from(blocks.len()).unwrap_or(u32::MAX)).collect();
        let of = |index: &u32| blocks.get(usize_from(*index));
        by_owner.sort_by_key(|index| {
            of(index).map(|found| (found.owner, found.level, std::cmp::Reverse(found.generation)))
        });
        Self { blocks, by_owner, is_cut }
    }

    /// Copies of the block with this address and, if given, this generation.
    pub(crate) fn copies(&self, at: u64, generation: Option<u64>) -> impl Iterator<Item = &Found> {
        let start = self.blocks.partition_point(|found| found.logical < at);
        let same = self.blocks.get(start..).unwrap_or_default().iter().take_while(move |found| found.logical == at);
        same.filter(move |found| generation.is_none_or(|generation| generation == found.generation))
    }

    /// Blocks of a tree and level, newest first.
    pub(crate) fn of(&self, owner: u64, level: u8) -> impl Iterator<Item = &Found> {
        let get = |index: &u32| self.blocks.get(usize_from(*index));
        let key = move |index: &u32| get(index).map(|found| (found.owner, found.level));
        let start = self.by_owner.partition_point(|index| key(index) < Some((owner, level)));
        let rest = self.by_owner.get(start..).unwrap_or_default();
        rest.iter().filter_map(get).take_while(move |found| (found.owner, found.level) == (owner, level))
    }

    /// All blocks, by address.
    pub(crate) fn all(&self) -> &[Found] {
        &self.blocks
    }

    /// The trees that have blocks.
    pub(crate) fn owners(&self) -> Vec<u64> {
        let mut owners: Vec<u64> = Vec::new();
        for found in self.by_owner.iter().filter_map(|index| self.blocks.get(usize_from(*index))) {
            if owners.last() != Some(&found.owner) {
                owners.push(found.owner);
            }
        }
        owners
    }
}

/// Starts of the pieces of a device to read. Holes are skipped and count as read.
struct Pieces<'a> {
    device: &'a dyn Device,
    watch: &'a dyn Watch,
    next: u64,
    piece_bytes: u64,
}

impl<'a> Pieces<'a> {
    fn of(device: &'a dyn Device, watch: &'a dyn Watch) -> Self {
        Self { device, watch, next: 0, piece_bytes: piece_bytes(device) }
    }
}

/// Bytes per read of a device.
fn piece_bytes(device: &dyn Device) -> u64 {
    let bytes = (device.size_bytes() / PIECES_MIN).clamp(SMALL_BYTES, PIECE_BYTES_MAX);
    bytes - bytes % STEP_BYTES
}

impl Iterator for Pieces<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // A header is never all zeros, so no block begins a step or more before the end of a hole.
        let data = self.device.next_data(self.next);
        let start = (data - data % STEP_BYTES).max(self.next);
        self.watch.add_bytes(start.min(self.device.size_bytes()).saturating_sub(self.next));
        self.next = start.saturating_add(self.piece_bytes);
        (start < self.device.size_bytes()).then_some(start)
    }
}

struct Scan<'a> {
    disks: &'a [Disk],
    format: &'a Format,
    watch: &'a dyn Watch,
    found: Mutex<Vec<Found>>,
    is_cut: AtomicBool,
}

impl Scan<'_> {
    fn device(&self, index: usize, threads: usize) {
        let Some(disk) = self.disks.get(index) else { return };
        let number = u16::try_from(index).unwrap_or(u16::MAX);
        let pieces = Mutex::new(Pieces::of(&*disk.device, self.watch));
        let work = || {
            let mut buffer = Vec::new();
            while !self.is_cut.load(Ordering::Relaxed) {
                let Some(start) = lock(&pieces).next() else { return };
                self.piece(&*disk.device, number, start, &mut buffer);
            }
        };
        if threads <= 1 {
            return work();
        }
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }

    /// Examines the blocks that begin in a piece.
    fn piece(&self, device: &dyn Device, number: u16, start: u64, buffer: &mut Vec<u8>) {
        let node = u64::from(self.format.nodesize);
        let (size, piece_bytes) = (device.size_bytes(), piece_bytes(device));
        let want = (piece_bytes + node).min(size.saturating_sub(start));
        read_what_can_be(device, start, want, buffer);
        let mut found = Vec::new();
        let mut offset = 0;
        while offset < piece_bytes {
            let from = to_usize(offset);
            let Some(block) = buffer.get(from..from.saturating_add(usize_from(self.format.nodesize))) else { break };
            match recognise(block, self.format) {
                Some(mut one) => {
                    one.device = number;
                    one.physical = start + offset;
                    found.push(one);
                    offset += node.max(STEP_BYTES);
                }
                None => offset += STEP_BYTES,
            }
        }
        self.watch.add_bytes(want.min(piece_bytes));
        let mut all = lock(&self.found);
        let room = RECORDS_MAX.saturating_sub(all.len());
        if found.len() > room {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        all.extend(found.into_iter().take(room));
    }
}

/// Reads a range. Unreadable parts become zeros.
pub(crate) fn read_what_can_be(device: &dyn Device, start: u64, len: u64, buffer: &mut Vec<u8>) {
    // The buffer keeps bytes of the previous piece, and the read overwrites them.
    buffer.resize(to_usize(len), 0);
    if device.read_at(start, buffer).is_ok() {
        return;
    }
    let mut at = start;
    for part in buffer.chunks_mut(to_usize(SMALL_BYTES)) {
        if device.read_at(at, part).is_err() {
            part.fill(0);
            let mut at = at;
            for small in part.chunks_mut(to_usize(STEP_BYTES)) {
                if device.read_at(at, small).is_err() {
                    small.fill(0);
                }
                at = at.saturating_add(STEP_BYTES);
            }
        }
        at = at.saturating_add(to_u64(part.len()));
    }
}

/// Parses a tree block of this file system with a matching checksum.
fn recognise(block: &[u8], format: &Format) -> Option<Found> {
    let head = header(block)?;
    let is_likely = format.has_fsid(head.fsid) && head.level < LEVELS_MAX && is_address(head.bytenr.get());
    if !is_likely || !has_right_checksum(block, format.csum_type) {
        return None;
    }
    let (first, last) = ends(block)?;
    Some(Found {
        logical: head.bytenr.get(),
        generation: head.generation.get(),
        owner: head.owner.get(),
        first,
        last,
        physical: 0,
        device: 0,
        level: head.level,
    })
}

fn is_address(at: u64) -> bool {
    at != 0 && at.is_multiple_of(STEP_BYTES)
}

/// The first and last key of a block; `None` for an empty leaf, or if they are out of order.
fn ends(block: &[u8]) -> Option<(Key, Key)> {
    BlockView::new(block)?.ends().filter(|(first, last)| first <= last)
}

/// Votes after which a format wins.
const VOTES_ENOUGH: u32 = 200;
/// Limit on blocks tried; each is hashed up to twenty times.
const TRIES_MAX: u32 = 100_000;
const NODE_SIZES: [u32; 5] = [16 << 10, 4 << 10, 64 << 10, 32 << 10, 8 << 10];

/// Guesses the format by the majority of the tree blocks found, if there is no superblock.
pub(crate) fn guess(disks: &[Disk], watch: &dyn Watch) -> Option<(Uuid, u32, codec::ChecksumType)> {
    let mut votes: Vec<((Uuid, u32, codec::ChecksumType), u32)> = Vec::new();
    let (mut tries, mut buffer) = (0, Vec::new());
    watch.begin(disks.iter().map(|disk| disk.device.size_bytes()).sum());
    'disks: for disk in disks {
        let (size, piece_bytes) = (disk.device.size_bytes(), piece_bytes(&*disk.device));
        for start in Pieces::of(&*disk.device, watch) {
            let want = (piece_bytes + (64 << 10)).min(size - start);
            read_what_can_be(&*disk.device, start, want, &mut buffer);
            for offset in (0..piece_bytes.min(want)).step_by(to_usize(STEP_BYTES)) {
                let block = buffer.get(to_usize(offset)..).unwrap_or_default();
                let Some(vote) = vote(block, &votes, &mut tries) else { continue };
                match votes.iter_mut().find(|(known, _)| *known == vote) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((vote, 1)),
                }
                if tries > TRIES_MAX || votes.iter().any(|(_, count)| *count >= VOTES_ENOUGH) {
                    break 'disks;
                }
            }
            watch.add_bytes(want.min(piece_bytes));
        }
    }
    watch.end();
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(format, _)| format)
}

type Vote = (Uuid, u32, codec::ChecksumType);

fn vote(block: &[u8], known: &[(Vote, u32)], tries: &mut u32) -> Option<Vote> {
    let head = header(block)?;
    let is_likely = head.level < LEVELS_MAX
        && is_address(head.bytenr.get())
        && !head.fsid.is_nil()
        && head.nritems.get() < 65_536
        && head.generation.get() < 1 << 48
        && head.header_flags().contains(btrfs_disk::flags::HeaderFlags::WRITTEN);
    if !is_likely || *tries > TRIES_MAX {
        return None;
    }
    *tries += 1;
    let fits = |nodesize: u32, kind: codec::ChecksumType| {
        let body = block.get(CSUM_FIELD_SIZE..usize_from(nodesize));
        let stored = block.get(..CSUM_FIELD_SIZE).unwrap_or_default();
        body.is_some_and(|body| codec::checksum::matches(kind, body, stored))
    };
    if let Some((vote, _)) = known.iter().find(|((fsid, size, kind), _)| *fsid == head.fsid && fits(*size, *kind)) {
        return Some(*vote);
    }
    let mut all = codec::ChecksumType::ALL.into_iter().flat_map(|kind| NODE_SIZES.map(|size| (size, kind)));
    all.find(|(size, kind)| fits(*size, *kind)).map(|(size, kind)| (head.fsid, size, kind))
}
