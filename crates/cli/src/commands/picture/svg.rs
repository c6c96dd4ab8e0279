//! Writes the SVG elements of pictures. Called by `trace/plot`, `map` and the charts of `bench`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Alignment of a text to its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Begins there.
    Start,
    /// Centred there.
    Middle,
    /// Ends there.
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The beginning of every picture.
pub(super) const BEGINNING: &str = "<svg xmlns=";

/// The colours of the page and of texts where the reader's system is set to dark ones.
const DARK: &str =
    "<style>@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } text { fill: #e6edf3 } }</style>\n";

/// A picture that is being drawn; lengths are pixels, from the upper left corner.
#[derive(Debug, Clone)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty picture: dark on white, and light on black for readers whose system is set to dark colours.
    #[must_use]
    pub fn new(width: u32, height: u32) -> Self {
        let text = format!(
            "{BEGINNING}\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             {DARK}<rect class=\"page\" width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        Self { text }
    }

    /// A text in one line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) -> &mut Self {
        let (anchor, text) = (anchor.name(), escaped(text));
        self.line(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"))
    }

    /// A text in one line, larger and bold.
    pub fn title(&mut self, (x, y): (f64, f64), text: &str) -> &mut Self {
        let text = escaped(text);
        self.line(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"14\" font-weight=\"bold\">{text}</text>"))
    }

    /// Legend: names and their colours below the title, `step` pixels apart.
    pub fn legend<'a>(&mut self, step: f64, entries: impl Iterator<Item = (&'a str, &'a str)>) {
        for ((name, colour), index) in entries.zip(0u32..) {
            let x = 12.0 + f64::from(index) * step;
            self.rect((x, 36.0), (12.0, 12.0), colour, "");
            self.text((x + 18.0, 46.0), Anchor::Start, name);
        }
    }

    /// A filled rectangle; `about` is shown when the pointer rests on it.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, about: &str) -> &mut Self {
        let shape = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"");
        match about {
            "" => self.line(&format!("<rect {shape}/>")),
            about => self.line(&format!("<rect {shape}><title>{}</title></rect>", escaped(about))),
        }
    }

    /// A path, as SVG writes it, that is filled.
    pub fn filled(&mut self, path: &str, fill: &str) -> &mut Self {
        self.line(&format!("<path d=\"{path}\" fill=\"{fill}\"/>"))
    }

    /// Lines from point to point.
    pub fn polyline(&mut self, points: impl IntoIterator<Item = (f64, f64)>, stroke: &str) -> &mut Self {
        let mut path = String::new();
        for (x, y) in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string cannot fail.
            let _ = write!(path, "{command}{x:.1} {y:.1}");
        }
        self.line(&format!("<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.2\"/>"))
    }

    /// A thin gray line.
    pub fn rule(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> &mut Self {
        self.line(&format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ccc\" stroke-width=\"0.6\"/>"))
    }

    /// The whole picture.
    #[must_use]
    pub fn done(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn line(&mut self, element: &str) -> &mut Self {
        self.text.push_str(element);
        self.text.push('\n');
        self
    }
}

/// Text for an element: markup and invisible characters are replaced.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !matches!(c, '<' | '>' | '&' | '"' | '\'') && !c.is_control();
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_elements() {
        let mut svg = Svg::new(10, 10);
        svg.text((1.0, 2.0), Anchor::Middle, "<script>&\u{1b}[0m").rect((0.0, 0.0), (1.0, 1.0), "#000", "a\"b");
        let text = svg.done();
        assert!(text.contains("&lt;script&gt;&amp;\u{fffd}[0m") && text.contains("a&quot;b"), "{text}");
        assert!(!text.contains("<script") && text.ends_with("</svg>\n"));
    }
}
