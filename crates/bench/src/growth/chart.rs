//! Draws the picture of `bench growth` as SVG: for each dimension time and peak memory over the count, both axes by
//! powers of ten. `growth::run` calls it for `--chart`.

use spinney_cli::picture::{Anchor, Svg};

use super::series::{Point, Series, kib};
use crate::row::as_float;

const COLOURS: [&str; 8] = ["#31a354", "#3182bd", "#e6550d", "#756bb1", "#d6616b", "#8c6d31", "#17becf", "#636363"];

const PANEL_WIDTH: f64 = 270.0;
const PANEL_STEP: f64 = 480.0;
const WIDTH: u32 = 960;
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
/// Pixels of the names of the curves, one below the other.
const NAME_STEP: f64 = 11.0;
const HEIGHT: u32 = 290;
const PANEL_HEIGHT: f64 = 220.0;

/// Powers of ten: of seconds, and of KiB.
const TIME: (i32, i32) = (-6, 3);
const MEMORY: (i32, i32) = (3, 7);
const TIMES: [&str; 10] = ["1 \u{b5}s", "10", "100", "1 ms", "10", "100", "1 s", "10", "100", "1000 s"];
const MEMORIES: [&str; 5] = ["1 MB", "10", "100", "1 GB", "10 GB"];

/// A row for each dimension: its title, and its series.
pub(super) fn draw(dimensions: &[(&str, &[Series])]) -> String {
    let rows = u32::try_from(dimensions.len()).unwrap_or(0);
    let mut svg = Svg::new(WIDTH, HEIGHT * rows + 40);
    svg.title((12.0, 24.0), "Time and peak memory as the work grows");
    for ((title, all), row) in dimensions.iter().zip(0u32..) {
        let top = f64::from(row * HEIGHT) + 40.0;
        panel(&mut svg, (LEFT, top), title, all, &Scale { range: TIME, labels: &TIMES, value: |point| point.seconds });
        panel(
            &mut svg,
            (LEFT + PANEL_STEP, top),
            "peak memory",
            all,
            &Scale { range: MEMORY, labels: &MEMORIES, value: kib },
        );
    }
    svg.done()
}

/// A vertical axis.
struct Scale {
    range: (i32, i32),
    labels: &'static [&'static str],
    value: fn(&Point) -> f64,
}

impl Scale {
    /// Pixels below the top.
    fn place(&self, value: f64) -> f64 {
        let (from, to) = (f64::from(self.range.0), f64::from(self.range.1));
        let part = (value.max(f64::MIN_POSITIVE).log10() - from) / (to - from);
        PANEL_HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }
}

fn panel(svg: &mut Svg, (left, top): (f64, f64), title: &str, all: &[Series], scale: &Scale) {
    let top = top + TOP;
    svg.text((left, top - 12.0), Anchor::Start, title);
    for (power, label) in (scale.range.0..=scale.range.1).zip(scale.labels) {
        let y = top + scale.place(10_f64.powi(power));
        svg.rule((left, y), (left + PANEL_WIDTH, y));
        svg.text((left - 6.0, y + 4.0), Anchor::End, label);
    }
    let counts: Vec<u64> = all.iter().flat_map(|one| one.points.iter().map(|point| point.count)).collect();
    let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else { return };
    let (from, to) = (as_float(*least).log10(), as_float(*most).log10());
    let place = |count: u64| left + PANEL_WIDTH * (as_float(count).log10() - from) / (to - from).max(0.1);
    let mut marks = counts.clone();
    marks.sort_unstable();
    marks.dedup();
    for count in marks {
        svg.rule((place(count), top), (place(count), top + PANEL_HEIGHT));
        svg.text((place(count), top + PANEL_HEIGHT + 14.0), Anchor::Middle, &count.to_string());
    }
    let mut names: Vec<(f64, &str, &str)> = Vec::new();
    for (one, colour) in all.iter().zip(COLOURS.iter().copied().cycle()) {
        let points = one.points.iter().map(|point| (place(point.count), top + scale.place((scale.value)(point))));
        svg.polyline(points, colour);
        let end = one.points.last().map_or(0.0, |point| top + scale.place((scale.value)(point)));
        names.push((end, one.step, colour));
    }
    name_curves(svg, left + PANEL_WIDTH + 6.0, names);
}

/// Writes the name of each curve beside its end, or below the name above it.
fn name_curves(svg: &mut Svg, x: f64, mut names: Vec<(f64, &str, &str)>) {
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::NEG_INFINITY;
    for (end, name, colour) in names {
        let y = end.max(free);
        svg.rect((x, y - 3.0), (6.0, 6.0), colour, name);
        svg.text((x + 9.0, y + 4.0), Anchor::Start, name);
        free = y + NAME_STEP;
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::Growth;
    use super::*;

    #[test]
    fn each_series_has_a_curve_of_time_and_one_of_memory() {
        let point = |count, seconds| Point { count, seconds, peak_kib: 9000 };
        let points = vec![point(10, 0.001), point(100, 0.02)];
        let series = |step| Series { step, growth: Growth::Whole, points: points.clone() };
        let svg = draw(&[("files", &[series("check"), series("send")])]);
        assert_eq!(svg.matches("fill=\"none\"").count(), 4, "{svg}");
        assert_eq!(svg.matches(">check</text>").count(), 2, "{svg}");
    }
}
