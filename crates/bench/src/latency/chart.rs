//! Draws the picture of `bench latency` as SVG: for each kind of operation, which share of them took longer than a
//! time. `latency::run` calls it for `--chart`.

use spinney_cli::picture::{Anchor, Svg};

use super::kind::{Kind, Times};

const WIDTH: u32 = 460;
const HEIGHT: u32 = 190;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
/// Pixels of a power of ten of time, and of the share.
const DECADE_X: f64 = 60.0;
const DECADE_Y: f64 = 21.0;
/// From 1 microsecond to 1 second; from all to one in a million.
const DECADES_X: u32 = 6;
const DECADES_Y: u32 = 6;
const COLOURS: [&str; 4] = ["#31a354", "#6baed6", "#e6550d", "#756bb1"];
const COLUMNS: u32 = 2;

/// The log of a count or a time, to 10.
#[expect(clippy::as_conversions, reason = "a place in a picture")]
fn log(value: u64) -> f64 {
    (value.max(1) as f64).log10()
}

/// A panel for each kind of operation, a curve for each system.
pub(super) fn draw(systems: &[(&str, &Times)]) -> String {
    let mut kinds: Vec<Kind> = systems.iter().flat_map(|(_, times)| times.kinds().map(|(kind, _)| kind)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.retain(|kind| *kind != Kind::Balance);
    let rows = u32::try_from(kinds.len()).unwrap_or(0).div_ceil(COLUMNS);
    let mut svg = Svg::new(WIDTH * COLUMNS, HEIGHT * rows + 70);
    svg.title((12.0, 24.0), "Share of operations that took longer, everything at once on a ramdisk");
    svg.legend(180.0, systems.iter().map(|(name, _)| *name).zip(COLOURS));
    for (kind, index) in kinds.iter().zip(0u32..) {
        let at = (f64::from(index % COLUMNS * WIDTH), f64::from(index / COLUMNS * HEIGHT) + 50.0);
        panel(&mut svg, at, *kind, systems);
    }
    svg.done()
}

fn panel(svg: &mut Svg, (x, y): (f64, f64), kind: Kind, systems: &[(&str, &Times)]) {
    let (left, top) = (x + LEFT, y + TOP);
    let bottom = top + f64::from(DECADES_Y) * DECADE_Y;
    let right = left + f64::from(DECADES_X) * DECADE_X;
    svg.text((left, top - 10.0), Anchor::Start, kind.name());
    for (decade, label) in (0..=DECADES_X).zip(["1 \u{b5}s", "10", "100", "1 ms", "10", "100", "1 s"]) {
        let at = left + f64::from(decade) * DECADE_X;
        svg.rule((at, top), (at, bottom));
        svg.text((at, bottom + 13.0), Anchor::Middle, label);
    }
    for (decade, label) in (0..=DECADES_Y).zip(["1", "", "1 %", "", "10\u{207b}\u{2074}", "", "10\u{207b}\u{2076}"]) {
        let at = top + f64::from(decade) * DECADE_Y;
        svg.rule((left, at), (right, at));
        svg.text((left - 6.0, at + 4.0), Anchor::End, label);
    }
    for ((_, times), colour) in systems.iter().zip(COLOURS) {
        let Some(histogram) = times.of(kind) else { continue };
        let mut longer = histogram.count();
        let mut points = vec![(left, top)];
        for (end_ns, count) in histogram.ranges() {
            let at = |ns: u64, longer: u64| {
                let time = (log(ns) - 3.0).clamp(0.0, f64::from(DECADES_X));
                let share = (log(histogram.count()) - log(longer)).clamp(0.0, f64::from(DECADES_Y));
                (left + time * DECADE_X, top + share * DECADE_Y)
            };
            points.push(at(end_ns, longer));
            longer -= count;
            if longer > 0 {
                points.push(at(end_ns, longer));
            }
        }
        svg.polyline(points, colour);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn each_kind_has_a_panel_and_each_system_a_curve() {
        let begin = Instant::now();
        let mut times = Times::new(begin);
        times.note(Kind::Write, begin, Duration::from_millis(3));
        times.note(Kind::Balance, begin, Duration::from_secs(3));
        let svg = draw(&[("ours", &times), ("theirs", &times)]);
        assert_eq!(svg.matches("fill=\"none\"").count(), 2, "{svg}");
        assert!(svg.contains("write") && !svg.contains("balance"));
    }
}
