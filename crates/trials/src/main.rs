//! Trials of the built program: `cargo trials TRIAL`. Each makes images, mounts, streams or crashes, and compares the
//! result with the kernel, with `btrfs check` or with a model.

mod backup_kill;
mod balance_resume;
mod crash_explore;
mod damage;
mod deletion_resume;
mod diff_walk;
mod disk_boot;
mod f2fs_cleaning;
mod formats;
mod fuzz_archives;
mod fuzz_images;
mod fuzz_streams;
mod guest;
mod guest_client;
mod guide;
mod images;
mod interruption;
mod log_replay;
mod mkfs_cases;
mod mount;
mod mutate_images;
mod nbd;
mod nfs_guest;
mod repair_crash;
mod rescue_table;
mod rework;
mod round_trip;
mod send_histories;
mod send_receive;
mod several_devices;
mod subvolumes;
mod system;
mod verity;
mod virtiofs_guest;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Trials of the built program, most of them compared with a kernel.
#[derive(Debug, Parser)]
#[command(name = "cargo trials")]
struct Arguments {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Debug, Subcommand)]
enum Trial {
    /// Make the images that `diff-walk` compares on, with a kernel and its mkfs. Those of btrfs need root; those of
    /// f2fs need qemu, and are walked as they are made.
    Images {
        /// Format of the images
        #[arg(long, value_enum, default_value_t = formats::Kind::Btrfs)]
        format: formats::Kind,
        /// Directory for the guest's kernel, which makes images of f2fs.
        #[arg(long, default_value = "target/f2fs-guest")]
        cache: PathBuf,
        /// Directory for the images: target/images if not given, or target/f2fs-images.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Only images with this in their name
        #[arg(long)]
        only: Option<String>,
    },
    /// Make one f2fs image on a block device. Needs root, f2fs-tools and a kernel with f2fs.
    F2fsImage(images::f2fs::inside::Options),
    /// Have a kernel with f2fs mount, walk and change images of ours, and compare its writes. Needs qemu
    F2fsGuest(guest::Options),
    /// Overwrite a full f2fs volume at random, and measure the cost of cleaning
    F2fsCleaning(f2fs_cleaning::Options),
    /// The part of `f2fs-guest` that runs in the guest.
    #[command(hide = true)]
    F2fsJudge(guest::inside::Options),
    /// Print the kernel's walk of a directory, one JSON object a line
    Walk {
        /// The directory.
        dir: PathBuf,
    },
    /// Compare Spinney's walk of images with the kernel's. Needs root, unless the kernel's is kept beside the image.
    DiffWalk {
        /// The images; all of target/images if none is given
        images: Vec<PathBuf>,
        /// Most differences of an image that are printed
        #[arg(long, default_value_t = 20)]
        shown: usize,
    },
    /// Put a tree into images, get it out again, and compare with the kernel's view. Needs root.
    RoundTrip(round_trip::Options),
    /// Receive streams that the kernel sends of random histories, and compare. Needs root
    SendReceive(send_receive::Options),
    /// Put a large tree into an image and change two thirds of it, checked at each stage. Needs root
    Rework(rework::Options),
    /// Send histories of subvolumes, and have the kernel receive them. Needs root.
    SendHistories(send_histories::Options),
    /// Replay logs that the kernel wrote, and compare with the kernel's own replay. Needs root.
    LogReplay(log_replay::Options),
    /// Interrupt balances; the kernel resumes ours, and Spinney the kernel's. Needs root, mkfs.xfs.
    BalanceResume(interruption::Options),
    /// Interrupt deletions of snapshots by the kernel, and finish them with Spinney. Needs root, mkfs.xfs.
    DeletionResume(interruption::Options),
    /// Try the states that power cuts leave of many workloads; as root the kernel checks some
    CrashExplore(crash_explore::Options),
    /// Run the workloads of `crash-explore` through a server of NBD, and kill servers while a volume is written.
    NbdCrash(nbd::Options),
    /// Cut power during repairs and undos of planted damage.
    RepairCrash(repair_crash::Options),
    /// Run foreign test suites (pjdfstest, fsx, ...) on fresh mounts. Needs root
    MountChecks(mount::checks::Options),
    /// Work with a kernel's source tree on a mount, compared with tmpfs. Needs root.
    MountTree(mount::tree::Options),
    /// Run every command of the README and of the guide as an unprivileged account, and compare the output with what
    /// they show. Needs root to make the account.
    Guide(guide::Options),
    /// Run fsx, direct I/O and stressors on a full volume for a long time. Needs root, fsx, stress-ng.
    MountLong(mount::long::Options),
    /// Kill the server of a mount while files are synced; the kernel verifies them. Needs root
    KillMount(mount::kill::Options),
    /// Kill daemons of a Ceph cluster, and qemu-nbd, below a mount's image. Needs root and the packages of Ceph
    Ceph(mount::ceph::Options),
    /// Kill backups to S3 or a directory of objects at random moments, resume them, and restore
    BackupKill(backup_kill::Options),
    /// Cut the power of the disk below a mount's image, many times. Needs root.
    PowerCut(mount::power_cut::Options),
    /// The disk of `power-cut`.
    #[command(hide = true)]
    PowerCutDisk(mount::power_cut::disk::Options),
    /// Run xfstests on a mount, and list the failures that no other system has. Needs root, xfstests
    Xfstests(mount::xfstests::Options),
    /// Try to get around permissions, on a mount and on the kernel's btrfs. Needs root and python3.
    Attack(mount::attack::Options),
    /// Fill volumes to the last byte and empty them, beside the kernel's btrfs. Needs root.
    Torture(mount::torture::Options),
    /// Read, change and read again images with wrong fields and right checksums.
    MutateImages(mutate_images::Options),
    /// Apply many hostile send streams to a volume in memory.
    FuzzStreams(fuzz_streams::Options),
    /// Check, scrub, rescue and repair many small hostile images in memory.
    FuzzImages(fuzz_images::Options),
    /// Read many mutated archives, container images, manifests and descriptions of disks
    FuzzArchives(fuzz_archives::Options),
    /// Run every read-only command on damaged images.
    Damaged(damage::Options),
    /// Compare the files saved by `spinney rescue` and btrfs-progs from damaged images. Needs root
    RescueTable(rescue_table::Options),
    /// Do what the tests of btrfs-progs ask of mkfs, called as mkfs.btrfs. Needs root
    MkfsCases(mkfs_cases::Options),
    /// Build a disk with an ESP and a btrfs, and start the system on it. Needs qemu
    DiskBoot(disk_boot::Options),
    /// Have a kernel read files that we protect by fs-verity, and read those that it protects. Needs qemu
    Verity(verity::Options),
    /// Mount a server of NFS with a kernel's client, and kill the server while files are synced. Needs qemu
    NfsGuest(nfs_guest::Options),
    /// Have a guest mount a virtio-fs device of the server, and kill the machine or the server while files are synced.
    /// Needs qemu
    VirtiofsGuest(virtiofs_guest::Options),
    /// Read volumes on several devices, and without some of them, as the kernel does. Needs root.
    SeveralDevices(several_devices::Options),
    /// Make random trees of subvolumes and snapshots, compared with a model at each commit.
    Subvolumes(subvolumes::Options),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().trial {
        Trial::Images { format, cache, dir, only } => {
            images::make_kind(format, &root(), dir, &cache, only.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Trial::F2fsImage(options) => images::f2fs::inside::make(&options).map(|()| ExitCode::SUCCESS),
        Trial::F2fsGuest(options) => guest::run(&root(), &options),
        Trial::F2fsCleaning(options) => f2fs_cleaning::run(&options).map(|()| ExitCode::SUCCESS),
        Trial::F2fsJudge(options) => guest::inside::judge(&options).map(|()| ExitCode::SUCCESS),
        Trial::Walk { dir } => diff_walk::print(&dir).map(|()| ExitCode::SUCCESS),
        Trial::DiffWalk { images, shown } => diff_walk::run(&images, shown),
        Trial::RoundTrip(options) => round_trip::run(&root(), &options),
        Trial::SendReceive(options) => send_receive::run(&options),
        Trial::Rework(options) => rework::run(&options).map(|()| ExitCode::SUCCESS),
        Trial::BalanceResume(options) => balance_resume::run(&options).map(|()| ExitCode::SUCCESS),
        Trial::DeletionResume(options) => deletion_resume::run(&options).map(|()| ExitCode::SUCCESS),
        Trial::SendHistories(options) => send_histories::run(&options),
        Trial::LogReplay(options) => log_replay::run(&options).map(|()| ExitCode::SUCCESS),
        Trial::CrashExplore(options) => crash_explore::run(&options),
        Trial::NbdCrash(options) => nbd::run(&options),
        Trial::RepairCrash(options) => repair_crash::run(&options),
        Trial::MountChecks(options) => mount::checks::run(&root(), &options),
        Trial::MountTree(options) => mount::tree::execute(&options).map(|()| ExitCode::SUCCESS),
        Trial::Guide(options) => guide::follow(&root(), &options).map(|()| ExitCode::SUCCESS),
        Trial::MountLong(options) => mount::long::run(&options),
        Trial::KillMount(options) => mount::kill::run(&options),
        Trial::Ceph(options) => mount::ceph::run(&root(), &options),
        Trial::BackupKill(options) => backup_kill::run(&options),
        Trial::PowerCut(options) => mount::power_cut::run(&options),
        Trial::PowerCutDisk(options) => mount::power_cut::disk::serve(&options).map(|()| ExitCode::SUCCESS),
        Trial::Xfstests(options) => mount::xfstests::execute(&root(), &options),
        Trial::Attack(options) => mount::attack::run(&options),
        Trial::Torture(options) => mount::torture::run(&options),
        Trial::FuzzStreams(options) => fuzz_streams::run(&root(), &options).map(|()| ExitCode::SUCCESS),
        Trial::FuzzArchives(options) => fuzz_archives::run(&options),
        Trial::FuzzImages(options) => fuzz_images::run(&options),
        Trial::MutateImages(options) => mutate_images::run(&root(), &options),
        Trial::RescueTable(options) => rescue_table::run(&root(), &options),
        Trial::Damaged(options) => damage::run(&root(), &options),
        Trial::SeveralDevices(options) => several_devices::run(&root(), &options).map(|()| ExitCode::SUCCESS),
        Trial::DiskBoot(options) => disk_boot::run(&root(), &options),
        Trial::NfsGuest(options) => nfs_guest::run(&root(), &options),
        Trial::VirtiofsGuest(options) => virtiofs_guest::run(&root(), &options),
        Trial::Verity(options) => verity::run(&root(), &options),
        Trial::MkfsCases(options) => mkfs_cases::run(&root(), &options),
        Trial::Subvolumes(options) => subvolumes::run(&options),
    }
}

/// The top of the source tree: two folders above this crate.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}
