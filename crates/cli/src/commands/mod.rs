//! Holds the commands on files and directories, which every format has, and the parts that all commands share.
//!
//! Each command is a file named after it, with its arguments as a struct and a `run`. They work through
//! [`spinney::Files`], for every format: texts for one format are in its face ([`format::Face`]), and nothing here
//! names one. Shared modules: [`image`] opens the image that the user names, `place` parses an argument to a path on
//! the host, in an image or in a mount, [`short_form`] rewrites arguments to one form, `dest` decides the targets of
//! copies, [`on_mount`] asks the server of a mount to run a command, [`output`], [`names`] and `report` write reports,
//! [`human`] formats numbers, [`failure`] decides the exit status, `tally` and [`progress`] watch the copies that the
//! library makes, [`interrupt`] notes signals for them, and [`picture`] draws. [`trace`] is a folder, as is
//! `mount`, which Linux alone has: on other systems `elsewhere` refuses for it, and `kernel` for single calls.
//!
//! Failure: the first one ends the command. A command that changes an image makes its changes durable before it reports
//! success; if it fails, the image is consistent and may have a part of the changes. Callers: `args`, and the commands
//! of one format.

pub(crate) mod archives;
pub(crate) mod attributes;
pub(crate) mod cat;
pub(crate) mod cp;
pub(crate) mod dedupe;
pub(crate) mod defrag;
mod dest;
#[cfg(not(target_os = "linux"))]
pub(crate) mod elsewhere;
pub(crate) mod emulation;
pub(crate) mod failure;
pub(crate) mod failures;
mod files;
pub(crate) mod format;
pub(crate) mod get;
pub(crate) mod human;
pub(crate) mod image;
pub(crate) mod info;
pub(crate) mod interrupt;
pub(crate) mod kernel;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) use spinney::magic;
pub(crate) mod mkdir;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod names;
pub(crate) mod number;
pub(crate) mod on_mount;
pub(crate) mod output;
pub mod picture;
mod place;
pub(crate) mod polling;
pub(crate) mod progress;
pub(crate) mod put;
mod report;
pub(crate) mod rm;
#[cfg(target_os = "linux")]
pub(crate) mod serve;
pub(crate) mod short_form;
mod socket;
pub(crate) mod stat;
pub(crate) mod tally;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod trim;
mod trust;
pub(crate) mod unnamed;
