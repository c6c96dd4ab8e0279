//! Common parts of the checkers of all formats: pass table, code table, findings and report; and the watch of every
//! long operation ([`Watch`]: progress and cancellation).
//!
//! ```text
//! format's checker: Pass (PassTable), Code (codes!), Place
//!       |  adds findings
//!       v
//!   Collection -> Report -> command line, in one layout for every format
//! ```
//!
//! Invariants
//! * names of passes and codes are stable across versions and unique within a table;
//! * a bounded number of findings is kept per code, and all are counted.
//!
//! This crate reads no device and cannot fail. Callers: the checkers, the `spinney` library, and the command line; for
//! [`Watch`] also receipts and backups.

mod code;
mod finding;
mod pass;
mod watch;

pub use code::{CodeInfo, CodeTable};
pub use finding::{Collection, Finding, Report};
pub use pass::{PassInfo, PassTable};
pub use watch::{Cancelled, Watch, Watched};
