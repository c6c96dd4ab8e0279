//! What every format has: the commands on files and directories, and what all commands share.
//!
//! Each command is a file named after it, with its arguments as a struct and a `run`. They work through
//! [`vfs::Volume`], whatever format is behind it: a program says which formats it has ([`format::know`]), and nothing
//! here names one. Shared by the commands: [`image`] opens what the user names, `place` parses an argument to a path on
//! the host, in an image or in a mount, [`short`] rewrites arguments to one form, `dest` decides where copies go,
//! [`on_mount`] has the server of a mount carry out a command, [`output`], [`names`] and `report` write reports,
//! [`magic`] knows formats by their first bytes, [`human`] makes numbers readable, [`failure`] decides the exit status,
//! `tally` and [`progress`] watch the copies that crate `transfer` makes, [`interrupt`] notes signals for them, and
//! [`picture`] draws. [`mount`] and [`trace`] are folders.
//!
//! Failure: the first one ends the command. A command that changes an image makes its changes
//! durable before it reports success; one that fails leaves the image consistent, with a part of
//! its changes. Callers: programs, with the formats that they know.

pub mod attributes;
pub mod cat;
pub mod cp;
pub mod dedupe;
pub mod defrag;
mod dest;
pub mod emulation;
pub mod failure;
pub mod failures;
mod files;
pub mod format;
pub mod get;
pub mod human;
pub mod image;
pub mod info;
pub mod interrupt;
pub mod ln;
pub mod ls;
pub use spinney::magic;
pub mod mkdir;
pub mod mount;
mod mounts;
pub mod mv;
pub mod names;
pub mod number;
pub mod on_mount;
pub mod output;
pub mod picture;
mod place;
pub mod polling;
pub mod progress;
pub mod put;
mod report;
pub mod rm;
pub mod short;
mod socket;
pub mod stat;
mod tally;
pub mod trace;
pub mod tree;
pub mod trim;
mod trust;
