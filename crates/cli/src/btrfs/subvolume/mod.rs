//! `spinney subvolume`, for the subvolumes of an image, or of a mount through its server.
//!
//! [`args`] has the arguments, [`place`] the operations on an image (by the library), and [`mount`] those on a mount
//! (with the rights of the caller; [`served`] lists all by one request). The commands below work on either. Called by
//! `args`.
//!
//! Failure: changes made before a failure stay. The error of a recursive snapshot says that some may have been made; a
//! recursive deletion does not list the subvolumes it deleted before the failure.

mod args;
mod argument;
mod entry;
mod mount;
mod place;
mod served;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use spinney::btrfs::SubvolumeInfo;
use spinney::btrfs::disk::TreeId;
use spinney::vfs::SnapshotMode;

use crate::commands::failure::Failure;
use crate::commands::image::{ImageArgs, ReadArgs};
use crate::commands::output::Output;
use args::{Command, Delete, Find, List, ReadOnly, Rename, Show, Snapshot, Switch};
use entry::{About, Entry, entry, print_row, print_title, print_tree, print_whole, uuid, whole};
use place::Place;

pub(crate) use args::Subvolume;
pub(super) use mount::shows_default;
pub(super) use served::{JOB, write};

#[derive(Serialize)]
struct Report {
    default_id: Option<u64>,
    subvolumes: Vec<Entry>,
}

#[derive(Serialize)]
struct Found {
    subvolumes: Vec<Entry>,
}

#[derive(Serialize)]
struct Deleted {
    deleted: Vec<Entry>,
}

impl Subvolume {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Create { image, path, json } => {
                let place = argument::open(image)?;
                place.create(path)?;
                end(place, path, *json, out)
            }
            Command::Snapshot(command) => command.run(out),
            Command::List(command) => command.run(out),
            Command::Show(command) => command.run(out),
            Command::Find(command) => command.run(out),
            Command::Delete(command) => command.run(out),
            Command::Rename(command) => command.run(out),
            Command::ReadOnly(command) => command.run(out),
            Command::SetDefault { image, path, json } => set_default(image, path, *json, out),
            Command::GetDefault { image, json } => get_default(image, *json, out),
        }
    }
}

/// Makes a change durable and reports the subvolume.
fn end(place: Box<dyn Place>, path: &Path, json: bool, out: &mut Output) -> Result<()> {
    let report = if json { Some(entry(&place.at(path)?)) } else { None };
    place.finish()?;
    report.map_or(Ok(()), |report| out.json(&report))
}

fn set_default(image: &ImageArgs, path: &Path, json: bool, out: &mut Output) -> Result<()> {
    let place = argument::open(image)?;
    place.set_default(path)?;
    end(place, path, json, out)
}

fn get_default(image: &ReadArgs, json: bool, out: &mut Output) -> Result<()> {
    let place = argument::open_to_read(image)?;
    let found = place.of(place.default()?)?;
    if json {
        return out.json(&entry(&found));
    }
    print_title(out)?;
    print_row(&found, out)
}

impl Snapshot {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open(&self.image)?;
        let source = place.at(&self.source)?;
        let mode = if self.read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        let nested = if self.recursive { place::below(&place.list()?, source.id) } else { Vec::new() };
        if nested.is_empty() {
            place.snapshot(&source, &self.dest, mode)?;
        } else {
            self.take_all(&*place, &source, &nested).context("some snapshots may have been made")?;
        }
        end(place, &self.dest, self.json, out)
    }

    /// Makes the snapshots from the top down, and makes them read-only at the end: entries of a read-only one cannot be
    /// replaced.
    fn take_all(&self, place: &dyn Place, source: &SubvolumeInfo, nested: &[SubvolumeInfo]) -> Result<()> {
        place.snapshot(source, &self.dest, SnapshotMode::ReadWrite)?;
        let mut dests = vec![self.dest.clone()];
        for one in nested {
            let beneath = Path::new(&one.path).strip_prefix(&source.path);
            let dest = self.dest.join(beneath.context("a subvolume whose path is not below that of its container")?);
            place.remove_stand_in(&dest)?;
            place.snapshot(one, &dest, SnapshotMode::ReadWrite)?;
            dests.push(dest);
        }
        if self.read_only {
            for dest in dests.iter().rev() {
                place.set_read_only(&place.at(dest)?, true)?;
            }
        }
        Ok(())
    }
}

impl List {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open_to_read(&self.image)?;
        let mut all = if self.deleted { place.deleted()? } else { place.list()? };
        if let Some(what) = &self.snapshots_of {
            let sources: Vec<[u8; 16]> = sources(&*place, &all, what)?;
            all.retain(|one| sources.contains(&one.parent_uuid));
        }
        all.retain(|one| (!self.read_only || one.read_only) && (!self.snapshots || uuid(&one.parent_uuid).is_some()));
        if self.json {
            // In a mount some users may not read the default.
            let default_id = place.default().ok().map(|id| id.0);
            return out.json(&Report { default_id, subvolumes: all.iter().map(entry).collect() });
        }
        if self.tree {
            return print_tree(&all, out);
        }
        print_title(out)?;
        all.iter().try_for_each(|one| print_row(one, out))
    }
}

/// UUIDs of the subvolumes that `what` names, which may include the top level.
fn sources(place: &dyn Place, all: &[SubvolumeInfo], what: &str) -> Result<Vec<[u8; 16]>> {
    let mut found: Vec<[u8; 16]> = matching(all, what).map(|one| one.uuid).collect();
    if found.is_empty() {
        let one = match what.parse() {
            Ok(id) => place.of(TreeId(id))?,
            Err(_) => place.at(Path::new(what))?,
        };
        found.push(one.uuid);
    }
    found.retain(|uuid| *uuid != [0; 16]);
    Ok(found)
}

/// The subvolumes with the given UUID, number or path.
fn matching<'a>(all: &'a [SubvolumeInfo], what: &'a str) -> impl Iterator<Item = &'a SubvolumeInfo> {
    let id = what.parse().ok().map(TreeId);
    let wanted_uuid = what.to_ascii_lowercase();
    let path = Path::new(what.trim_start_matches('/'));
    all.iter().filter(move |one| {
        let is_uuid = |bytes| uuid(bytes).is_some_and(|uuid| uuid == wanted_uuid);
        let has_path = !path.as_os_str().is_empty() && Path::new(&one.path) == path;
        Some(one.id) == id || has_path || is_uuid(&one.uuid) || is_uuid(&one.received_uuid)
    })
}

impl Find {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open_to_read(&self.image)?;
        let all = place.list()?;
        let mut found: Vec<SubvolumeInfo> = matching(&all, &self.what).cloned().collect();
        // `Place::list` leaves out the top level.
        let top = place.of(TreeId::FS).ok();
        found.extend(
            top.filter(|top| self.what == "/" || matching(std::slice::from_ref(top), &self.what).next().is_some()),
        );
        if found.is_empty() {
            let text = format!("{}: no subvolume has that UUID, number or path", self.what);
            return Err(Failure::refused(text).into());
        }
        if self.json {
            return out.json(&Found { subvolumes: found.iter().map(entry).collect() });
        }
        print_title(out)?;
        found.iter().try_for_each(|one| print_row(one, out))
    }
}

impl Show {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open_to_read(&self.image)?;
        let info = place.at(&self.path)?;
        let all = place.list()?;
        let is_snapshot = |one: &&SubvolumeInfo| info.uuid != [0; 16] && one.parent_uuid == info.uuid;
        let about = About {
            info: &info,
            is_default: place.default().ok().map(|id| id == info.id),
            snapshots: all.iter().filter(is_snapshot).collect(),
            quota: place.quota(info.id)?,
        };
        if self.json { out.json(&whole(&about)) } else { print_whole(&about, out) }
    }
}

impl Delete {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open(&self.image)?;
        let mut deleted = Vec::new();
        for path in &self.paths {
            self.delete(&*place, &place.at(path)?, &mut deleted)?;
        }
        for id in &self.id {
            self.delete(&*place, &place.of(TreeId(*id))?, &mut deleted)?;
        }
        place.finish()?;
        if self.json { out.json(&Deleted { deleted }) } else { Ok(()) }
    }

    fn delete(&self, place: &dyn Place, subvolume: &SubvolumeInfo, deleted: &mut Vec<Entry>) -> Result<()> {
        if self.recursive {
            let nested = place::below(&place.list()?, subvolume.id);
            for one in nested.iter().rev() {
                self.open_container(place, one, subvolume, &nested)?;
                place.delete(one)?;
                deleted.push(entry(one));
            }
        }
        place.delete(subvolume)?;
        deleted.push(entry(subvolume));
        Ok(())
    }

    /// Makes the container of a subvolume writable, since nothing can be removed from it otherwise.
    fn open_container(
        &self,
        place: &dyn Place,
        one: &SubvolumeInfo,
        top: &SubvolumeInfo,
        nested: &[SubvolumeInfo],
    ) -> Result<()> {
        let containers = nested.iter().chain(std::iter::once(top));
        for container in containers.filter(|other| Some(other.id) == one.parent && other.read_only) {
            place.set_read_only(container, false)?;
        }
        Ok(())
    }
}

impl Rename {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place = argument::open(&self.image)?;
        place.at(&self.from)?;
        place.rename(&self.from, &self.to)?;
        end(place, &self.to, self.json, out)
    }
}

impl ReadOnly {
    fn run(&self, out: &mut Output) -> Result<()> {
        let Some(to) = self.to else { return self.show(out) };
        let place = argument::open(&self.image)?;
        let found = place.at(&self.path)?;
        let wanted = to == Switch::On;
        let was_received = uuid(&found.received_uuid).is_some();
        if found.read_only != wanted {
            if !wanted && was_received && !self.force {
                let text = format!(
                    "{}: was received, and would lose the UUID that it was received from, so that nothing could be \
                     received upon it any more; --force does that",
                    self.path.display()
                );
                return Err(Failure::refused(text).into());
            }
            place.set_read_only(&found, wanted)?;
            if !wanted && was_received {
                place.forget_received(&found)?;
            }
        }
        end(place, &self.path, self.json, out)
    }

    fn show(&self, out: &mut Output) -> Result<()> {
        let place = argument::open_to_look(&self.image)?;
        let found = place.at(&self.path)?;
        if self.json {
            return out.json(&entry(&found));
        }
        Ok(writeln!(out, "{}", if found.read_only { "on" } else { "off" })?)
    }
}
