//! Draws the picture of `bench scale` as SVG: how many times as much more processors do. Called by `mod`.

use spinney_cli::picture::{Anchor, Svg};

use super::{PROCESSORS, Row};

const WIDTH: u32 = 300;
const HEIGHT: u32 = 210;
const COLUMNS: u32 = 3;
const LEFT: f64 = 40.0;
const TOP: f64 = 30.0;
/// Pixels of a doubling.
const STEP: f64 = 20.0;
/// Doublings from 1 to 128.
const DOUBLINGS: u32 = 7;
const COLOURS: [&str; 3] = ["#31a354", "#e6550d", "#756bb1"];

/// A panel for each workload, with a curve for each way.
pub(super) fn draw(rows: &[Row]) -> String {
    let mut names: Vec<&str> = rows.iter().map(|row| row.workload).collect();
    names.dedup();
    let lines = u32::try_from(names.len()).unwrap_or(0).div_ceil(COLUMNS);
    let mut svg = Svg::new(WIDTH * COLUMNS, HEIGHT * lines + 40);
    svg.title((12.0, 24.0), "Calls of 1 to 128 processors, in times those of one: simulated from recorded locks");
    for (name, index) in names.iter().zip(0_u32..) {
        let at = (f64::from(index % COLUMNS * WIDTH), f64::from(index / COLUMNS * HEIGHT) + 40.0);
        panel(&mut svg, at, name, rows);
    }
    svg.done()
}

fn panel(svg: &mut Svg, (x, y): (f64, f64), name: &str, rows: &[Row]) {
    let (left, top) = (x + LEFT, y + TOP);
    let (right, bottom) = (left + f64::from(DOUBLINGS) * STEP, top + f64::from(DOUBLINGS) * STEP);
    svg.text((left, top - 10.0), Anchor::Start, name);
    for (doubling, count) in (0..=DOUBLINGS).zip(PROCESSORS) {
        let (across, up) = (left + f64::from(doubling) * STEP, bottom - f64::from(doubling) * STEP);
        svg.rule((across, top), (across, bottom));
        svg.rule((left, up), (right, up));
        if doubling % 2 == 0 || doubling == DOUBLINGS {
            svg.text((across, bottom + 13.0), Anchor::Middle, &count.to_string());
            svg.text((left - 6.0, up + 4.0), Anchor::End, &count.to_string());
        }
    }
    let ways = rows.iter().filter(|row| row.workload == name);
    for ((row, colour), index) in ways.zip(COLOURS).zip(0_u32..) {
        let first = row.model.first().copied().unwrap_or(1.0);
        let points = row.model.iter().zip(0_u32..).map(|(calls, doubling)| {
            let up = (calls / first).log2().clamp(0.0, f64::from(DOUBLINGS));
            (left + f64::from(doubling) * STEP, bottom - up * STEP)
        });
        svg.polyline(points.collect::<Vec<_>>(), colour);
        let label = row.older.unwrap_or("as it is");
        svg.text(
            (left + 4.0, top + 12.0 + f64::from(index) * 13.0),
            Anchor::Start,
            &format!("{} {label}", marker(colour)),
        );
    }
}

/// The colour of a curve, as a word.
fn marker(colour: &str) -> &'static str {
    match colour {
        "#31a354" => "green:",
        "#e6550d" => "orange:",
        _ => "violet:",
    }
}
