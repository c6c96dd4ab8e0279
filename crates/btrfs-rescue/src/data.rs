//! Reads data: tries every mirror, sector by sector, and accepts the one whose checksum matches. Called by `contents`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::items::CsumGeometry;
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, Logical, TreeId};
use codec::CompressionType;
use codec::compress::{Form, decompress};

use crate::locks::lock;
use crate::state::State;

/// Limit on compressed extents, both on disk and in memory: eight times the kernel's.
const COMPRESSED_MAX: u64 = 1 << 20;
/// Limit on cached decompressed extents.
const KEPT_MAX: usize = 32;

/// Outcome of reading a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sector {
    /// Its checksum matches.
    Verified,
    /// It was read, but has no checksum.
    Unverified,
    /// No mirror is readable, or none matches the checksum.
    Lost,
}

/// Cache of decompressed extents by address and generation, each with its outcome.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<(u64, u64), Expanded>>);

/// The bytes of a compressed extent, or `None` if they are lost.
type Expanded = (Option<Arc<[u8]>>, Sector);

/// Reads whole sectors at an address. Lost sectors are zeros.
pub(crate) fn read(state: &State, at: u64, buf: &mut [u8], has_sums: bool) -> Vec<Sector> {
    let media = &state.blocks.media;
    let sector = usize_from(media.format.sectorsize).max(512);
    let count = buf.len().div_ceil(sector);
    let sums = if has_sums { sums(state, at, count) } else { vec![None; count] };
    let mut found = vec![Sector::Lost; count];
    let mut copy = vec![0; buf.len()];
    for mirror in media.ways(at, copy.len()) {
        if found.iter().all(|sector| *sector == Sector::Verified) || (mirror > 0 && !has_sums && !lacks(&found)) {
            break;
        }
        let is_whole = media.read_copy(at, &mut copy, mirror).is_ok();
        let parts = copy.chunks_mut(sector).zip(buf.chunks_mut(sector)).zip(sums.iter().zip(&mut found));
        for (index, ((part, to), (sum, found))) in parts.enumerate() {
            if *found == Sector::Verified {
                continue;
            }
            let place = at.saturating_add(to_u64(index.saturating_mul(sector)));
            if !is_whole && media.read_copy(place, part, mirror).is_err() {
                continue;
            }
            let now = match sum {
                Some(sum) if codec::checksum::matches(media.format.csum_type, part, &sum.stored) => Sector::Verified,
                Some(sum) if !sum.may_be_older => continue,
                _ if *found == Sector::Lost => Sector::Unverified,
                _ => continue,
            };
            *found = now;
            to.copy_from_slice(part);
        }
    }
    for (to, found) in buf.chunks_mut(sector).zip(&found) {
        if *found == Sector::Lost {
            to.fill(0);
        }
    }
    found
}

fn lacks(found: &[Sector]) -> bool {
    found.contains(&Sector::Lost)
}

/// The checksum of a sector.
#[derive(Clone)]
struct Sum {
    stored: Vec<u8>,
    /// The checksum comes from an unreferenced block, so a mismatch proves nothing.
    may_be_older: bool,
}

/// The checksums of sectors, as far as the csum tree has them.
fn sums(state: &State, at: u64, count: usize) -> Vec<Option<Sum>> {
    let format = &state.blocks.media.format;
    let csum_len = format.csum_type.len().max(1);
    let geometry =
        CsumGeometry { sectorsize: format.sectorsize.max(512), csum_len: u32::try_from(csum_len).unwrap_or(u32::MAX) };
    let sector = u64::from(geometry.sectorsize);
    let mut sums = vec![None; count];
    let end = at.saturating_add(sector.saturating_mul(to_u64(count)));
    let key = |offset| Key::new(objectid::EXTENT_CSUM, item_type::EXTENT_CSUM, offset);
    // The item that covers a sector begins before it, by at most the range that one leaf can cover.
    let reach = geometry.covered_bytes(state.blocks.media.node_bytes());
    let tree = state.tree(TreeId::CSUM.0);
    tree.items(&state.blocks, key(at.saturating_sub(reach)), key(end.saturating_sub(1)), &mut |key, data| {
        if key.item_type != item_type::EXTENT_CSUM || geometry.end(Logical(key.offset), data.len()).0 <= at {
            return true;
        }
        let may_be_older = tree.is_filled(key, key);
        for (index, sum) in sums.iter_mut().enumerate() {
            let place = at.saturating_add(sector.saturating_mul(to_u64(index)));
            if let Some(position) = geometry.position(Logical(key.offset), Logical(place))
                && let Some(stored) = data.get(position..position.saturating_add(csum_len))
            {
                *sum = Some(Sum { stored: stored.to_vec(), may_be_older });
            }
        }
        true
    });
    sums
}

/// A compressed extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    pub(crate) at: u64,
    pub(crate) disk_len: u64,
    pub(crate) ram_len: u64,
    pub(crate) compression: u8,
    pub(crate) generation: u64,
}

/// Returns the bytes of a compressed extent, and how far they were verified.
pub(crate) fn expand(state: &State, kept: &Kept, packed: &Packed, has_sums: bool) -> Expanded {
    let id = (packed.at, packed.generation);
    if let Some(known) = lock(&kept.0).get(&id) {
        return known.clone();
    }
    let expanded = expand_anew(state, packed, has_sums);
    let mut kept = lock(&kept.0);
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(id, expanded.clone());
    expanded
}

fn expand_anew(state: &State, packed: &Packed, has_sums: bool) -> Expanded {
    let lost = (None, Sector::Lost);
    let Some(kind) = CompressionType::from_raw(packed.compression) else { return lost };
    if packed.disk_len > COMPRESSED_MAX || packed.ram_len > COMPRESSED_MAX {
        return lost;
    }
    let mut stored = vec![0; to_usize(packed.disk_len)];
    let sectors = read(state, packed.at, &mut stored, has_sums);
    if lacks(&sectors) {
        return lost;
    }
    let form = Form::regular(usize_from(state.blocks.media.format.sectorsize));
    let Ok(bytes) = decompress(kind, &stored, form, to_usize(packed.ram_len)) else { return lost };
    let worst = if sectors.contains(&Sector::Unverified) { Sector::Unverified } else { Sector::Verified };
    (Some(bytes.into()), worst)
}

/// Returns the bytes of an inline extent; `None` if they do not decode.
pub(crate) fn expand_inline(state: &State, compression: u8, data: &[u8], ram_len: u64) -> Option<Vec<u8>> {
    if compression == 0 {
        return Some(data.to_vec());
    }
    let form = Form::inline(usize_from(state.blocks.media.format.sectorsize));
    let kind = CompressionType::from_raw(compression)?;
    decompress(kind, data, form, to_usize(ram_len.min(COMPRESSED_MAX))).ok()
}
