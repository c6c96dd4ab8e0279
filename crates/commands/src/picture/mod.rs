//! Pictures as SVG: text that any browser shows, small enough to be kept beside the numbers.
//!
//! [`Svg`] writes elements; [`ticks`] finds round numbers for an axis.
//!
//! Failure: none; what cannot be drawn (no values, a time of zero) is an empty panel. Callers: [`crate::trace`], and
//! the commands of formats that draw. Texts may come from hostile files: they are escaped here.

mod axis;
mod svg;

pub use axis::{Axis, ticks};
pub use svg::{Anchor, Svg, escaped};
