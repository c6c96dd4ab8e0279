//! Draws the recording of the README: a terminal in which the commands of one page are typed, as an SVG that plays by
//! itself.
//!
//! It is drawn from `docs/guide/src/introduction.md`, whose output `guide` compares with that of the program. The
//! picture in `docs/pictures` has to be the one drawn from it; `guide` calls [`compare`] at its end. Colours follow the
//! reader's light or dark setting.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::page::Page;

/// The page it is drawn from.
const SOURCE: &str = "docs/guide/src/introduction.md";
/// The picture.
const PICTURE: &str = "docs/pictures/recording.svg";

/// Distance of lines, width of a character and margin, in pixels.
const LINE: usize = 18;
const CHARACTER: usize = 8;
const MARGIN: usize = 16;
/// Height of the bar above the terminal, in pixels.
const BAR: usize = 28;
/// Milliseconds between a command and the next one, and for each line of output.
const COMMAND_MS: usize = 1200;
const OUTPUT_MS: usize = 120;

const STYLE: &str = "\
.window { fill: #f6f8fa; stroke: #d0d7de } .bar { fill: #d0d7de } .command { fill: #0550ae; font-weight: bold } text { \
font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #24292f; white-space: pre } text.command { fill: #0550ae } \
@media (prefers-color-scheme: dark) { .window { fill: #0d1117; stroke: #30363d } .bar { fill: #30363d } text { fill: \
#c9d1d9 } text.command { fill: #79c0ff } } @media (prefers-reduced-motion: no-preference) { text { opacity: 0; \
animation: appear 1ms forwards } } @keyframes appear { to { opacity: 1 } }";

/// Draws the recording and compares it with the picture; returns 1 where they differ. `bless` writes the picture.
pub(super) fn compare(root: &Path, bless: bool) -> Result<usize> {
    let drawn = draw(&Page::parse(&std::fs::read_to_string(root.join(SOURCE))?));
    if bless {
        std::fs::write(root.join(PICTURE), &drawn)?;
    }
    if std::fs::read_to_string(root.join(PICTURE)).is_ok_and(|picture| picture == drawn) {
        return Ok(0);
    }
    println!("{PICTURE} is not what {SOURCE} shows");
    Ok(1)
}

/// A line of the terminal, and the time at which it appears.
struct Shown {
    text: String,
    is_command: bool,
    at_ms: usize,
}

fn draw(page: &Page) -> String {
    let mut lines = Vec::new();
    let mut at_ms = 0;
    for step in page.steps().filter(|step| !step.is_hidden) {
        for (index, line) in step.command.lines().enumerate() {
            let text = format!("{} {line}", if index == 0 { '$' } else { '>' });
            lines.push(Shown { text, is_command: true, at_ms });
        }
        for line in &step.shown {
            at_ms += OUTPUT_MS;
            lines.push(Shown { text: line.clone(), is_command: false, at_ms });
        }
        at_ms += COMMAND_MS;
    }
    let columns = lines.iter().map(|line| line.text.chars().count()).max().unwrap_or(0);
    let (width, height) = (columns * CHARACTER + 2 * MARGIN, lines.len() * LINE + BAR + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"A terminal\">\n<style>{STYLE}</style>\n\
         <rect class=\"window\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <rect class=\"bar\" x=\"1\" y=\"1\" width=\"{}\" height=\"{BAR}\" rx=\"6\"/>\n",
        width - 1,
        height - 1,
        width - 2
    );
    for (index, line) in lines.iter().enumerate() {
        let y = BAR + MARGIN + index * LINE + LINE / 2;
        let class = if line.is_command { " class=\"command\"" } else { "" };
        // A String takes every write.
        let _ = writeln!(
            svg,
            "<text{class} x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\" style=\"animation-delay:{}ms\">{}</text>",
            line.at_ms,
            escaped(&line.text)
        );
    }
    svg += "</svg>\n";
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_output_are_drawn_in_their_order() {
        let svg = draw(&Page::parse("```console\n$ ls <x>\na & b\n$ true\n```\n<!-- run:\nhidden\n-->\n"));
        let texts: Vec<&str> = svg.lines().filter(|line| line.starts_with("<text")).collect();
        assert_eq!(texts.len(), 3, "{svg}");
        assert!(texts[0].contains("class=\"command\"") && texts[0].contains("$ ls &lt;x&gt;"), "{svg}");
        assert!(texts[1].contains("120ms") && texts[1].contains("a &amp; b"), "{svg}");
        assert!(texts[2].contains("1320ms"), "{svg}");
    }
}
