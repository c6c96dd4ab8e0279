//! Defines the arguments of `spinney fork`, which the parent module runs. `args` of the crate parses them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::human;
use crate::commands::image::{ImageArgs, ReadArgs};

/// Fork a subvolume: a writable copy that shares everything with its base until one of them changes
///
/// `spinney fork BASE` is `spinney fork create BASE`.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "A fork begins as a snapshot of a read-only snapshot of its base, which lies in .spinney/forks in the root of\n",
    "the volume and is needed for `status`, `diff` and `merge`. Forks of a mount are for root, and the user who\n",
    "mounted it. A new fork, and the end of one, are durable with the next sync; a merge is when it returns.\n\n",
    "Examples:\n",
    "  spinney fork mnt/base trial                make mnt/trial\n",
    "  spinney fork site.img:/base                make /base-1\n",
    "  spinney fork status mnt/trial              what changed in it\n",
    "  spinney fork diff mnt/trial                as a patch\n",
    "  spinney fork merge mnt/trial               bring that into mnt/base\n",
    "  spinney fork drop mnt/trial                delete it"
))]
pub(crate) struct Fork {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Create(Create),
    List(List),
    Status(Status),
    Diff(Diff),
    Merge(Merge),
    Drop(Drop),
}

/// Make a fork; takes the same time for a tree of any size
///
/// In a mount a fork has all that was written before; a program that changes a file through mmap has to call msync
/// first. Files that are open stay those of the base.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Prints the path of the fork.\n\n",
    "Examples:\n",
    "  spinney fork create mnt/base trial\n",
    "  spinney fork create --expires 7d site.img /base\n",
    "  spinney fork create --json mnt/base | jq -r .path"
))]
pub(super) struct Create {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// The subvolume, in the image
    pub(super) base: PathBuf,
    /// A name beside the base, or a path; the name of the base with a number if not given
    pub(super) name: Option<PathBuf>,
    /// Bytes that data of the fork alone may take; needs quotas
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub(super) limit: Option<u64>,
    /// `fork drop --expired` drops it after this time: 90s, 30m, 12h, 7d, 2w
    #[arg(long, value_name = "TIME", value_parser = human::parse_seconds)]
    pub(super) expires: Option<u64>,
    /// The fork cannot be changed
    #[arg(short, long)]
    pub(super) read_only: bool,
    /// Report as JSON: {path, id, uuid, base: {path}, created, expires, limit, read_only}
    #[arg(long)]
    pub(super) json: bool,
}

/// List forks, each below its base
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney fork list mnt\n",
    "  spinney fork list --json site.img | jq -r '.forks[] | .path'"
))]
pub(super) struct List {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// Report as JSON: {forks: [{path, id, uuid, base: {path}, created, expires, limit, read_only}]}
    #[arg(long)]
    pub(super) json: bool,
}

/// Show the changes of a fork since it was made, or merged into its base
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The lines are those of `spinney diff`: + added, - removed, R renamed, M contents, m attributes.\n\n",
    "Examples:\n",
    "  spinney fork status mnt/trial\n",
    "  spinney fork status --json site.img /trial | jq -r '.[] | .path'"
))]
pub(super) struct Status {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// The fork, in the image
    pub(super) path: PathBuf,
    /// Report as JSON, as `spinney diff`: [{ino, kind, change, path, data, size, metadata, names: [{old, new}]}, ...]
    #[arg(long)]
    pub(super) json: bool,
}

/// Show the changes of a fork as a patch
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "`git apply` and `patch -p1` take the patch. Of files that are no text, or larger than 4 MiB, it says that they\n",
    "differ.\n\n",
    "Examples:\n",
    "  spinney fork diff mnt/trial\n",
    "  spinney fork diff site.img /trial | git -C repository apply"
))]
pub(super) struct Diff {
    #[command(flatten)]
    pub(super) image: ReadArgs,
    /// The fork, in the image
    pub(super) path: PathBuf,
}

/// Bring the changes of a fork into its base, or into another subvolume: all of them or none
///
/// Merges three ways, by path: contents, permissions, owner and each extended attribute. A value that only one side
/// changed is taken from it, texts are merged by lines. Chattr flags and subvolumes in the fork are not merged.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The target is exchanged with a snapshot of it that has the changes. So a power cut leaves it as before or\n",
    "after; but files that are open in it, and shells whose directory it is, stay in the old one, which is deleted.\n",
    "During the last moment writes to it are refused. Versions that were not taken lie beside as NAME.theirs or\n",
    "NAME.ours; where their directory is gone, they stay in the fork.\n\n",
    "Exit status: 1 if conflicts kept everything from being merged.\n\n",
    "Examples:\n",
    "  spinney fork merge mnt/trial\n",
    "  spinney fork merge --strategy theirs mnt/trial\n",
    "  spinney fork merge --into mnt/other mnt/trial\n",
    "  spinney fork merge --json site.img /trial | jq .conflicts"
))]
pub(super) struct Merge {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// The fork, in the image
    pub(super) path: PathBuf,
    /// The subvolume to change, in the image, instead of the base
    #[arg(long, value_name = "PATH")]
    pub(super) into: Option<PathBuf>,
    /// The version that wins a conflict
    #[arg(long, value_enum, default_value_t)]
    pub(super) strategy: Strategy,
    /// Drop the fork after it was merged
    #[arg(long)]
    pub(super) drop: bool,
    /// Report as JSON: {target, merged, changes, conflicts: [{path, kind, kept}]}
    #[arg(long)]
    pub(super) json: bool,
}

/// The version that wins a conflict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Strategy {
    /// Merge nothing
    #[default]
    Fail,
    /// Keep the target's version
    Ours,
    /// Take the fork's version
    Theirs,
}

/// Delete forks; their space is freed in the background
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney fork drop mnt/trial\n",
    "  spinney fork drop --expired site.img\n",
    "  spinney fork drop --json site.img /trial | jq .dropped"
))]
pub(super) struct Drop {
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// The forks, in the image
    #[arg(required_unless_present = "expired")]
    pub(super) paths: Vec<PathBuf>,
    /// Those whose time is over
    #[arg(long, conflicts_with = "paths")]
    pub(super) expired: bool,
    /// Report as JSON: {dropped: [{path, id, uuid, ...}]}
    #[arg(long)]
    pub(super) json: bool,
}
