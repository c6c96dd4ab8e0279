//! What the checkers of all formats have in common: a table of passes, a table of codes, what is found, and the report.
//!
//! ```text
//! format's checker: Pass (PassTable), Code (codes!), Place
//!       |  adds what it finds
//!       v
//!   Collection -> Report -> whoever shows it, for every format in one way
//! ```
//!
//! Invariants
//! * names of passes and codes do not change from version to version, and none stands in a table twice;
//! * of each code a bounded number of findings is kept, and all are counted.
//!
//! Nothing here reads a device, and nothing fails. Callers: the checkers, and the command line.

mod code;
mod finding;
mod pass;
mod watch;

pub use code::{CodeInfo, CodeTable};
pub use finding::{Collection, Finding, Report};
pub use pass::{PassInfo, PassTable};
pub use watch::Watch;
