//! Opens repositories for `backup` and `restore`, and verifies one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Serialize;
use spinney::Env;
use spinney::btrfs::backup::{Identities, Inspection, Mark, Name, Recipients, Repository, Stamp, Writing};
use spinney::btrfs::{names_store, open_store};

use super::failure;
use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// The place that a word names; `None` for an image or a directory of streams.
pub(super) fn place(word: &Path) -> Option<&str> {
    word.to_str().filter(|word| names_store(word))
}

/// How a backup writes to a repository.
pub(super) struct How<'a> {
    pub(super) time: Stamp,
    pub(super) recipients: &'a [String],
    pub(super) takes_over: bool,
    pub(super) part_bytes: Option<u64>,
}

pub(super) fn open_to_write(place: &str, name: &Name, how: &How<'_>) -> Result<Repository> {
    let recipients = match how.recipients {
        [] => None,
        texts => {
            let keys = Recipients::parse(texts.iter().map(String::as_str));
            Some(keys.map_err(|error| Failure::usage(format!("--encrypt: {error}")))?)
        }
    };
    let writing = Writing {
        mark: mark(how.time),
        has_ended: Box::new(has_ended),
        takes_over: how.takes_over,
        recipients,
        part_bytes: how.part_bytes,
    };
    let store = open_store(place).map_err(failure)?;
    Repository::write(store, name, writing).map_err(failure)
}

pub(super) fn open_to_read(place: &str) -> Result<Repository> {
    let repository = Repository::read(open_store(place).map_err(failure)?).map_err(failure)?;
    if repository.is_new() {
        return Err(Failure::refused(format!("{place}: no backup was made there: it has no manifest")).into());
    }
    Ok(repository)
}

/// The identities in the files that were named.
pub(super) fn identities(files: &[PathBuf]) -> Result<Option<Identities>> {
    let mut texts = String::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        texts.push_str(&text);
        texts.push('\n');
    }
    if files.is_empty() {
        return Ok(None);
    }
    let keys = Identities::parse(&texts).map_err(|error| Failure::usage(format!("--identity: {error}")))?;
    Ok(Some(keys))
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

const HOST: &str = "/proc/sys/kernel/hostname";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The mark of this process.
fn mark(time: Stamp) -> Mark {
    let id = std::process::id().to_string();
    let process = format!("{id}/{}", start_of(&id).unwrap_or_default());
    let run = format!("{:016x}", Env::system().random_u64());
    Mark { host: line_of(HOST), boot: line_of(BOOT), process, since: time.to_string(), run }
}

/// When a process began, in the kernel's unit; `None` if there is no such process.
fn start_of(id: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it may have spaces and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

/// True for a process of this host that has ended. Of one on another host it is not known.
fn has_ended(mark: &Mark) -> bool {
    let is_here = !mark.boot.is_empty() && mark.host == line_of(HOST);
    if !is_here {
        return false;
    }
    if mark.boot != line_of(BOOT) {
        return true;
    }
    let Some((id, start)) = mark.process.split_once('/') else { return false };
    id.bytes().all(|byte| byte.is_ascii_digit()) && start_of(id).is_none_or(|now| now != start)
}

#[derive(Serialize)]
struct Report<'a> {
    states: u64,
    objects: u64,
    read: u64,
    bytes: u64,
    faults: &'a [String],
}

/// Verifies a repository, and prints the outcome.
pub(super) fn verify(place: &str, percent: u8, is_quiet: bool, json: bool, out: &mut Output) -> Result<()> {
    let repository = open_to_read(place)?;
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !is_quiet);
    let seed = Env::system().random_u64();
    let found = spinney::btrfs::verify_repository(&repository, percent, seed, &mut progress.follow());
    drop(bar);
    let Inspection { states, objects, read, bytes, faults } = found.map_err(failure)?;
    if json {
        out.json(&Report { states, objects, read, bytes, faults: &faults })?;
    } else {
        for fault in &faults {
            writeln!(out, "{fault}")?;
        }
        writeln!(out, "{states} states whole, {objects} objects of {bytes} bytes are there, {read} of them were read")?;
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(Failure::new(Status::Corrupt, format!("{place}: {count} faults")).into()),
    }
}
