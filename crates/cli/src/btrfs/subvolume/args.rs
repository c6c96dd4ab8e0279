//! Defines the arguments of `spinney subvolume`, which the parent module runs. `args` of the crate parses them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::image::{ImageArgs, ReadArgs};

/// Make, list and delete subvolumes and snapshots
///
/// IMAGE may be a directory of a mount, where paths begin. Its server checks your permissions by the kernel's rules for
/// user_subvol_rm_allowed: you can create a subvolume where you may make a directory, and take snapshots of your own
/// subvolumes, make them read-only or writable, and delete them even if they are read-only.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume create site.img /home\n",
    "  spinney subvolume snapshot -r site.img /home /home-monday\n",
    "  spinney subvolume list site.img\n",
    "  spinney subvolume list /mnt                   those of a mount"
))]
pub(crate) struct Subvolume {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make an empty subvolume
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume create site.img /home\n",
        "  spinney subvolume create mnt/home              of a mount\n",
        "  spinney subvolume create --json site.img /home | jq .id"
    ))]
    Create {
        #[command(flatten)]
        image: ImageArgs,
        /// Path of the new subvolume, in the image
        path: PathBuf,
        /// Report as JSON: {id, path, uuid, ...}, as `subvolume list` has it
        #[arg(long)]
        json: bool,
    },
    Snapshot(Snapshot),
    List(List),
    Show(Show),
    Find(Find),
    Delete(Delete),
    Rename(Rename),
    ReadOnly(ReadOnly),
    /// Set the subvolume that is mounted by default
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume set-default site.img /home\n",
        "  spinney subvolume set-default site.img:/home\n",
        "  spinney subvolume set-default --json site.img /home | jq .id"
    ))]
    SetDefault {
        #[command(flatten)]
        image: ImageArgs,
        /// Its path, in the image
        path: PathBuf,
        /// Report as JSON: {id, path, ...}, as `subvolume list` has it
        #[arg(long)]
        json: bool,
    },
    /// Show the subvolume that is mounted by default
    #[command(after_help = "Example:\n  spinney subvolume get-default site.img")]
    GetDefault {
        #[command(flatten)]
        image: ReadArgs,
        /// Report as JSON: {id, path, ...}
        #[arg(long)]
        json: bool,
    },
}

/// Make a snapshot: a subvolume that begins with the contents of another
///
/// Nested subvolumes are empty directories in a snapshot, unless --recursive takes snapshots of them too, one after the
/// other, not at the same moment.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume snapshot site.img / /before-the-upgrade\n",
    "  spinney subvolume snapshot -r site.img:/home site.img:/home-monday\n",
    "  spinney subvolume snapshot -r mnt/home mnt/home-monday    of a mount\n",
    "  spinney subvolume snapshot -r site.img /home /home-monday\n",
    "  spinney subvolume snapshot -r --recursive site.img / /monday\n",
    "  spinney subvolume snapshot --json site.img / /now | jq -r .uuid"
))]
pub(super) struct Snapshot {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// The subvolume, in the image
    pub(super) source: PathBuf,
    /// Path of the snapshot, in the image
    pub(super) dest: PathBuf,
    /// The snapshot cannot be changed
    #[arg(short, long)]
    pub(super) read_only: bool,
    /// Also of the subvolumes that it contains, at their places
    #[arg(long)]
    pub(super) recursive: bool,
    /// Report as JSON: {id, path, uuid, parent_uuid, ...}, as `subvolume list` has it
    #[arg(long)]
    pub(super) json: bool,
}

/// List subvolumes and snapshots
///
/// Of an image all except the top level; beneath a directory of a mount those that you may see there.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume list site.img\n",
    "  spinney subvolume list --tree site.img\n",
    "  spinney subvolume list --snapshots-of /home site.img\n",
    "  spinney subvolume list --json site.img | jq -r '.subvolumes[] | select(.read_only) | .path'"
))]
pub(super) struct List {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// Each below the one that contains it
    #[arg(long)]
    pub(super) tree: bool,
    /// Only those that cannot be changed
    #[arg(short, long)]
    pub(super) read_only: bool,
    /// Only snapshots
    #[arg(short, long)]
    pub(super) snapshots: bool,
    /// Only snapshots of this subvolume: a path, a number or a UUID
    #[arg(long, value_name = "WHAT")]
    pub(super) snapshots_of: Option<String>,
    /// Those that were deleted and still take space, in an image
    #[arg(short, long, conflicts_with_all = ["snapshots_of", "tree"])]
    pub(super) deleted: bool,
    /// Report as JSON: {default_id, subvolumes: [{id, path, parent, uuid, generation, read_only, ...}]}; default_id is
    /// null where you may not know
    #[arg(long)]
    pub(super) json: bool,
}

/// Show everything about a subvolume
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume show site.img /home\n",
    "  spinney subvolume show site.img:/home\n",
    "  spinney subvolume show --json site.img /home | jq .snapshots"
))]
pub(super) struct Show {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// The subvolume, in the image; the root if not given
    #[arg(default_value = "/")]
    pub(super) path: PathBuf,
    /// Report as JSON: {id, path, uuid, sent, stime, received, rtime, is_default, snapshots, quota, ...}
    #[arg(long)]
    pub(super) json: bool,
}

/// Find a subvolume by its UUID, the UUID that it was received from, its number or its path
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume find site.img 257\n",
    "  spinney subvolume find site.img:/home\n",
    "  spinney subvolume find site.img 6d1f2d0e-7c22-4f4e-9c6b-3d0d8d2a3c11\n",
    "  spinney subvolume find --json site.img /home | jq -r .subvolumes[].uuid"
))]
pub(super) struct Find {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// UUID, number, or path from the top level
    pub(super) what: String,
    /// Report as JSON: {subvolumes: [{id, path, ...}]}, as `subvolume list` has them
    #[arg(long)]
    pub(super) json: bool,
}

/// Delete subvolumes and all in them
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume delete site.img /home-monday\n",
    "  spinney subvolume delete mnt/home-monday       of a mount, read-only or not\n",
    "  spinney subvolume delete --recursive site.img /monday\n",
    "  spinney subvolume delete --id 257 site.img\n",
    "  spinney subvolume delete --json site.img /home-monday | jq .deleted[].id"
))]
pub(super) struct Delete {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// Their paths, in the image
    #[arg(required_unless_present = "id")]
    pub(super) paths: Vec<PathBuf>,
    /// The subvolume with this number; may be given several times
    #[arg(long, value_name = "ID")]
    pub(super) id: Vec<u64>,
    /// Delete the subvolumes that they contain too
    #[arg(long)]
    pub(super) recursive: bool,
    /// Report as JSON: {deleted: [{id, path, uuid, ...}]}, as `subvolume list` had them
    #[arg(long)]
    pub(super) json: bool,
}

/// Rename or move a subvolume
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume rename site.img /home /home-old\n",
    "  spinney subvolume rename site.img:/home site.img:/home-old\n",
    "  spinney subvolume rename --json site.img /home /old/home | jq .path"
))]
pub(super) struct Rename {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// Its path, in the image
    pub(super) from: PathBuf,
    /// Its new path, which must not exist
    pub(super) to: PathBuf,
    /// Report as JSON: {id, path, ...}, as `subvolume list` has it
    #[arg(long)]
    pub(super) json: bool,
}

/// Show or change whether a subvolume is read-only
///
/// A received subvolume has the UUID of the subvolume that was sent, and incremental streams against that UUID are
/// received on top of it. If it was changed before, their result would differ from the sender's. The kernel keeps the
/// UUID when such a subvolume is made writable; `btrfs property set` refuses without -f, and removes the UUID with it.
/// So does this command with --force.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume read-only site.img /home-monday         print on or off\n",
    "  spinney subvolume read-only site.img /home-monday off     open it\n",
    "  spinney subvolume read-only site.img:/home-monday off\n",
    "  spinney subvolume read-only --force site.img /received off\n",
    "  spinney subvolume read-only --json site.img /home | jq .read_only"
))]
pub(super) struct ReadOnly {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// The subvolume, in the image
    pub(super) path: PathBuf,
    /// The new setting
    pub(super) to: Option<Switch>,
    /// Make a received subvolume writable, and remove its received UUID
    #[arg(long, requires = "to")]
    pub(super) force: bool,
    /// Report as JSON: {id, path, read_only, ...}, as `subvolume list` has it
    #[arg(long)]
    pub(super) json: bool,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    /// Read-only.
    On,
    /// Writable.
    Off,
}
