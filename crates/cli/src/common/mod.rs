//! What every format has: the commands on files and directories, and what all commands share.
//!
//! Below are the commands, one file each, named after them; each has its arguments as a struct
//! and a `run`. They work through `vfs::Volume`, whatever format is behind it ([`mod@format`]). What they share: [`image`] opens what
//! the user names and [`dest`] decides where copies go, [`output`], [`names`] and [`report`] write reports,
//! [`magic`] knows formats by their first bytes, [`human`] makes numbers readable, [`failure`]
//! decides the exit status, [`import`] and [`export`] copy trees in and out with [`work`] and
//! [`progress`], [`interrupt`] notes signals for them, and [`beneath`] keeps an export where it belongs.
//! [`mount`] is a folder.
//!
//! Failure: the first one ends the command. A command that changes an image makes its changes
//! durable before it reports success; one that fails leaves the image consistent, with a part of
//! its changes. Caller: `main`.

pub(crate) mod attributes;
pub(crate) mod beneath;
pub(crate) mod cat;
pub(crate) mod dest;
pub(crate) mod export;
pub(crate) mod failure;
pub(crate) mod format;
pub(crate) mod get;
pub(crate) mod human;
pub(crate) mod image;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod interrupt;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod magic;
pub(crate) mod mkdir;
pub(crate) mod mount;
pub(crate) mod mounts;
pub(crate) mod mv;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod put;
pub(crate) mod report;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod work;
