//! `spinney fork`, for the forks of an image, or of a mount through its server.
//!
//! [`args`] has the arguments, [`report`] the output. On a mount a command is a job of the server (`jobs`), which runs
//! the same code there; only `fork` itself asks for JSON, to print the path on this machine. Called by `args` of the
//! crate, by `jobs`, and by `run`, which forks for a command.
//!
//! Failure: as the library's; a merge with conflicts that was not done has the status 1.

mod args;
mod report;

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use spinney::btrfs::Volume;
use spinney::btrfs::forks::{self, ForkOptions, Forks, write_patch};

use super::diff::ChangeList;
use super::format;
use crate::commands::failure::{Failure, Status as ExitStatus};
use crate::commands::image::maker;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;
use args::{Command, Create, Diff, Drop, List, Merge, Status, Strategy};

pub(crate) use args::Fork;

/// The name of the job.
pub(super) const JOB: &str = "fork";
/// Stands for the image in the words of a job.
pub(super) const IMAGE: &str = "IMAGE";
/// Numbers that are tried for the name of a fork.
const NAMES_MAX: u32 = 10_000;

/// The forks of a volume, for the user of this process.
pub(super) fn forks_of(volume: &Volume) -> Forks {
    Forks::new(volume.clone()).owner(maker().0)
}

impl Fork {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Create(create) => create.run(out),
            Command::List(list) => list.run(out),
            Command::Status(status) => status.run(out),
            Command::Diff(diff) => diff.run(out),
            Command::Merge(merge) => merge.run(out),
            Command::Drop(drop) => drop.run(out),
        }
    }

    /// True if the volume stays as it is.
    pub(super) const fn only_reads(&self) -> bool {
        matches!(&self.command, Command::List(_) | Command::Status(_) | Command::Diff(_))
    }

    /// Runs the command on an open volume. Adds the names that lead to other nodes now.
    pub(super) fn run_on(&self, forks: &Forks, out: &mut Output, changed: &mut Vec<Vec<u8>>) -> Result<()> {
        match &self.command {
            Command::Create(create) => create.run_on(forks, out, changed),
            Command::List(list) => list.run_on(forks, out),
            Command::Status(status) => status.run_on(forks, out),
            Command::Diff(diff) => diff.run_on(forks, out),
            Command::Merge(merge) => merge.run_on(forks, out, changed),
            Command::Drop(drop) => drop.run_on(forks, out, changed),
        }
    }
}

/// The words of a job: the verb, then options, then paths.
fn words(verb: &str, options: &[(bool, &str)], values: Vec<String>, paths: Vec<String>) -> Vec<String> {
    let mut words = vec![verb.to_owned()];
    words.extend(options.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
    words.extend(values);
    words.extend(["--".to_owned(), IMAGE.to_owned()]);
    words.extend(paths);
    words
}

fn note(changed: &mut Vec<Vec<u8>>, path: &Path) {
    changed.push(Path::new("/").join(path).as_os_str().as_bytes().to_vec());
}

impl Create {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let report = mount.report(JOB, self.words(&mount)?)?;
            if self.json {
                return Ok(out.write_all(&report)?);
            }
            let path = path_of(&report).and_then(|path| mount.on_host(&dir, &path));
            out.put_name(path.context("the report of the server")?.as_os_str().as_bytes())?;
            return Ok(out.write_all(b"\n")?);
        }
        let volume = format::open_writable(&self.image)?;
        self.run_on(&forks_of(&volume), out, &mut Vec::new())?;
        Ok(volume.close()?)
    }

    /// The command for the server of a mount.
    fn words(&self, mount: &OnMount) -> Result<Vec<String>> {
        let mut values = vec!["--json".to_owned()];
        values.extend(self.limit.map(|limit| format!("--limit={limit}")));
        values.extend(self.expires.map(|expires| format!("--expires={expires}s")));
        let mut paths = vec![mount.word(&self.base)?];
        if let Some(name) = &self.name {
            paths.push(if is_name(name) { mount.name(name)? } else { format!("/{}", mount.word(name)?) });
        }
        Ok(words("create", &[(self.read_only, "--read-only")], values, paths))
    }

    fn run_on(&self, forks: &Forks, out: &mut Output, changed: &mut Vec<Vec<u8>>) -> Result<()> {
        let target = match &self.name {
            Some(name) if is_name(name) => beside(&self.base, name),
            Some(path) => path.clone(),
            None => free_name(forks.volume(), &self.base)?,
        };
        let expires = self.expires.map(|seconds| now().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let options = ForkOptions { read_only: self.read_only, expires, limit: self.limit };
        let fork = forks.fork(&self.base, &target, &options)?;
        note(changed, &fork.path);
        if self.json {
            return out.json(&report::entry(&fork));
        }
        out.put_name(Path::new("/").join(&fork.path).as_os_str().as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }
}

/// The path in a report of the server.
pub(super) fn path_of(report: &[u8]) -> Option<PathBuf> {
    let report: serde_json::Value = serde_json::from_slice(report).ok()?;
    report.get("path")?.as_str().map(PathBuf::from)
}

fn is_name(path: &Path) -> bool {
    !path.as_os_str().as_bytes().contains(&b'/')
}

/// A path in the directory that the base is in; that of the root is the root.
fn beside(base: &Path, name: &Path) -> PathBuf {
    let base = base.strip_prefix("/").unwrap_or(base);
    base.parent().unwrap_or(Path::new("")).join(name)
}

/// The name of the base with a number that is free.
fn free_name(volume: &Volume, base: &Path) -> Result<PathBuf> {
    let stem = base.file_name().map_or_else(|| "fork".into(), std::ffi::OsStr::to_owned);
    for number in 1..NAMES_MAX {
        let mut name = stem.clone();
        name.push(format!("-{number}"));
        let path = beside(base, Path::new(&name));
        if !volume.exists(Path::new("/").join(&path))? {
            return Ok(path);
        }
    }
    Err(Failure::refused(format!("{}: has too many forks without a name", base.display())).into())
}

/// Seconds since 1970.
fn now() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_secs()).unwrap_or(i64::MAX)
}

impl List {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let words = words("list", &[(self.json, "--json")], Vec::new(), Vec::new());
            return OnMount::connect(&dir)?.run(JOB, words, out);
        }
        self.run_on(&forks_of(&format::open_read_only(&self.image)?), out)
    }

    fn run_on(&self, forks: &Forks, out: &mut Output) -> Result<()> {
        let forks = forks.list()?;
        if self.json { out.json(&report::list(&forks)) } else { report::print_tree(&forks, out) }
    }
}

impl Status {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let path = mount.word(&self.path)?;
            return mount.run(JOB, words("status", &[(self.json, "--json")], Vec::new(), vec![path]), out);
        }
        self.run_on(&forks_of(&format::open_read_only(&self.image)?), out)
    }

    fn run_on(&self, forks: &Forks, out: &mut Output) -> Result<()> {
        let mut changes = Vec::new();
        forks.status(&self.path, |change| changes.push(change))?;
        let mut list = ChangeList::by_path(self.json, &changes);
        changes.iter().try_for_each(|change| list.show(change, out))?;
        list.finish(out)
    }
}

impl Diff {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let path = mount.word(&self.path)?;
            return mount.run(JOB, words("diff", &[], Vec::new(), vec![path]), out);
        }
        self.run_on(&forks_of(&format::open_read_only(&self.image)?), out)
    }

    fn run_on(&self, forks: &Forks, out: &mut Output) -> Result<()> {
        let fork = forks.at(&self.path)?;
        Ok(write_patch(forks.volume(), &fork.ancestor, &fork.path, out)?)
    }
}

impl Merge {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let mut values = Vec::new();
            if let Some(into) = &self.into {
                values.push(format!("--into=/{}", mount.word(into)?));
            }
            let strategy = match self.strategy {
                Strategy::Fail => "fail",
                Strategy::Ours => "ours",
                Strategy::Theirs => "theirs",
            };
            values.push(format!("--strategy={strategy}"));
            let options = [(self.drop, "--drop"), (self.json, "--json")];
            let paths = vec![mount.word(&self.path)?];
            return mount.run(JOB, words("merge", &options, values, paths), out);
        }
        let volume = format::open_writable(&self.image)?;
        let done = self.run_on(&forks_of(&volume), out, &mut Vec::new());
        volume.close()?;
        done
    }

    fn run_on(&self, forks: &Forks, out: &mut Output, changed: &mut Vec<Vec<u8>>) -> Result<()> {
        let strategy = match self.strategy {
            Strategy::Fail => forks::Strategy::Fail,
            Strategy::Ours => forks::Strategy::Ours,
            Strategy::Theirs => forks::Strategy::Theirs,
        };
        let merged = forks.merge(&self.path, &forks::Merge { into: self.into.clone(), strategy })?;
        note(changed, &merged.target);
        if self.json {
            report::merge_as_json(&merged, out)?
        } else {
            report::print_merge(&merged, out)?
        }
        let is_refused = strategy == forks::Strategy::Fail && !merged.conflicts.is_empty();
        if is_refused {
            out.finish()?;
            let count = u64::try_from(merged.conflicts.len()).unwrap_or(u64::MAX);
            let count = crate::commands::human::count(count, "conflict", "conflicts");
            let text = format!("{count}: nothing was merged; --strategy ours or theirs decides them");
            return Err(Failure::new(ExitStatus::Refused, text).into());
        }
        if self.drop {
            let fork = forks.drop_fork(&self.path)?;
            note(changed, &fork.path);
        }
        Ok(())
    }
}

impl Drop {
    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let options = [(self.expired, "--expired"), (self.json, "--json")];
            let paths = self.paths.iter().map(|path| mount.word(path)).collect::<Result<Vec<_>>>()?;
            return mount.run(JOB, words("drop", &options, Vec::new(), paths), out);
        }
        let volume = format::open_writable(&self.image)?;
        let done = self.run_on(&forks_of(&volume), out, &mut Vec::new());
        volume.close()?;
        done
    }

    fn run_on(&self, forks: &Forks, out: &mut Output, changed: &mut Vec<Vec<u8>>) -> Result<()> {
        let dropped = if self.expired {
            forks.drop_expired(now())?
        } else {
            self.paths.iter().map(|path| forks.drop_fork(path)).collect::<Result<Vec<_>, _>>()?
        };
        dropped.iter().for_each(|fork| note(changed, &fork.path));
        if self.json { out.json(&report::dropped(&dropped)) } else { Ok(()) }
    }
}
