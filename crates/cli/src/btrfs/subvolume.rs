//! `spinney subvolume`

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use vfs::Errno;

use anyhow::Result;
use btrfs_disk::TreeId;
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::{CallerError, SubvolumeInfo, Volume};

use super::format;
use commands::attributes::JsonTime;
use commands::failure::Failure;
use commands::image::{ImageArgs, ReadArgs};
use commands::names::{self, JsonPath};
use commands::output::Output;
use vfs::SnapshotMode;

/// Make, list and delete subvolumes and snapshots
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney subvolume create site.img /home\n",
    "  spinney subvolume snapshot -r site.img /home /home-monday\n",
    "  spinney subvolume list site.img"
))]
pub(crate) struct Subvolume {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an empty subvolume
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume create site.img /home\n",
        "  spinney subvolume create --json site.img /home | jq .id"
    ))]
    Create {
        #[command(flatten)]
        image: ImageArgs,
        /// Where it appears, in the image
        path: PathBuf,
        /// Report as JSON: {id, path, uuid, ...}, as `subvolume list` has it
        #[arg(long)]
        json: bool,
    },
    /// Make a snapshot: a subvolume that begins with the contents of another
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume snapshot site.img / /before-the-upgrade\n",
        "  spinney subvolume snapshot -r site.img /home /home-monday\n",
        "  spinney subvolume snapshot --json site.img / /now | jq -r .uuid"
    ))]
    Snapshot {
        #[command(flatten)]
        image: ImageArgs,
        /// The subvolume, in the image
        source: PathBuf,
        /// Where the snapshot appears, in the image
        dest: PathBuf,
        /// The snapshot cannot be changed
        #[arg(short, long)]
        read_only: bool,
        /// Report as JSON: {id, path, uuid, parent_uuid, ...}, as `subvolume list` has it
        #[arg(long)]
        json: bool,
    },
    /// List all subvolumes and snapshots
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume list site.img\n",
        "  spinney subvolume list --json site.img"
    ))]
    List {
        #[command(flatten)]
        image: ReadArgs,
        /// Report as JSON: {subvolumes: [{id, path, parent, uuid, generation, read_only, ...}]}
        #[arg(long)]
        json: bool,
    },
    /// Delete subvolumes and all in them
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume delete site.img /home-monday\n",
        "  spinney subvolume delete --json site.img /home-monday | jq .deleted[].id"
    ))]
    Delete {
        #[command(flatten)]
        image: ImageArgs,
        /// Where they appear, in the image
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Report as JSON: {deleted: [{id, path, uuid, ...}]}, as `subvolume list` had them
        #[arg(long)]
        json: bool,
    },
    /// Choose the subvolume that is mounted when none is named
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney subvolume set-default site.img /home\n",
        "  spinney subvolume set-default --json site.img /home | jq .id"
    ))]
    SetDefault {
        #[command(flatten)]
        image: ImageArgs,
        /// Where it appears, in the image
        path: PathBuf,
        /// Report as JSON: {id, path, ...}, as `subvolume list` has it
        #[arg(long)]
        json: bool,
    },
    /// Show the subvolume that is mounted when none is named
    #[command(after_help = "Example:\n  spinney subvolume get-default site.img")]
    GetDefault {
        #[command(flatten)]
        image: ReadArgs,
        /// Report as JSON: {id, path, ...}
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Report {
    default_id: u64,
    subvolumes: Vec<Entry>,
}

#[derive(Serialize)]
struct Deleted {
    deleted: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    id: u64,
    /// From the top-level subvolume, without a leading slash.
    #[serde(flatten)]
    path: JsonPath,
    /// The subvolume that contains it; null for the top level.
    parent: Option<u64>,
    uuid: String,
    /// Null for what is no snapshot.
    parent_uuid: Option<String>,
    received_uuid: Option<String>,
    generation: u64,
    created: u64,
    otime: JsonTime,
    read_only: bool,
}

impl Subvolume {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Create { image, path, json } => {
                let volume = format::open_writable(image)?;
                volume.create_subvolume(path)?;
                let id = id_at(&volume, path)?;
                end(volume, id, *json, out)
            }
            Command::Snapshot { image, source, dest, read_only, json } => {
                let volume = format::open_writable(image)?;
                let mode = if *read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
                volume.snapshot(source, dest, mode)?;
                let id = id_at(&volume, dest)?;
                end(volume, id, *json, out)
            }
            Command::List { image, json } => list(image, *json, out),
            Command::Delete { image, paths, json } => delete(image, paths, *json, out),
            Command::SetDefault { image, path, json } => {
                let volume = format::open_writable(image)?;
                volume.set_default_subvolume(path)?;
                let id = volume.default_subvolume()?;
                end(volume, id, *json, out)
            }
            Command::GetDefault { image, json } => get_default(image, *json, out),
        }
    }
}

/// Makes a change durable and reports the subvolume that it was about.
fn end(volume: Volume, id: TreeId, json: bool, out: &mut Output) -> Result<()> {
    let report = if json { Some(entry(&find(&volume, id)?)) } else { None };
    volume.close()?;
    report.map_or(Ok(()), |report| out.json(&report))
}

/// The number of the subvolume that a path leads to.
fn id_at(volume: &Volume, path: &Path) -> Result<TreeId> {
    Ok(TreeId(volume.metadata(path)?.home.subvolume))
}

fn find(volume: &Volume, id: TreeId) -> Result<SubvolumeInfo> {
    let found = volume.subvolumes()?.into_iter().find(|subvolume| subvolume.id == id);
    let found = found.ok_or(CallerError::NoSuchSubvolume);
    Ok(found.map_err(spinney::Error::caller)?)
}

fn delete(image: &ImageArgs, paths: &[PathBuf], json: bool, out: &mut Output) -> Result<()> {
    let volume = format::open_writable(image)?;
    let mut deleted = Vec::new();
    for path in paths {
        // Where it is no subvolume, the deletion says so.
        let known = json.then(|| find(&volume, id_at(&volume, path)?));
        let done = volume.delete_subvolume(path);
        done.map_err(|error| match error.errno() {
            Errno::EINVAL => {
                let shown = path.display();
                Failure::refused(format!("{shown}: no subvolume; `rm -r` removes directories")).into()
            }
            _ => anyhow::Error::from(error),
        })?;
        deleted.extend(known.transpose()?.as_ref().map(entry));
    }
    volume.close()?;
    if json { out.json(&Deleted { deleted }) } else { Ok(()) }
}

fn list(image: &ReadArgs, json: bool, out: &mut Output) -> Result<()> {
    let volume = format::open_read_only(image)?;
    let subvolumes = volume.subvolumes()?;
    if json {
        let default_id = volume.default_subvolume()?.0;
        return out.json(&Report { default_id, subvolumes: subvolumes.iter().map(entry).collect() });
    }
    for subvolume in &subvolumes {
        print(subvolume, out)?;
    }
    Ok(())
}

fn get_default(image: &ReadArgs, json: bool, out: &mut Output) -> Result<()> {
    let volume = format::open_read_only(image)?;
    let id = volume.default_subvolume()?;
    let found = find(&volume, id)?;
    if json { out.json(&entry(&found)) } else { print(&found, out) }
}

fn print(subvolume: &SubvolumeInfo, out: &mut Output) -> Result<()> {
    let parent = subvolume.parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string());
    let mode = if subvolume.read_only { "ro" } else { "rw" };
    write!(out, "ID {:<6} in {parent:<6} generation {:<8} {mode}  /", subvolume.id.0, subvolume.generation.0)?;
    out.put_name(subvolume.path.as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

fn entry(subvolume: &SubvolumeInfo) -> Entry {
    let uuid = |bytes: &[u8; 16]| (*bytes != [0; 16]).then(|| names::uuid(bytes));
    Entry {
        id: subvolume.id.0,
        path: JsonPath(subvolume.path.as_bytes().to_vec()),
        parent: subvolume.parent.map(|parent| parent.0),
        uuid: names::uuid(&subvolume.uuid),
        parent_uuid: uuid(&subvolume.parent_uuid),
        received_uuid: uuid(&subvolume.received_uuid),
        generation: subvolume.generation.0,
        created: subvolume.created.0,
        otime: subvolume.otime.into(),
        read_only: subvolume.read_only,
    }
}
