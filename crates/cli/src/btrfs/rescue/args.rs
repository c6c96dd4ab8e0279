//! Defines the arguments of `spinney rescue`, which the parent module runs. `args` of the crate parses them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::get::CopyOut;
use crate::commands::ls::Listing;

/// Copy files out of an image that cannot be opened, without writing to it
///
/// Uses any copy of the superblock, or none; finds older states by reading every block; skips damaged tree blocks;
/// rebuilds a damaged chunk map. Every file is compared with its checksums: lost ranges are named, and read as zeros.
/// Devices are only read.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rescue get broken.img ./saved              all that can be saved, into the directory saved\n",
    "  spinney rescue ls broken.img /home\n",
    "  spinney rescue roots broken.img                    older states that are left\n",
    "  spinney rescue undelete broken.img '*.odt'         files that were deleted\n\n",
    "Exit status:\n",
    "  0  everything that was asked for is whole\n",
    "  1  something is lost, wholly or in part; the report names it\n",
    "  3  there is no trace of btrfs\n",
    "  others as for every command (spinney --help)"
))]
pub(crate) struct Rescue {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Roots(Roots),
    Ls(Ls),
    Get(Get),
    Undelete(Undelete),
}

/// The devices to rescue files from.
#[derive(Debug, Args)]
pub(super) struct Devices {
    /// Image file or unmounted block device, or IMAGE?offset=N for a file system that starts at byte N
    #[arg(value_name = "IMAGE")]
    pub(super) image: PathBuf,
    /// A further device of the same file system; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(super) device: Vec<PathBuf>,
}

/// List the states that can be found: the last one and older ones
///
/// Reads every block of the devices. A state is the root tree of one commit; `--root` of the other commands takes its
/// generation or its address. DATE is the newest change time of a subvolume in it.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rescue roots broken.img\n",
    "  spinney rescue get --root 4711 broken.img ./saved\n",
    "  spinney rescue roots --json broken.img | jq '.roots[] | select(.is_whole)'"
))]
pub(super) struct Roots {
    #[command(flatten)]
    pub(super) devices: Devices,
    /// No progress bar
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Report as JSON: {roots: [{generation, address, source, date, subvolumes, subvolumes_readable, is_whole}], notes}
    #[arg(long)]
    pub(super) json: bool,
}

/// List a directory of the rescued files
///
/// The top is the top level of the file system, with all subvolumes; lost+found has files and subvolumes that no
/// directory names any more. Losses are reported on the standard error.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rescue ls broken.img\n",
    "  spinney rescue ls broken.img:/home\n",
    "  spinney rescue ls -lR --root 4711 broken.img /home"
))]
pub(super) struct Ls {
    #[command(flatten)]
    pub(super) devices: Devices,
    #[command(flatten)]
    pub(super) listing: Listing,
    /// Take the state whose root tree has this generation or address
    #[arg(long, value_name = "GENERATION|ADDRESS")]
    pub(super) root: Option<u64>,
}

/// Copy files out, and report which are whole, partial or lost
///
/// Without PATH everything is copied: the top level with all subvolumes and snapshots, and lost+found with files that
/// no directory names any more. Lost bytes are zeros in the copy, and named in the report. If the last state of a
/// subvolume cannot be found, an older one is copied, and the report says so. Nothing is written outside DEST, whatever
/// the image contains.
#[derive(Debug, Args)]
#[command(override_usage = "spinney rescue get [OPTIONS] <IMAGE> [PATH]... <DEST>")]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rescue get broken.img ./saved                    everything, into the directory saved\n",
    "  spinney rescue get broken.img:/home/me ./saved           this directory alone\n",
    "  spinney rescue get --device b.img a.img ./saved          a file system on two devices\n",
    "  spinney rescue get --json broken.img ./saved | jq '.part[].path'\n\n",
    "Exit status:\n",
    "  0  everything is whole\n",
    "  1  something is lost, wholly or in part\n",
    "  others as for every command (spinney --help)"
))]
pub(super) struct Get {
    #[command(flatten)]
    pub(super) devices: Devices,
    /// Paths in the image, and last the destination on this machine; without PATH, everything
    #[arg(required = true, value_name = "DEST")]
    pub(super) words: Vec<PathBuf>,
    /// Take the state whose root tree has this generation or address
    #[arg(long, value_name = "GENERATION|ADDRESS")]
    pub(super) root: Option<u64>,
    #[command(flatten)]
    pub(super) copy: CopyOut,
    /// Report as JSON: {entries, bytes, whole, part: [{path, lost_ranges, ...}], lost, unverified, missing,
    /// older_subvolumes, notes}
    #[arg(long)]
    pub(super) json: bool,
}

/// Find deleted files and directories, and copy them out
///
/// Reads every block of the devices for files that the last state does not have. Each is read from the newest state
/// that has it; bytes overwritten since are lost, and reported. They are copied to DEST/generation-N, under their own
/// names; of several with the same name, the second goes to DEST/generation-N-2, and so on.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rescue undelete site.img '*.odt'                 list them\n",
    "  spinney rescue undelete site.img '*.odt' ./found         copy them\n",
    "  spinney rescue undelete site.img '/home/me/letters/*'    a pattern with a slash is one for paths"
))]
pub(super) struct Undelete {
    #[command(flatten)]
    pub(super) devices: Devices,
    /// Names to look for: `*` stands for any characters, `?` for one
    pub(super) pattern: String,
    /// Where to copy them; without it they are only listed
    pub(super) dest: Option<PathBuf>,
    #[command(flatten)]
    pub(super) copy: CopyOut,
    /// Report as JSON: {found: [{path, generation, subvolume, inode, size, date, is_dir}], part, lost, notes}
    #[arg(long)]
    pub(super) json: bool,
}
