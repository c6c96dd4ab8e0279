//! Tests mounts: a mount behaves as the kernel's own file systems do.
//!
//! * [`checks`] runs foreign suites (pjdfstest, fsx, git, sqlite, dbench, stress-ng, fio, a tree) on fresh mounts in
//!   several modes;
//! * [`tree`] works with a kernel's source tree through the mount, and on tmpfs for comparison;
//! * [`long`] takes too long for every day: fsx for hours, direct I/O ([`exercise`]), a full volume;
//! * [`xfstests`] runs the kernel developers' suite on a mount, on a passthrough and on the kernel's btrfs;
//! * [`kill`] kills the server while files are synced, and verifies the synced data;
//! * [`power_cut`] cuts the power of the disk below the image instead; for both, [`promises`] has the writers, and the
//!   promises that they got;
//! * [`ceph`] has the disk in a cluster of Ceph, and kills its daemons;
//! * [`attack`] tries to circumvent permissions, there and on the kernel's btrfs;
//! * [`torture`] fills volumes to the last byte and empties them, there and on the kernel's btrfs;
//!
//! [`fresh_mount`] makes an image, mounts it and takes it down again; afterwards `btrfs check --check-data-csum` must
//! find no error. [`exclusions`] reads the tests that are left out.
//!
//! Needs root, and the `spinney` program built. Fails with the output of the failing program; nothing stays mounted.
//! Called by `cargo trials mount-checks`, `mount-tree`, `mount-long`, `kill-mount`, `power-cut`,
//! `ceph`, `xfstests`, `attack` and `torture`.

pub(crate) mod attack;
pub(crate) mod ceph;
pub(crate) mod checks;
mod exclusions;
mod exercise;
mod fresh_mount;
pub(crate) mod kill;
pub(crate) mod long;
pub(crate) mod power_cut;
mod promises;
pub(crate) mod torture;
pub(crate) mod tree;
pub(crate) mod xfstests;
