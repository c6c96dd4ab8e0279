//! `spinney dump chunks` shows how logical addresses map to the device, and how full each block group is. Called by
//! `dump`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::disk::flags::{BlockGroupFlags, CompatRo};
use spinney::btrfs::disk::items::{BlockGroupItem, OnDisk as _};
use spinney::btrfs::disk::key::item_type;
use spinney::btrfs::disk::{Key, TreeId};
use spinney::btrfs::store::{Scan, Store};

use crate::commands::human;
use crate::commands::output::Output;

/// Show how logical addresses map to the device, and how full each block group is
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney dump chunks site.img\n",
    "  spinney dump chunks --json site.img | jq '.chunks[] | .used'"
))]
pub(crate) struct Chunks {
    /// Image file or unmounted block device
    image: PathBuf,
    /// Report as JSON: {devices: [...], chunks: [{start, len, flags, used, stripes: [...]}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    chunks: Vec<Chunk>,
}

#[derive(Serialize)]
struct Device {
    id: u64,
    total_bytes: u64,
    allocated_bytes: u64,
}

#[derive(Serialize)]
struct Chunk {
    /// Logical address.
    start: u64,
    /// Logical bytes.
    len: u64,
    /// Use and profile.
    flags: String,
    /// Bytes of extents in it; null where the block group is missing.
    used: Option<u64>,
    /// Bytes of each stripe on its device.
    stripe_len: u64,
    stripes: Vec<Stripe>,
    #[serde(skip)]
    letter: char,
}

#[derive(Serialize)]
struct Stripe {
    device: u64,
    offset: u64,
}

/// Cells of the map of a device.
const MAP_CELLS: u32 = 72;
/// Cells of the bar of a chunk.
const BAR_CELLS: u32 = 16;

impl Chunks {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let store = super::open_store(&self.image)?;
        let used = block_groups(&store)?;
        let mut chunks: Vec<Chunk> = Vec::new();
        for chunk in store.chunks() {
            let stripes = chunk.stripes().iter();
            chunks.push(Chunk {
                start: chunk.start().0,
                len: chunk.len_bytes(),
                flags: chunk.flags().to_string(),
                used: used.get(&chunk.start().0).copied(),
                stripe_len: chunk.stripe_bytes(),
                stripes: stripes.map(|stripe| Stripe { device: stripe.device.0, offset: stripe.offset }).collect(),
                letter: letter(chunk.flags()),
            });
        }
        chunks.sort_by_key(|chunk| chunk.start);
        let devices = store.devices().into_iter().map(|device| Device {
            id: device.id.0,
            total_bytes: device.total_bytes,
            allocated_bytes: device.used_bytes,
        });
        let report = Report { devices: devices.collect(), chunks };
        if self.json { out.json(&report) } else { print(out, &report) }
    }
}

/// Bytes used of each block group, by its start.
fn block_groups(store: &Store) -> Result<BTreeMap<u64, u64>> {
    let is_own_tree = store.has_compat_ro(CompatRo::BLOCK_GROUP_TREE.bits());
    let id = if is_own_tree { TreeId::BLOCK_GROUP } else { TreeId::EXTENT };
    let tree = store.tree(id)?;
    let mut used = BTreeMap::new();
    // In the extent tree the items are scattered among the extent items, so search for each.
    for chunk in store.chunks() {
        let start = chunk.start().0;
        let from = Key::new(start, item_type::BLOCK_GROUP_ITEM, 0);
        let to = Key::new(start, item_type::BLOCK_GROUP_ITEM, u64::MAX);
        tree.scan(&from, &to, |_, data| {
            if let Ok((item, _)) = BlockGroupItem::parse_prefix(data) {
                used.insert(start, item.used.get());
            }
            Ok(Scan::Stop)
        })?;
    }
    Ok(used)
}

/// Letter for the map: the use of the chunk.
fn letter(flags: BlockGroupFlags) -> char {
    if flags.contains(BlockGroupFlags::MIXED) {
        'x'
    } else if flags.contains(BlockGroupFlags::SYSTEM) {
        's'
    } else if flags.contains(BlockGroupFlags::METADATA) {
        'm'
    } else {
        'd'
    }
}

fn print(out: &mut Output, report: &Report) -> Result<()> {
    writeln!(out, "{:>14} {:>12} {:>12}  {:<22} stripes", "logical", "length", "used", "flags")?;
    for chunk in &report.chunks {
        let used = chunk.used.map_or_else(|| "?".to_owned(), |used| used.to_string());
        write!(out, "{:>14} {:>12} {used:>12}  {:<22}", chunk.start, chunk.len, chunk.flags)?;
        for stripe in &chunk.stripes {
            write!(out, " {}:{}", stripe.device, stripe.offset)?;
        }
        if out.is_terminal() {
            let bar = human::bar(chunk.used.unwrap_or_default(), chunk.len, BAR_CELLS);
            write!(out, "  {bar}")?;
        }
        out.write_all(b"\n")?;
    }
    for device in &report.devices {
        let Device { id, total_bytes, allocated_bytes } = device;
        let share = human::percent(*allocated_bytes, *total_bytes);
        writeln!(
            out,
            "\ndevice {id}: {} of {} allocated ({share}), {} a cell",
            human::bytes(*allocated_bytes),
            human::bytes(*total_bytes),
            human::bytes(total_bytes / u64::from(MAP_CELLS)),
        )?;
        writeln!(out, "|{}|", map(report, *id, *total_bytes))?;
    }
    writeln!(out, " d data  m metadata  s system  x mixed  . not allocated")?;
    Ok(())
}

/// One letter for each cell of the map: the use of the chunk that covers most of the cell. A cell counts as free only
/// if no chunk is in it, so that small chunks are shown too.
fn map(report: &Report, device: u64, total: u64) -> String {
    let mut cells: Vec<(u64, char)> = (0..MAP_CELLS).map(|_| (0, '.')).collect();
    let cell_bytes = total.div_ceil(u64::from(MAP_CELLS)).max(1);
    for chunk in &report.chunks {
        for stripe in chunk.stripes.iter().filter(|stripe| stripe.device == device) {
            let end = stripe.offset.saturating_add(chunk.stripe_len);
            let first = usize::try_from(stripe.offset / cell_bytes).unwrap_or(usize::MAX);
            for (index, cell) in (0_u64..).zip(cells.iter_mut()).skip(first) {
                let start = index.saturating_mul(cell_bytes);
                if start >= end {
                    break;
                }
                let covered = end.min(start.saturating_add(cell_bytes)) - start.max(stripe.offset);
                if covered > cell.0 {
                    *cell = (covered, chunk.letter);
                }
            }
        }
    }
    cells.into_iter().map(|(_, letter)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_shows_every_chunk() {
        let chunk = |letter, offset, stripe_len| Chunk {
            start: 0,
            len: stripe_len,
            flags: String::new(),
            used: None,
            stripe_len,
            stripes: vec![Stripe { device: 1, offset }],
            letter,
        };
        let chunks = vec![chunk('d', 0, 1000), chunk('s', 1100, 1), chunk('m', 7100, 100)];
        let report = Report { devices: Vec::new(), chunks };
        let map = map(&report, 1, 7200);
        assert_eq!(map.len(), 72);
        assert!(map.starts_with("dddddddddd.s."), "{map}");
        assert!(map.ends_with(".m"), "{map}");
    }
}
