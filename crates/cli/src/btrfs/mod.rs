//! The commands that only btrfs has, one file (or folder) each: making a file system, subvolumes and snapshots,
//! resizing and space usage, the trees on disk, crash tests.
//!
//! Each has its arguments as a struct and a `run`, like those of `commands`, and uses the shared modules there; [`row`]
//! is its row in `formats`, with the functions of [`mount`] and [`place`]. Only `dump` and `verify_crash` use the store
//! and the device below the library's `Volume`.
//!
//! Failure: as in `commands`; `mkfs` removes the file that a failed attempt has made. Caller: `args`.

pub(crate) mod backup;
pub(crate) mod balance;
pub(crate) mod check;
pub(crate) mod device;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod dump;
pub(crate) mod features;
pub(crate) mod fork;
pub(crate) mod format;
pub(crate) mod generations;
pub(crate) mod image;
pub(crate) mod info;
mod jobs;
pub(crate) mod label;
pub(crate) mod map;
pub(crate) mod mkfs;
pub(crate) mod path_options;
mod place;
mod progs_report;
pub(crate) mod qgroup;
pub(crate) mod quota;
pub(crate) mod receive;
mod reflink;
pub(crate) mod repair;
pub(crate) mod rescue;
pub(crate) mod resize;
pub(crate) mod row;
#[cfg(target_os = "linux")]
pub(crate) mod run;
pub(crate) mod scrub;
mod seed;
pub(crate) mod send;
mod server_report;
pub(crate) mod sizing;
mod state_file;
pub(crate) mod subvolume;
pub(crate) mod usage;
pub(crate) mod verify_crash;
mod verity;
