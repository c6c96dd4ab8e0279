//! Does the mount do what the kernel's own file systems do?
//!
//! * [`checks`] runs the suites that others wrote (pjdfstest, fsx, git, sqlite, dbench, stress-ng,
//!   fio, a tree) on fresh mounts in several modes;
//! * [`tree`] works with a kernel's source tree through the mount, and on tmpfs for comparison;
//! * [`long`] is what takes too long for every day: fsx for hours, direct I/O ([`exercise`]), a full volume;
//! * [`xfstests`] runs the kernel developers' suite on a mount, on a passthrough and on the kernel's btrfs;
//! * [`kill`] kills the server while files are synced, and looks for what was promised;
//! * [`power_cut`] cuts the power of the disk below the image instead; what the writers do, and what they remember of
//!   promises, is in [`promises`] for both;
//! * [`attack`] tries to get around permissions, there and on the kernel's btrfs;
//! * [`torture`] fills volumes to the last byte and empties them, there and on the kernel's btrfs;
//!
//! [`served`] makes an image, mounts it and takes it down again; after everything `btrfs check
//! --check-data-csum` has to be clean. [`exclusions`] reads which tests are left out, and why.
//!
//! Needs root, and the `spinney` program built. Fails with the output of what failed; nothing stays
//! mounted. Called by `cargo trials mount-checks`, `mount-tree`, `mount-long`,
//! `kill-mount`, `power-cut`, `xfstests`, `attack` and `torture`.

pub(crate) mod attack;
pub(crate) mod checks;
mod exclusions;
mod exercise;
pub(crate) mod kill;
pub(crate) mod long;
pub(crate) mod power_cut;
mod promises;
mod served;
pub(crate) mod torture;
pub(crate) mod tree;
pub(crate) mod xfstests;
