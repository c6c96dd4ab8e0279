//! `spinney dump` shows the file system as it lies on disk.
//!
//! `dump super`, `dump tree` and `dump block` read the device and need no sound file system; `dump chunks` opens the
//! store. Items are shown by the `Display` of the on-disk types, one line each, with control characters escaped.
//!
//! Failure: the report names the faults of a superblock or block and shows the readable part of it; the exit status is
//! that of damage. Caller: `args`.

mod chunks;
mod medium;
mod superblock;
mod tree;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Error, Result};
use clap::{Args, Subcommand};
use spinney::blockdev::{self, Access, Device, Locator};
use spinney::btrfs::store::{Store, StoreOptions};

use super::format::of_another;
use crate::commands::failure::{Failure, Status};
use crate::commands::image::explain;
use crate::commands::output::Output;

/// Show what is on disk, damaged or not: superblocks, trees, blocks, chunks
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "An image that is mounted has to be unmounted first.\n\n",
    "Examples:\n",
    "  spinney dump super --all site.img\n",
    "  spinney dump tree site.img fs\n",
    "  spinney dump block site.img 30408704\n",
    "  spinney dump chunks site.img"
))]
pub(crate) struct Dump {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Super(superblock::Super),
    Tree(tree::Tree),
    Block(tree::OneBlock),
    Chunks(chunks::Chunks),
}

impl Dump {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Super(command) => command.run(out),
            Command::Tree(command) => command.run(out),
            Command::Block(command) => command.run(out),
            Command::Chunks(command) => command.run(out),
        }
    }
}

fn open_devices(image: &Path) -> Result<Vec<Arc<dyn Device>>> {
    if image.is_dir() {
        let text =
            format!("{}: a directory; `dump` reads the image itself, which must not be mounted", image.display());
        return Err(Failure::new(Status::Unsupported, text).into());
    }
    if let Some(refusal) = of_another(image) {
        return Err(refusal);
    }
    let list = Locator::parse_list(image)?;
    Ok(list.iter().map(|device| blockdev::open(device, Access::READ)).collect::<blockdev::Result<_>>()?)
}

fn open_store(image: &Path) -> Result<Store> {
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let opened = Store::open(open_devices(image)?, &options);
    opened.map_err(|error| explain(image, Error::new(error)))
}
