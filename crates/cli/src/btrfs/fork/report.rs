//! Prints forks and the results of merges. Called by `fork`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use spinney::Time;
use spinney::btrfs::forks::{Conflict, Fork, Merged};

use crate::commands::attributes::JsonTime;
use crate::commands::human;
use crate::commands::names::{self, JsonPath};
use crate::commands::output::Output;

/// A fork in JSON.
#[derive(Serialize)]
pub(super) struct Entry {
    /// From the root of the volume, as all paths here.
    #[serde(flatten)]
    path: JsonPath,
    id: u64,
    uuid: String,
    /// Null if the base is gone.
    base: Option<JsonPath>,
    created: JsonTime,
    /// Seconds since 1970.
    expires: Option<i64>,
    limit: Option<u64>,
    read_only: bool,
}

#[derive(Serialize)]
pub(super) struct Forks {
    forks: Vec<Entry>,
}

#[derive(Serialize)]
pub(super) struct Dropped {
    dropped: Vec<Entry>,
}

#[derive(Serialize)]
struct MergeReport {
    target: JsonPath,
    merged: bool,
    changes: u64,
    conflicts: Vec<ConflictEntry>,
}

#[derive(Serialize)]
struct ConflictEntry {
    #[serde(flatten)]
    path: JsonPath,
    kind: String,
    kept: Option<JsonPath>,
}

/// A path from the root of the volume.
fn shown(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

fn json(path: &Path) -> JsonPath {
    JsonPath(path.as_os_str().as_bytes().to_vec())
}

pub(super) fn entry(fork: &Fork) -> Entry {
    Entry {
        path: json(&shown(&fork.path)),
        id: fork.id.0,
        uuid: names::uuid(&fork.uuid),
        base: fork.base.as_deref().map(|base| json(&shown(base))),
        created: JsonTime::from(fork.created),
        expires: fork.expires,
        limit: fork.limit,
        read_only: fork.read_only,
    }
}

pub(super) fn list(forks: &[Fork]) -> Forks {
    Forks { forks: forks.iter().map(entry).collect() }
}

pub(super) fn dropped(forks: &[Fork]) -> Dropped {
    Dropped { dropped: forks.iter().map(entry).collect() }
}

/// Prints each fork below its base.
pub(super) fn print_tree(forks: &[Fork], out: &mut Output) -> Result<()> {
    let is_fork = |path: &Path| forks.iter().any(|fork| fork.path == path);
    let mut bases: Vec<Option<&Path>> = forks.iter().map(|fork| fork.base.as_deref()).collect();
    bases.retain(|base| base.is_none_or(|base| !is_fork(base)));
    bases.sort_unstable();
    bases.dedup();
    for base in bases {
        match base {
            Some(base) => out.put_name(shown(base).as_os_str().as_bytes())?,
            None => out.write_all(b"(base is gone)")?,
        }
        out.write_all(b"\n")?;
        print_below(forks, base, 1, out)?;
    }
    Ok(())
}

fn print_below(forks: &[Fork], base: Option<&Path>, depth: usize, out: &mut Output) -> Result<()> {
    // A base may have been renamed to what was the name of its fork: no more levels than there are forks.
    if depth > forks.len() {
        return Ok(());
    }
    for fork in forks.iter().filter(|fork| fork.base.as_deref() == base) {
        write!(out, "{:indent$}", "", indent = 2 * depth)?;
        out.put_name(shown(&fork.path).as_os_str().as_bytes())?;
        write!(out, "  {}", human::time_short(fork.created))?;
        if fork.read_only {
            write!(out, "  read-only")?;
        }
        if let Some(expires) = fork.expires {
            write!(out, "  expires {}", human::time_short(Time { sec: expires, nsec: 0 }))?;
        }
        if let Some(limit) = fork.limit {
            write!(out, "  limit {}", human::bytes(limit))?;
        }
        writeln!(out)?;
        print_below(forks, Some(&fork.path), depth + 1, out)?;
    }
    Ok(())
}

pub(super) fn merge_as_json(merged: &Merged, out: &mut Output) -> Result<()> {
    let conflicts = merged.conflicts.iter().map(|one| ConflictEntry {
        path: json(&one.path),
        kind: one.kind.to_string(),
        kept: one.kept.as_deref().map(json),
    });
    out.json(&MergeReport {
        target: json(&shown(&merged.target)),
        merged: merged.is_merged,
        changes: merged.changes,
        conflicts: conflicts.collect(),
    })
}

pub(super) fn print_merge(merged: &Merged, out: &mut Output) -> Result<()> {
    for Conflict { path, kind, kept } in &merged.conflicts {
        write!(out, "C ")?;
        out.put_name(path.as_os_str().as_bytes())?;
        write!(out, ": {kind}")?;
        if let Some(kept) = kept {
            write!(out, "; kept ")?;
            out.put_name(kept.as_os_str().as_bytes())?;
        }
        writeln!(out)?;
    }
    if merged.is_merged {
        let names = human::count(merged.changes, "change", "changes");
        write!(out, "{names} merged into ")?;
        out.put_name(shown(&merged.target).as_os_str().as_bytes())?;
        writeln!(out)?;
    } else if merged.conflicts.is_empty() {
        writeln!(out, "nothing to merge")?;
    }
    Ok(())
}
