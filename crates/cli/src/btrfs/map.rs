//! `spinney map` draws where data and metadata are on the device, as an SVG picture along a Hilbert curve. Called by
//! `args`, and by `jobs` in the server of a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::disk::flags::BlockGroupFlags;
use spinney::btrfs::{ChunkInfo, Volume};

use super::{format, info};
use crate::commands::human;
use crate::commands::image::ReadArgs;
use crate::commands::number::to_float;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;
use crate::commands::picture::{self, Anchor, Svg};

/// Cells of the picture in each direction, a power of two; each stands for as many bytes of the device.
const SIDE: u32 = 128;
/// Pixels of a cell.
const CELL: u32 = 4;
/// Most rows of the table; enough for the kinds of images with the most chunks.
const ROWS_MAX: usize = 56;
const ROW_HEIGHT: u32 = 16;
const TOP: u32 = 64;
/// Left edge of the table.
const TABLE_LEFT: u32 = SIDE * CELL + 40;
const TABLE_WIDTH: u32 = 560;
const BAR_WIDTH: f64 = 110.0;

/// Draw where data and metadata are on the device
///
/// The picture shows the device along a Hilbert curve, so that neighbours on the device are neighbours in the picture;
/// the darker, the fuller. Beside it is a table of the chunks.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Of a mount root, and the user who mounted it, may ask.\n\n",
    "Examples:\n",
    "  spinney map site.img                 the chunks, and how full each is\n",
    "  spinney map site.img -o site.svg     the same as a picture\n",
    "  spinney map --json site.img | jq '.chunks[] | select(.used == 0)'"
))]
pub(crate) struct Map {
    #[command(flatten)]
    image: ReadArgs,
    /// The picture, as SVG
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report as JSON: {device_bytes, chunks: [{kind, profile, logical, bytes, used, stripes}]}
    #[arg(long)]
    json: bool,
}

/// The use of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Metadata,
    System,
    Mixed,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Data, Self::Metadata, Self::System, Self::Mixed];

    fn of(flags: BlockGroupFlags) -> Self {
        match (flags.contains(BlockGroupFlags::DATA), flags.contains(BlockGroupFlags::METADATA)) {
            (true, true) => Self::Mixed,
            (true, false) => Self::Data,
            (false, true) => Self::Metadata,
            (false, false) => Self::System,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
            Self::Mixed => "mixed",
        }
    }

    /// Colours from empty to full.
    fn shades(self) -> [&'static str; 5] {
        match self {
            Self::Data => ["#eff3ff", "#bdd7e7", "#6baed6", "#3182bd", "#08519c"],
            Self::Metadata => ["#edf8e9", "#bae4b3", "#74c476", "#31a354", "#006d2c"],
            Self::System => ["#fee5d9", "#fcae91", "#fb6a4a", "#de2d26", "#a50f15"],
            Self::Mixed => ["#f2f0f7", "#cbc9e2", "#9e9ac8", "#756bb1", "#54278f"],
        }
    }
}

#[derive(Serialize)]
struct Report {
    device_bytes: u64,
    chunks: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    profile: String,
    logical: u64,
    bytes: u64,
    used: u64,
    stripes: Vec<Stripe>,
}

#[derive(Debug, Serialize)]
struct Stripe {
    device: u64,
    offset: u64,
}

/// A cell of the picture.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// Bytes that belong to chunks, by kind.
    allocated: [u64; Kind::ALL.len()],
    used: u64,
}

impl Map {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let Some(dir) = self.image.mounted_dir()? else {
            let seen = Seen::of(&format::open_read_only(&self.image)?)?;
            self.output.as_ref().map_or(Ok(()), |path| picture::write(path, &seen.picture()))?;
            return self.report(seen, out);
        };
        let mount = OnMount::connect(&dir)?;
        let words = |option: Option<&str>| option.into_iter().chain(["IMAGE"]).map(str::to_owned).collect::<Vec<_>>();
        if let Some(path) = &self.output {
            // A server writes no files: it prints the picture.
            let mut picture = Vec::new();
            mount.take(["map".to_owned()].into_iter().chain(words(Some("--output=-"))).collect(), &mut picture)?;
            picture::write(path, &String::from_utf8_lossy(&picture))?;
        }
        if self.output.is_none() || self.json {
            mount.run("map", words(self.json.then_some("--json")), out)?;
        }
        Ok(())
    }

    /// As the server of a mount.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        let seen = Seen::of(volume)?;
        if self.output.is_some() { Ok(out.write_all(seen.picture().as_bytes())?) } else { self.report(seen, out) }
    }

    fn report(&self, seen: Seen, out: &mut Output) -> Result<()> {
        if self.json {
            return out.json(&Report { device_bytes: seen.device_bytes, chunks: seen.rows });
        }
        if self.output.is_none() {
            for row in &seen.rows {
                let (name, at) =
                    (format!("{}, {}", row.kind, row.profile), row.stripes.first().map_or(0, |s| s.offset));
                write!(out, "{:>12}  ", human::bytes(at))?;
                info::print_use(out, &name, row.used, row.bytes)?;
            }
        }
        Ok(())
    }
}

/// The chunks and cells to draw.
struct Seen {
    title: String,
    device_bytes: u64,
    rows: Vec<Row>,
    cells: Cells,
}

impl Seen {
    fn of(volume: &Volume) -> Result<Self> {
        let about = volume.info()?;
        let device_bytes = about.devices.iter().map(|device| device.total_bytes).sum::<u64>();
        let chunks = volume.chunks();
        let mut cells = Cells::new(device_bytes);
        let used = count(volume, &chunks, &mut cells)?;
        let rows = chunks.iter().zip(used).map(|(chunk, used)| row(chunk, used)).collect();
        let title = about.devices.into_iter().next().map_or_else(String::new, |device| device.name);
        Ok(Self { title, device_bytes, rows, cells })
    }

    fn picture(&self) -> String {
        draw(&self.title, self.device_bytes, &self.rows, &self.cells)
    }
}

fn row(chunk: &ChunkInfo, used: u64) -> Row {
    let profile = chunk.flags & BlockGroupFlags::PROFILE_MASK;
    Row {
        kind: Kind::of(chunk.flags).name(),
        profile: if profile.is_empty() { "single".to_owned() } else { profile.to_string() },
        logical: chunk.logical,
        bytes: chunk.bytes,
        used,
        stripes: chunk.stripes.iter().map(|(device, offset)| Stripe { device: *device, offset: *offset }).collect(),
    }
}

/// Fills the cells; returns how many bytes of each chunk extents take.
fn count(volume: &Volume, chunks: &[ChunkInfo], cells: &mut Cells) -> Result<Vec<u64>> {
    let mut used = vec![0_u64; chunks.len()];
    for chunk in chunks {
        let kind = Kind::ALL.into_iter().position(|kind| kind == Kind::of(chunk.flags)).unwrap_or(0);
        for (_, offset) in &chunk.stripes {
            cells.for_each(*offset, chunk.bytes, |cell, bytes| {
                if let Some(allocated) = cell.allocated.get_mut(kind) {
                    *allocated = allocated.saturating_add(bytes);
                }
            });
        }
    }
    volume.for_each_extent(|logical, bytes| {
        let behind = chunks.partition_point(|chunk| chunk.logical <= logical);
        let Some(at) = behind.checked_sub(1) else { return };
        let Some((chunk, used)) = chunks.get(at).zip(used.get_mut(at)) else { return };
        // A malformed extent is cut at the end of its chunk.
        let within = logical.saturating_sub(chunk.logical);
        let bytes = bytes.min(chunk.bytes.saturating_sub(within));
        *used = used.saturating_add(bytes).min(chunk.bytes);
        for (_, offset) in &chunk.stripes {
            cells.for_each(offset.saturating_add(within), bytes, |cell, bytes| {
                cell.used = cell.used.saturating_add(bytes);
            });
        }
    })?;
    Ok(used)
}

/// The device in equal parts.
struct Cells {
    cells: Vec<Cell>,
    /// Bytes of each.
    bytes: u64,
}

impl Cells {
    fn new(device_bytes: u64) -> Self {
        let count = u64::from(SIDE) * u64::from(SIDE);
        let len = usize::try_from(count).unwrap_or(0);
        Self { cells: vec![Cell::default(); len], bytes: device_bytes.div_ceil(count).max(1) }
    }

    /// Shows the cells that a range of the device touches, and how many bytes of it are in each.
    fn for_each(&mut self, offset: u64, bytes: u64, mut touch: impl FnMut(&mut Cell, u64)) {
        let end = offset.saturating_add(bytes);
        let mut at = offset;
        while at < end {
            let number = at / self.bytes;
            let next = number.saturating_add(1).saturating_mul(self.bytes).min(end);
            let Some(cell) = usize::try_from(number).ok().and_then(|number| self.cells.get_mut(number)) else { return };
            touch(cell, next.saturating_sub(at));
            at = next;
        }
    }

    /// Kind and shade of a cell; `None` if no chunk covers it.
    fn look(&self, cell: &Cell) -> Option<(Kind, usize)> {
        let (kind, allocated) = Kind::ALL.into_iter().zip(cell.allocated).max_by_key(|(_, bytes)| *bytes)?;
        if allocated == 0 {
            return None;
        }
        let quarters = (cell.used.min(self.bytes) * 4).div_ceil(self.bytes);
        Some((kind, usize::try_from(quarters).unwrap_or(4).min(4)))
    }
}

fn draw(title: &str, device_bytes: u64, rows: &[Row], cells: &Cells) -> String {
    let shown = rows.len().min(ROWS_MAX);
    let table_height = (u32::try_from(shown).unwrap_or(0) + 4) * ROW_HEIGHT;
    let mut svg = Svg::new(TABLE_LEFT + TABLE_WIDTH, TOP + (SIDE * CELL + 40).max(table_height));
    svg.title((12.0, 24.0), title);
    let cell = human::bytes(cells.bytes);
    let about =
        format!("{}; a cell is {cell}, along a Hilbert curve; the darker, the fuller", human::bytes(device_bytes));
    svg.text((12.0, 44.0), Anchor::Start, &about);
    let left = 12_u32;
    let side = f64::from(SIDE * CELL);
    svg.rect((f64::from(left), f64::from(TOP)), (side, side), "#f4f4f4", "");
    let mut colours: BTreeMap<&'static str, BTreeSet<(u32, u32)>> = BTreeMap::new();
    for (number, cell) in (0_u32..).zip(&cells.cells) {
        if let Some((kind, shade)) = cells.look(cell) {
            let (x, y) = place(number);
            let colour = kind.shades().get(shade).copied().unwrap_or("#000");
            colours.entry(colour).or_default().insert((y, x));
        }
    }
    for (colour, places) in colours {
        svg.filled(&strokes(places, left), colour);
    }
    table(&mut svg, rows, shown);
    svg.done()
}

/// Cells as one path: those beside each other in one stroke.
fn strokes(places: BTreeSet<(u32, u32)>, left: u32) -> String {
    let mut path = String::new();
    let mut places = places.into_iter().peekable();
    while let Some((row, column)) = places.next() {
        let mut end = column + 1;
        while places.next_if_eq(&(row, end)).is_some() {
            end += 1;
        }
        let (x, y, width) = (left + column * CELL, TOP + row * CELL, (end - column) * CELL);
        // Writing to a string cannot fail.
        let _ = write!(path, "M{x} {y}h{width}v{CELL}h-{width}z");
    }
    path
}

fn table(svg: &mut Svg, rows: &[Row], shown: usize) {
    let columns = [0.0, 74.0, 124.0, 214.0, 300.0, 360.0].map(|x| x + f64::from(TABLE_LEFT));
    let mut y = f64::from(TOP) + 10.0;
    for (x, head) in columns.into_iter().zip(["chunk", "profile", "on the device", "size", "used", ""]) {
        svg.text((x, y), Anchor::Start, head);
    }
    let shade = |svg: &mut Svg, row: &Row, y: f64| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == row.kind).unwrap_or(Kind::Mixed);
        let [empty, .., full] = kind.shades();
        let part = to_float(row.used) / to_float(row.bytes.max(1));
        let left = columns.last().copied().unwrap_or(0.0);
        svg.rect((left, y - 9.0), (BAR_WIDTH, 10.0), empty, "");
        svg.rect((left, y - 9.0), (BAR_WIDTH * part.min(1.0), 10.0), full, "");
    };
    for row in rows.iter().take(shown) {
        y += f64::from(ROW_HEIGHT);
        let at = row.stripes.first().map_or(0, |stripe| stripe.offset);
        let used = human::percent(row.used, row.bytes);
        let texts = [row.kind, row.profile.as_str(), &human::bytes(at), &human::bytes(row.bytes), &used];
        for (x, text) in columns.into_iter().zip(texts) {
            svg.text((x, y), Anchor::Start, text);
        }
        shade(svg, row, y);
    }
    if rows.len() > shown {
        let text = format!("and {} more; --json has all", rows.len() - shown);
        svg.text((f64::from(TABLE_LEFT), y + f64::from(ROW_HEIGHT)), Anchor::Start, &text);
    }
}

/// Where the cell with this number is on the Hilbert curve (the usual construction, from the smallest square up).
fn place(number: u32) -> (u32, u32) {
    let (mut x, mut y) = (0_u32, 0_u32);
    let mut rest = number;
    let mut side = 1;
    while side < SIDE {
        let right = 1 & (rest / 2);
        let up = 1 & (rest ^ right);
        if up == 0 {
            if right == 1 {
                (x, y) = (side - 1 - x, side - 1 - y);
            }
            (x, y) = (y, x);
        }
        (x, y) = (x + side * right, y + side * up);
        rest /= 4;
        side *= 2;
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_device_are_neighbours_in_the_picture() {
        let places: Vec<(u32, u32)> = (0..SIDE * SIDE).map(place).collect();
        for pair in places.windows(2) {
            let [(x, y), (next_x, next_y)] = [pair[0], pair[1]];
            assert_eq!(x.abs_diff(next_x) + y.abs_diff(next_y), 1, "{pair:?}");
        }
        let different: std::collections::BTreeSet<_> = places.iter().collect();
        assert_eq!(different.len(), places.len());
        assert!(places.iter().all(|(x, y)| *x < SIDE && *y < SIDE));
    }

    #[test]
    fn ranges_are_cut_at_cells_and_at_the_end_of_the_device() {
        let mut cells = Cells::new(u64::from(SIDE * SIDE) * 4096);
        let mut seen = Vec::new();
        cells.for_each(4000, 5000, |_, bytes| seen.push(bytes));
        assert_eq!(seen, [96, 4096, 808]);
        cells.for_each(u64::MAX - 10, u64::MAX, |_, _| panic!("behind the end"));
        cells.for_each(u64::from(SIDE * SIDE) * 4096 - 10, u64::MAX, |cell, bytes| {
            cell.allocated[1] = bytes;
            cell.used = bytes * 1000;
        });
        assert_eq!(cells.look(cells.cells.last().unwrap()), Some((Kind::Metadata, 4)));
        assert_eq!(cells.look(&Cell::default()), None);
    }
}
