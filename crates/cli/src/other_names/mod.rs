//! Makes this program answer to the names of others: a link `mkfs.btrfs` to it takes the options of `mkfs.btrfs` 6.19,
//! and so do `mkfs.f2fs` and `sload.f2fs` with theirs. systemd-repart, mkosi, osbuild and genimage need no change
//! then.
//!
//! Each rewrites its command line into one of `spinney`, which `run` in `lib` parses: [`rewrite`] says with
//! [`Rewritten`] how messages and the exit status have to look. An option that the other program has and Spinney does
//! not is refused by its name. `links` makes the links.

mod links;
mod mkfs_btrfs;
mod mkfs_f2fs;
mod words;

use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(crate) use links::InstallLinks;
pub(crate) use mkfs_btrfs::PROGS_VERSION;

/// The names, and the commands that they stand for.
const NAMES: &[(&str, &str)] =
    &[(mkfs_btrfs::NAME, "mkfs -t btrfs"), (mkfs_f2fs::MKFS_NAME, "mkfs -t f2fs"), (mkfs_f2fs::SLOAD_NAME, "put")];

/// The meaning of a command line of another program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// The command line of `spinney`.
    Words(Vec<OsString>),
    /// A text for the standard output, and the end.
    Text(String),
    /// A wrong command line.
    Wrong(String),
}

/// Rewrites the command line of a program that this one is called as; `None` under its own name.
pub(crate) fn rewrite(args: &[OsString]) -> Option<Rewritten> {
    let name = Path::new(args.first()?).file_name().and_then(OsStr::to_str)?;
    let rest = args.get(1..).unwrap_or_default();
    match name {
        mkfs_btrfs::NAME => Some(mkfs_btrfs::rewrite(rest)),
        mkfs_f2fs::MKFS_NAME => Some(mkfs_f2fs::rewrite_mkfs(rest)),
        mkfs_f2fs::SLOAD_NAME => Some(mkfs_f2fs::rewrite_sload(rest)),
        _ => None,
    }
}
