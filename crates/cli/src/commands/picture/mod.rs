//! Draws charts as SVG: text that any browser shows, small enough to be stored with the data that it shows.
//!
//! [`Svg`] writes elements; [`ticks`] finds round numbers for an axis.
//!
//! Only [`write()`] can fail. A chart without data (no values, a time of zero) is empty. Callers: `trace`, `map`, and
//! the crate `bench`. Texts may come from hostile files: [`Svg`] escapes them.

mod axis;
mod svg;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::commands::output::replace;

pub use axis::{Axis, ticks};
use svg::BEGINNING;
pub use svg::{Anchor, Svg, escaped};

/// Writes a picture to a file; creates the file, or replaces it if it is a picture written by this program.
///
/// # Errors
/// If the file cannot be written, or has other contents.
pub fn write(path: &Path, svg: &str) -> Result<()> {
    replace(path, BEGINNING.as_bytes())?.write_all(svg.as_bytes()).with_context(|| path.display().to_string())
}
