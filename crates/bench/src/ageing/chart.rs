//! Draws the picture of `bench ageing` as SVG: curves over the rounds, and how the space for data is used at the end.
//! `ageing::run` calls it for `--chart`.

use spinney_cli::picture::{Anchor, Axis, Svg, ticks};

use super::layout::Layout;
use crate::row::{as_float, as_u64};

const COLOURS: [&str; 2] = ["#31a354", "#6baed6"];
/// From empty to full.
const SHADES: [&str; 6] = ["#ffffff", "#deebf7", "#9ecae1", "#6baed6", "#3182bd", "#08519c"];

const WIDTH: u32 = 960;
const PANEL_WIDTH: f64 = 230.0;
const PANEL_HEIGHT: f64 = 150.0;
const PANEL_STEP: f64 = 310.0;
const PANEL_LEFT: f64 = 60.0;
const PANEL_TOP: f64 = 90.0;
const STRIP_TOP: f64 = 300.0;
const STRIP_STEP: f64 = 62.0;
const STRIP_HEIGHT: f64 = 34.0;
/// Pixels of a part of the space.
const PART_WIDTH: f64 = 2.75;

/// Draws both systems.
pub(super) fn draw(systems: &[(&str, &[Layout])]) -> String {
    let mut svg = Svg::new(WIDTH, 440);
    svg.title((12.0, 24.0), "Filled to 80 %, halved and filled again: how data and free space lie");
    svg.legend(120.0, systems.iter().map(|(name, _)| *name).zip(COLOURS));
    panel(&mut svg, 0.0, "runs a file (less is better)", systems, Layout::runs_per_file);
    panel(&mut svg, 1.0, "KiB a request", systems, Layout::request_kib);
    panel(&mut svg, 2.0, "% of free bytes in runs of 1 MiB and more", systems, |layout| layout.large_share() * 100.0);
    for ((name, rounds), row) in systems.iter().zip(0u32..) {
        let y = STRIP_TOP + f64::from(row) * STRIP_STEP;
        svg.text((12.0, y), Anchor::Start, &format!("{name}: space for data at the end, white where it is free"));
        let Some(layout) = rounds.last() else { continue };
        for (percent, part) in layout.parts.iter().zip(0u32..) {
            let shade = percent.div_ceil(20).min(as_u64(SHADES.len()) - 1);
            let fill = usize::try_from(shade).ok().and_then(|shade| SHADES.get(shade)).copied().unwrap_or("#000");
            let x = 12.0 + f64::from(part) * PART_WIDTH;
            svg.rect((x, y + 6.0), (PART_WIDTH, STRIP_HEIGHT), fill, "");
        }
        let right = 12.0 + as_float(as_u64(layout.parts.len())) * PART_WIDTH;
        let (top, bottom) = (y + 6.0, y + 6.0 + STRIP_HEIGHT);
        for (from, to) in [((12.0, top), (right, top)), ((12.0, bottom), (right, bottom))] {
            svg.rule(from, to);
        }
    }
    svg.done()
}

fn panel(svg: &mut Svg, column: f64, title: &str, systems: &[(&str, &[Layout])], value: impl Fn(&Layout) -> f64) {
    let (left, bottom) = (PANEL_LEFT + column * PANEL_STEP, PANEL_TOP + PANEL_HEIGHT);
    svg.text((left, PANEL_TOP - 14.0), Anchor::Start, title);
    let values = systems.iter().flat_map(|(_, rounds)| rounds.iter().map(&value));
    let y = Axis { max: values.fold(0.0, f64::max) * 1.05, from: bottom, to: PANEL_TOP };
    for tick in ticks(y.max, 4, 10.0) {
        svg.rule((left, y.place(tick)), (left + PANEL_WIDTH, y.place(tick)));
        svg.text((left - 6.0, y.place(tick) + 4.0), Anchor::End, &format!("{tick}"));
    }
    let last = systems.iter().map(|(_, rounds)| rounds.len()).max().unwrap_or(0).saturating_sub(1);
    let x = Axis { max: as_float(as_u64(last)), from: left, to: left + PANEL_WIDTH };
    for round in 0..=last {
        let at = x.place(as_float(as_u64(round)));
        svg.text((at, bottom + 16.0), Anchor::Middle, &round.to_string());
    }
    svg.text((left + PANEL_WIDTH, bottom + 32.0), Anchor::End, "rounds");
    for ((_, rounds), colour) in systems.iter().zip(COLOURS) {
        let points =
            rounds.iter().enumerate().map(|(round, layout)| (x.place(as_float(as_u64(round))), y.place(value(layout))));
        svg.polyline(points, colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_three_curves_and_a_strip() {
        let layout = Layout { files: 1, runs: 2, bytes: 1 << 20, parts: vec![0, 100, 50], ..Layout::default() };
        let rounds = [layout.clone(), layout];
        let svg = draw(&[("spinney", &rounds), ("btrfs", &rounds)]);
        assert_eq!(svg.matches("fill=\"none\"").count(), 6, "{svg}");
        assert_eq!(svg.matches("white where").count(), 2);
        assert!(svg.contains(SHADES[5]) && svg.contains("rounds"));
    }
}
