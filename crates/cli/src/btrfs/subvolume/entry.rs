//! Prints subvolumes: as JSON, a row, a tree, or all details. Called by `subvolume`, for `list`, `show` and the
//! changes.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use serde::Serialize;
use spinney::btrfs::disk::TreeId;
use spinney::btrfs::{QgroupReport, SubvolumeInfo};

use crate::commands::attributes::JsonTime;
use crate::commands::human;
use crate::commands::names::{self, JsonPath};
use crate::commands::output::Output;

/// One subvolume in JSON.
#[derive(Serialize)]
pub(super) struct Entry {
    id: u64,
    /// From the top-level subvolume, without a leading slash; in a mount from the named directory.
    #[serde(flatten)]
    path: JsonPath,
    /// The subvolume that contains it; null for the top level.
    parent: Option<u64>,
    uuid: String,
    /// Null if the subvolume is not a snapshot.
    parent_uuid: Option<String>,
    received_uuid: Option<String>,
    generation: u64,
    created: u64,
    otime: JsonTime,
    read_only: bool,
}

/// All details of a subvolume in JSON.
#[derive(Serialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    entry: Entry,
    /// Transaction of the last change to one of its files.
    changed: u64,
    /// Transaction of the last change at the sender; null if it was not received.
    sent: Option<u64>,
    stime: Option<JsonTime>,
    /// Transaction in which it was received.
    received: Option<u64>,
    rtime: Option<JsonTime>,
    is_default: Option<bool>,
    snapshots: Vec<Named>,
    /// Null if quotas are off.
    quota: Option<Quota>,
}

#[derive(Serialize)]
struct Named {
    id: u64,
    #[serde(flatten)]
    path: JsonPath,
}

#[derive(Serialize)]
struct Quota {
    id: String,
    referenced: u64,
    exclusive: u64,
    referenced_max: Option<u64>,
    exclusive_max: Option<u64>,
}

/// Facts about a subvolume that its root item does not have.
pub(super) struct About<'a> {
    pub(super) info: &'a SubvolumeInfo,
    /// Null if the caller may not know.
    pub(super) is_default: Option<bool>,
    pub(super) snapshots: Vec<&'a SubvolumeInfo>,
    pub(super) quota: Option<QgroupReport>,
}

pub(super) fn entry(subvolume: &SubvolumeInfo) -> Entry {
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

/// A UUID; `None` if it is all zeros.
pub(super) fn uuid(bytes: &[u8; 16]) -> Option<String> {
    (*bytes != [0; 16]).then(|| names::uuid(bytes))
}

pub(super) fn whole(about: &About<'_>) -> Whole {
    let info = about.info;
    let some = |number: u64| (number != 0).then_some(number);
    let snapshots = about.snapshots.iter();
    Whole {
        entry: entry(info),
        changed: info.changed.0,
        sent: some(info.sent.0),
        stime: some(info.sent.0).map(|_| info.stime.into()),
        received: some(info.received.0),
        rtime: some(info.received.0).map(|_| info.rtime.into()),
        is_default: about.is_default,
        snapshots: snapshots.map(|one| Named { id: one.id.0, path: JsonPath(one.path.as_bytes().to_vec()) }).collect(),
        quota: about.quota.as_ref().map(|group| Quota {
            id: group.id.to_string(),
            referenced: group.rfer,
            exclusive: group.excl,
            referenced_max: group.max_rfer,
            exclusive_max: group.max_excl,
        }),
    }
}

/// Prints all details of a subvolume.
pub(super) fn print_whole(about: &About<'_>, out: &mut Output) -> Result<()> {
    let info = about.info;
    out.write_all(b"/")?;
    out.put_name(info.path.as_bytes())?;
    writeln!(out)?;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let number = |number: u64| or_none((number != 0).then(|| number.to_string()));
    let time = |known: u64, time| or_none((known != 0).then(|| human::time_full(time)));
    let name = info.path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    write!(out, "  Name:                   ")?;
    out.put_name(if name.is_empty() { b"<top level>" } else { name })?;
    writeln!(out)?;
    let parent = or_none(info.parent.map(|parent| parent.0.to_string()));
    let is_default = match about.is_default {
        None => "not told",
        Some(true) => "yes",
        Some(false) => "no",
    };
    for (title, text) in [
        ("UUID", or_none(uuid(&info.uuid))),
        ("Parent UUID", or_none(uuid(&info.parent_uuid))),
        ("Received UUID", or_none(uuid(&info.received_uuid))),
        ("Creation time", human::time_full(info.otime)),
        ("Subvolume ID", info.id.0.to_string()),
        ("Generation", info.generation.0.to_string()),
        ("Gen at creation", info.created.0.to_string()),
        ("Parent ID", parent),
        ("Flags", if info.read_only { "readonly" } else { "-" }.to_owned()),
        ("Default", is_default.to_owned()),
        ("Send transid", number(info.sent.0)),
        ("Send time", time(info.sent.0, info.stime)),
        ("Receive transid", number(info.received.0)),
        ("Receive time", time(info.received.0, info.rtime)),
    ] {
        writeln!(out, "  {:<23} {text}", format!("{title}:"))?;
    }
    writeln!(out, "  Snapshots:")?;
    for snapshot in &about.snapshots {
        out.write_all(b"    /")?;
        out.put_name(snapshot.path.as_bytes())?;
        writeln!(out)?;
    }
    let Some(group) = &about.quota else { return Ok(()) };
    let limit = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human::bytes);
    writeln!(out, "  Quota group:            {}", group.id)?;
    writeln!(out, "    Referenced:           {} of at most {}", human::bytes(group.rfer), limit(group.max_rfer))?;
    writeln!(out, "    Exclusive:            {} of at most {}", human::bytes(group.excl), limit(group.max_excl))?;
    Ok(())
}

/// One line of a table.
pub(super) fn print_row(subvolume: &SubvolumeInfo, out: &mut Output) -> Result<()> {
    let parent = subvolume.parent.map_or_else(|| "-".to_owned(), |parent| parent.0.to_string());
    let (mode, time) = (mode(subvolume), human::time_short(subvolume.otime));
    write!(out, "{:>6} {parent:>6} {:>10} {mode:<4} {time:<19}  /", subvolume.id.0, subvolume.generation.0)?;
    out.put_name(subvolume.path.as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

/// The line above a table.
pub(super) fn print_title(out: &mut Output) -> Result<()> {
    let (id, parent, generation, mode, created) = ("ID", "In", "Generation", "Mode", "Created");
    Ok(writeln!(out, "{id:>6} {parent:>6} {generation:>10} {mode:<4} {created:<19}  Path")?)
}

/// Prints subvolumes as a tree: each below its container.
pub(super) fn print_tree(all: &[SubvolumeInfo], out: &mut Output) -> Result<()> {
    let listed: HashSet<TreeId> = all.iter().map(|one| one.id).collect();
    let mut inside: HashMap<TreeId, Vec<&SubvolumeInfo>> = HashMap::new();
    // Subvolumes with an unlisted container are at the left edge.
    let mut todo: Vec<(&SubvolumeInfo, usize)> = Vec::new();
    for one in all.iter().rev() {
        match one.parent.filter(|parent| listed.contains(parent)) {
            Some(parent) => inside.entry(parent).or_default().push(one),
            None => todo.push((one, 0)),
        }
    }
    let mut printed = 0_usize;
    while let Some((one, depth)) = todo.pop() {
        printed += 1;
        // Ends at a loop in a damaged image.
        if printed > all.len() {
            break;
        }
        write!(out, "{:>6} {:<2}  {:width$}/", one.id.0, mode(one), "", width = depth * 2)?;
        out.put_name(one.path.as_bytes())?;
        writeln!(out)?;
        todo.extend(inside.get(&one.id).into_iter().flatten().map(|child| (*child, depth + 1)));
    }
    Ok(())
}

fn mode(subvolume: &SubvolumeInfo) -> &'static str {
    if subvolume.read_only { "ro" } else { "rw" }
}
