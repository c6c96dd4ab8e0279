//! `spinney mkfs`: the options of all formats, and which format makes the file system.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::target::Common;
use crate::{btrfs, f2fs};
use commands::failure::Failure;
use commands::output::Output;

/// Make a file system, empty or with the contents of a directory
///
/// Without --size, a new image is as large as needed, and a file or device keeps its size; an empty
/// f2fs needs it for a new file. The defaults are those of mkfs.btrfs 6.19 and mkfs.f2fs 1.15. With
/// SOURCE_DATE_EPOCH, -U and --threads 1, f2fs images of the same contents are the same.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkfs --size 2G disk.img\n",
    "  spinney mkfs --rootdir ./site -L site site.img\n",
    "  spinney mkfs --rootdir ./site --compress zstd:9 site.img\n",
    "  spinney mkfs --rootdir ./site --shrink site.img\n",
    "  spinney mkfs --csum xxhash64 -O ^block-group-tree --size 1G old.img\n",
    "  spinney mkfs -O list-all\n",
    "  spinney mkfs -t f2fs --size 1G -l phone phone.img\n",
    "  spinney mkfs -t f2fs --rootdir ./site site.img\n",
    "  spinney mkfs -t f2fs -O extra_attr,inode_checksum,inode_crtime --size 8G card.img"
))]
pub(crate) struct Mkfs {
    /// Format of the file system
    #[arg(short = 't', long = "type", value_name = "FORMAT", default_value = "btrfs")]
    format: Name,
    #[command(flatten)]
    common: Common,
    #[command(flatten, next_help_heading = "Options of btrfs")]
    of_btrfs: btrfs::mkfs::Own,
    #[command(flatten, next_help_heading = "Options of f2fs")]
    of_f2fs: f2fs::mkfs::Own,
}

/// The formats that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Btrfs,
    F2fs,
}

impl Mkfs {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (others, owner) = match self.format {
            Name::Btrfs => (self.of_f2fs.given(), "f2fs"),
            Name::F2fs => (self.of_btrfs.given(), "btrfs"),
        };
        if let Some(option) = others {
            return Err(Failure::usage(format!("{option}: only {owner} has it: -t {owner}")).into());
        }
        match self.format {
            Name::Btrfs => self.of_btrfs.run(&self.common, out),
            Name::F2fs => self.of_f2fs.run(&self.common, out),
        }
    }
}
