//! The options of `mkfs` about contents: sources, their owners, and manifests. `job` reads the contents with them, and
//! `target` has them among the options of every format.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use spinney::ContentsOptions;
use spinney::layers::oci::Platform;
use spinney::layers::owners::{IdMap, IdRange, OwnerRules};

use crate::commands::failure::Failure;
use crate::commands::human::parse_bytes;
use crate::commands::put::parse_owner;

/// The options.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Sources {
    /// Fill it with SOURCE; several go on top of each other. A directory; a tar or cpio archive, also compressed, - for
    /// the standard input; a container image (oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE); another image, or
    /// IMAGE:/PATH
    #[arg(id = "rootdir", short = 'r', long = "rootdir", visible_alias = "from", value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,
    /// Add the nodes of FILE, or change the attributes of those that are there: mtree, or a dump of composefs
    #[arg(long, value_name = "FILE", requires = "rootdir")]
    manifest: Vec<PathBuf>,
    /// Give everything this owner and group; without contents only the root directory, which is yours by default
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    pub(crate) owner: Option<(u32, u32)>,
    /// Give everything to root, as --owner 0:0
    #[arg(long, conflicts_with = "owner")]
    all_root: bool,
    /// Map COUNT user ids from FROM on to those from TO on; ids without a mapping are an error
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = range, requires = "rootdir")]
    map_users: Vec<IdRange>,
    /// The same for groups
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = range, requires = "rootdir")]
    map_groups: Vec<IdRange>,
    /// Owners, modes and devices of directories as `fakeroot -s FILE` has saved them
    #[arg(long, value_name = "FILE", requires = "rootdir")]
    fakeroot_state: Option<PathBuf>,
    /// Platform of container images: OS/ARCHITECTURE[/VARIANT]
    #[arg(long, value_name = "PLATFORM", requires = "rootdir")]
    platform: Option<Platform>,
    /// Most bytes of an archive or layer after decompression
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "rootdir")]
    max_size: Option<u64>,
}

fn range(text: &str) -> Result<IdRange, String> {
    text.parse().map_err(|error: spinney::layers::Error| error.to_string())
}

impl Sources {
    /// Owner and group of everything, if they are given.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        if self.all_root { Some((0, 0)) } else { self.owner }
    }

    /// The owner that the copy gives everything. Where there are manifests, which win over it, the sources get it.
    pub(crate) fn owner_of_copies(&self) -> Option<(u32, u32)> {
        self.owner().filter(|_| self.manifest.is_empty())
    }

    /// How the sources are read.
    ///
    /// # Errors
    /// `Usage` for ranges of ids that overlap.
    pub(crate) fn options(&self) -> Result<ContentsOptions, Failure> {
        let map = |ranges: &[IdRange]| IdMap::new(ranges.iter().copied()).map_err(|e| Failure::usage(e.to_string()));
        let owners = OwnerRules {
            owner: self.owner().filter(|_| !self.manifest.is_empty()),
            users: map(&self.map_users)?,
            groups: map(&self.map_groups)?,
            ..OwnerRules::default()
        };
        let default = ContentsOptions::default();
        Ok(ContentsOptions {
            owners,
            manifests: self.manifest.clone(),
            fakeroot_state: self.fakeroot_state.clone(),
            platform: self.platform.clone(),
            max_bytes: self.max_size.unwrap_or(default.max_bytes),
            ..default
        })
    }
}

/// Calls something generic over sources with the source that there is.
macro_rules! with_source {
    ($contents:expr, $source:ident => $body:expr) => {
        match $contents {
            spinney::Contents::Directory($source) => $body,
            spinney::Contents::Tree($source) => $body,
        }
    };
}
pub(crate) use with_source;
