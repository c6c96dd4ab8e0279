//! Draws recordings as a picture: positions on the device, throughput, seeks, and sizes of requests. Recordings beside
//! each other have the same scales. Called by `trace`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use spinney::blockdev::Kind;

use super::read::{Asked, Request};
use super::summary::Summary;
use crate::commands::human;
use crate::commands::number::to_float;
use crate::commands::picture::{Anchor, Axis, Svg, ticks};

/// Pixels of a panel.
const PANEL_WIDTH: u32 = 620;
const OFFSETS_HEIGHT: u32 = 330;
const CURVE_HEIGHT: u32 = 84;
const SIZES_HEIGHT: u32 = 130;
/// Margins in pixels around panels, for numbers and texts.
const LEFT: u32 = 72;
const GAP: u32 = 34;
const HEAD: u32 = 104;
/// Points of a curve.
const CURVE_POINTS: u32 = 155;
/// Sizes of a dot in pixels; the first one is used whose picture is small enough.
const DOTS: [u32; 7] = [1, 2, 3, 5, 8, 13, 21];
/// Most bytes for the dots of one recording.
const DOT_BYTES_MAX: usize = 70_000;
/// The lowest size in the histogram; the others are its doublings.
const SIZE_MIN: u64 = 4096;
const SIZE_COUNT: usize = 13;

/// Colours of writes and of reads, by kind.
const fn colours(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Data => ("#2166ac", "#92c5de"),
        Kind::Metadata => ("#1b7837", "#a6dba0"),
        Kind::Log => ("#e08214", "#fdb863"),
        Kind::Superblock => ("#b2182b", "#f4a582"),
        Kind::Other => ("#555", "#bbb"),
    }
}

/// A recording with its name.
pub(super) struct Recording {
    pub(super) name: String,
    pub(super) requests: Vec<Request>,
    pub(super) summary: Summary,
}

/// Scales common to all recordings of a picture.
struct Scales {
    /// Duration in microseconds.
    time: u64,
    /// Size of the device in bytes.
    offset: u64,
    bytes_per_second: f64,
    requests_per_second: f64,
    seeks_per_second: f64,
    sizes: u64,
}

/// The curves of one recording: a value for each time slot.
#[derive(Default)]
struct Curves {
    write_bytes: Vec<f64>,
    read_bytes: Vec<f64>,
    writes: Vec<f64>,
    reads: Vec<f64>,
    seeks: Vec<f64>,
}

/// Draws one recording, or several side by side.
pub(super) fn draw(recordings: &[Recording]) -> String {
    let count = u32::try_from(recordings.len()).unwrap_or(1).max(1);
    let width = (LEFT + PANEL_WIDTH) * count + GAP;
    let height = HEAD + OFFSETS_HEIGHT + 3 * (CURVE_HEIGHT + GAP) + SIZES_HEIGHT + 2 * GAP;
    let mut svg = Svg::new(width, height);
    let time = recordings.iter().map(|one| one.summary.duration_us).max().unwrap_or(0).max(1);
    let curves: Vec<Curves> = recordings.iter().map(|one| curves(&one.requests, time)).collect();
    let scales = scales(recordings, &curves, time);
    for ((number, recording), curves) in (0_u32..).zip(recordings).zip(&curves) {
        Column { left: f64::from(LEFT + number * (LEFT + PANEL_WIDTH)), scales: &scales }
            .draw(&mut svg, recording, curves);
    }
    svg.done()
}

fn scales(recordings: &[Recording], curves: &[Curves], time: u64) -> Scales {
    let transfers = || recordings.iter().flat_map(|one| one.requests.iter().filter(|request| request.is_transfer()));
    let largest = |pick: fn(&Curves) -> [&Vec<f64>; 2]| {
        let values = curves.iter().flat_map(|curves| pick(curves).into_iter().flatten().copied());
        values.fold(0.0, f64::max)
    };
    let sizes = recordings.iter().flat_map(|one| histogram(&one.requests).into_iter().map(|row| row.iter().sum()));
    Scales {
        time,
        offset: transfers().map(|request| request.offset.saturating_add(request.len)).max().unwrap_or(1),
        bytes_per_second: largest(|curves| [&curves.write_bytes, &curves.read_bytes]),
        requests_per_second: largest(|curves| [&curves.writes, &curves.reads]),
        seeks_per_second: largest(|curves| [&curves.seeks, &curves.seeks]),
        sizes: sizes.max().unwrap_or(0),
    }
}

fn curves(requests: &[Request], time: u64) -> Curves {
    let points = usize::try_from(CURVE_POINTS).unwrap_or(1);
    let mut curves = Curves::default();
    let Curves { write_bytes, read_bytes, writes, reads, seeks } = &mut curves;
    for curve in [&mut *write_bytes, read_bytes, writes, reads, seeks] {
        curve.resize(points, 0.0);
    }
    let per_second = f64::from(CURVE_POINTS) / (to_float(time) / 1e6);
    let first = requests.first().map_or(0, |request| request.begin);
    let mut head = None;
    for request in requests.iter().filter(|request| request.is_transfer()) {
        let at = request.begin.saturating_sub(first).min(time.saturating_sub(1));
        let place = u128::from(at) * u128::from(CURVE_POINTS) / u128::from(time.max(1));
        let place = usize::try_from(place).unwrap_or(0);
        let (bytes, count) = match request.asked {
            Asked::Write => (&mut *write_bytes, &mut *writes),
            _ => (&mut *read_bytes, &mut *reads),
        };
        let add = |curve: &mut Vec<f64>, value: f64| {
            if let Some(point) = curve.get_mut(place) {
                *point += value * per_second;
            }
        };
        add(bytes, to_float(request.len));
        add(count, 1.0);
        if head != Some(request.offset) {
            add(seeks, 1.0);
        }
        head = Some(request.offset.saturating_add(request.len));
    }
    curves
}

/// Number of writes of each size and kind.
fn histogram(requests: &[Request]) -> [[u64; Kind::ALL.len()]; SIZE_COUNT] {
    let mut rows = [[0; Kind::ALL.len()]; SIZE_COUNT];
    for request in requests.iter().filter(|request| request.asked == Asked::Write) {
        let doublings = (request.len / SIZE_MIN).checked_ilog2().unwrap_or(0);
        let row = usize::try_from(doublings).unwrap_or(0).min(SIZE_COUNT - 1);
        let kind = Kind::ALL.into_iter().position(|kind| kind == request.kind).unwrap_or(0);
        if let Some(count) = rows.get_mut(row).and_then(|row| row.get_mut(kind)) {
            *count += 1_u64;
        }
    }
    rows
}

/// The area of one recording.
struct Column<'a> {
    left: f64,
    scales: &'a Scales,
}

impl Column<'_> {
    fn draw(&self, svg: &mut Svg, recording: &Recording, curves: &Curves) {
        self.head(svg, recording);
        let mut top = f64::from(HEAD);
        self.offsets(svg, top, &recording.requests);
        top += f64::from(OFFSETS_HEIGHT + GAP);
        let rate = |value: f64| format!("{value:.0} MiB/s");
        let mebi = |curve: &Vec<f64>| curve.iter().map(|bytes| bytes / 1_048_576.0).collect::<Vec<f64>>();
        let pair = [mebi(&curves.write_bytes), mebi(&curves.read_bytes)];
        let names = ["written", "read"];
        self.curves(svg, top, self.scales.bytes_per_second / 1_048_576.0, (&pair, &names), rate);
        top += f64::from(CURVE_HEIGHT + GAP);
        let rate = |value: f64| format!("{value:.0}/s");
        let pair = [curves.writes.clone(), curves.reads.clone()];
        self.curves(svg, top, self.scales.requests_per_second, (&pair, &["writes", "reads"]), rate);
        top += f64::from(CURVE_HEIGHT + GAP);
        let one = [curves.seeks.clone()];
        self.curves(svg, top, self.scales.seeks_per_second, (&one, &["seeks"]), rate);
        top += f64::from(CURVE_HEIGHT + GAP);
        self.sizes(svg, top, &recording.requests);
    }

    fn head(&self, svg: &mut Svg, recording: &Recording) {
        let summary = &recording.summary;
        svg.title((self.left, 22.0), &recording.name);
        let seconds = to_float(summary.duration_us) / 1e6;
        let lines = [
            format!(
                "{seconds:.2} s; {} in {} writes, {} in {} reads, {} flushes, {} seeks",
                human::bytes(summary.writes.bytes),
                summary.writes.requests,
                human::bytes(summary.reads.bytes),
                summary.reads.requests,
                summary.flushes,
                summary.seeks,
            ),
            format!(
                "data written in {} runs of one thread, {} each on average",
                summary.data_runs,
                human::bytes(summary.data_run_bytes())
            ),
        ];
        for (line, y) in lines.iter().zip([40.0, 56.0]) {
            svg.text((self.left, y), Anchor::Start, line);
        }
        let mut x = self.left;
        for kind in Kind::ALL.into_iter().rev() {
            let (written, read) = colours(kind);
            svg.rect((x, 68.0), (9.0, 9.0), written, "").rect((x + 10.0, 68.0), (9.0, 9.0), read, "");
            svg.text((x + 23.0, 76.5), Anchor::Start, kind.name());
            x += 86.0;
        }
        svg.text((x, 76.5), Anchor::Start, "dark: written, light: read");
    }

    fn frame(&self, svg: &mut Svg, top: f64, height: u32, what: &str) -> (Axis, Axis) {
        let (right, bottom) = (self.left + f64::from(PANEL_WIDTH - GAP), top + f64::from(height));
        svg.text((self.left, top - 5.0), Anchor::Start, what);
        for ((x1, y1), (x2, y2)) in [((self.left, top), (self.left, bottom)), ((self.left, bottom), (right, bottom))] {
            svg.rule((x1, y1), (x2, y2));
        }
        (Axis { max: 1.0, from: self.left, to: right }, Axis { max: 1.0, from: bottom, to: top })
    }

    fn times(&self, svg: &mut Svg, across: Axis, bottom: f64) {
        let seconds = to_float(self.scales.time) / 1e6;
        let across = Axis { max: seconds, ..across };
        for tick in ticks(seconds, 6, 10.0) {
            svg.text((across.place(tick), bottom + 13.0), Anchor::Middle, &format!("{} s", short(tick)));
        }
    }

    fn offsets(&self, svg: &mut Svg, top: f64, requests: &[Request]) {
        let (across, up) = self.frame(svg, top, OFFSETS_HEIGHT, "place on the device, over time");
        let offset_max = to_float(self.scales.offset);
        let up = Axis { max: offset_max, ..up };
        for tick in ticks(offset_max, 5, 1024.0) {
            let y = up.place(tick);
            svg.rule((across.from, y), (across.to, y));
            svg.text((across.from - 5.0, y + 4.0), Anchor::End, &bytes_short(tick));
        }
        self.times(svg, across, up.from);
        for path in self.dots(requests, across, up) {
            svg.filled(&path.1, path.0);
        }
    }

    /// The cells that requests touched, as filled paths with their colours.
    fn dots(&self, requests: &[Request], across: Axis, up: Axis) -> Vec<(&'static str, String)> {
        let across = Axis { max: to_float(self.scales.time), ..across };
        let first = requests.first().map_or(0, |request| request.begin);
        let mut paths = Vec::new();
        for dot in DOTS {
            paths.clear();
            for (asked, kind) in Kind::ALL.into_iter().flat_map(|kind| [(Asked::Read, kind), (Asked::Write, kind)]) {
                let mut cells: BTreeSet<(u32, u32)> = BTreeSet::new();
                for request in requests.iter().filter(|one| (one.asked, one.kind) == (asked, kind)) {
                    let x = across.place(to_float(request.begin.saturating_sub(first)));
                    let last = request.offset.saturating_add(request.len);
                    let (low, high) = (up.place(to_float(request.offset)), up.place(to_float(last)));
                    let column = cell(x, dot);
                    cells.extend((cell(high, dot)..=cell(low, dot)).map(|row| (column, row)));
                }
                let (written, read) = colours(kind);
                let colour = if asked == Asked::Write { written } else { read };
                if !cells.is_empty() {
                    paths.push((colour, runs(&cells, dot)));
                }
            }
            if paths.iter().map(|(_, path)| path.len()).sum::<usize>() <= DOT_BYTES_MAX {
                break;
            }
        }
        paths
    }

    fn curves(
        &self,
        svg: &mut Svg,
        top: f64,
        max: f64,
        (curves, names): (&[Vec<f64>], &[&str]),
        show: impl Fn(f64) -> String,
    ) {
        const STROKES: [&str; 2] = ["#222", "#d6604d"];
        let (across, up) = self.frame(svg, top, CURVE_HEIGHT, "");
        let up = Axis { max, ..up };
        for tick in ticks(max, 2, 10.0) {
            svg.rule((across.from, up.place(tick)), (across.to, up.place(tick)));
            svg.text((across.from - 5.0, up.place(tick) + 4.0), Anchor::End, &show(tick));
        }
        self.times(svg, across, up.from);
        let across = Axis { max: f64::from(CURVE_POINTS), ..across };
        let mut x = self.left;
        for ((curve, name), stroke) in curves.iter().zip(names).zip(STROKES) {
            svg.rect((x, top - 14.0), (9.0, 9.0), stroke, "").text((x + 13.0, top - 5.5), Anchor::Start, name);
            x += 80.0;
            let points = (0_u32..).zip(curve).map(|(at, value)| (across.place(f64::from(at) + 0.5), up.place(*value)));
            svg.polyline(points, stroke);
        }
    }

    fn sizes(&self, svg: &mut Svg, top: f64, requests: &[Request]) {
        let (across, up) = self.frame(svg, top, SIZES_HEIGHT, "writes by size: from the number below up to its double");
        let up = Axis { max: to_float(self.scales.sizes), ..up };
        for tick in ticks(up.max, 3, 10.0) {
            svg.rule((across.from, up.place(tick)), (across.to, up.place(tick)));
            svg.text((across.from - 5.0, up.place(tick) + 4.0), Anchor::End, &short(tick));
        }
        let width = (across.to - across.from) / f64::from(u32::try_from(SIZE_COUNT).unwrap_or(1));
        let mut left = across.from;
        let mut size = SIZE_MIN;
        for row in histogram(requests) {
            let mut below = 0_u64;
            for (kind, count) in Kind::ALL.into_iter().zip(row) {
                let above = below.saturating_add(count);
                let (y, bottom) = (up.place(to_float(above)), up.place(to_float(below)));
                if count > 0 {
                    let about = format!("{count} writes of {} from {}", kind.name(), human::bytes(size));
                    svg.rect((left + 2.0, y), (width - 4.0, bottom - y), colours(kind).0, &about);
                }
                below = above;
            }
            svg.text((left + width / 2.0, up.from + 13.0), Anchor::Middle, &bytes_short(to_float(size)));
            left += width;
            size = size.saturating_mul(2);
        }
    }
}

/// The grid cell of a position.
#[expect(clippy::as_conversions, reason = "places are within the picture")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places are within the picture")]
fn cell(place: f64, dot: u32) -> u32 {
    place.clamp(0.0, 100_000.0) as u32 / dot
}

/// Cells as one path: vertical neighbours in one stroke.
fn runs(cells: &BTreeSet<(u32, u32)>, dot: u32) -> String {
    let mut path = String::new();
    let mut cells = cells.iter().copied().peekable();
    while let Some((column, row)) = cells.next() {
        let mut end = row.saturating_add(1);
        while cells.next_if_eq(&(column, end)).is_some() {
            end = end.saturating_add(1);
        }
        let height = (end - row) * dot;
        // Writing to a string cannot fail.
        let _ = write!(path, "M{} {}h{dot}v{height}h-{dot}z", column * dot, row * dot);
    }
    path
}

/// A number without needless zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes in the largest unit that leaves a number above 1.
fn bytes_short(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1024.0
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", short((value * 10.0).round() / 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_requests_are_a_small_picture() {
        let requests: Vec<Request> = (0..1_000_000_u64)
            .map(|number| Request {
                begin: number * 10,
                took: 9,
                asked: if number % 3 == 0 { Asked::Read } else { Asked::Write },
                offset: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 34),
                len: 4096 << (number % 9),
                kind: Kind::ALL[usize::try_from(number % 5).unwrap()],
                mirror: 0,
                thread: 0,
            })
            .collect();
        let summary = Summary::of(&requests);
        let recordings = ["one", "two"].map(|name| Recording {
            name: name.to_owned(),
            requests: requests.clone(),
            summary: summary.clone(),
        });
        let text = draw(&recordings);
        assert!(text.len() < 200_000, "{} bytes", text.len());
        assert!(text.contains(">one<") && text.contains(">two<") && text.contains("16 GiB"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn nothing_is_drawn_as_nothing() {
        let text = draw(&[Recording { name: String::new(), requests: Vec::new(), summary: Summary::default() }]);
        assert!(text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
        assert_eq!((short(0.5), short(3.0)), ("0.5".to_owned(), "3".to_owned()));
        assert_eq!((bytes_short(4096.0), bytes_short(1.5e9)), ("4 KiB".to_owned(), "1.4 GiB".to_owned()));
    }
}
