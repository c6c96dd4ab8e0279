//! Checks the result of `stat` after each step: the step's effect, and nothing else changed. Called by `drive`.
//!
//! The clock of a workload stands still. A time is therefore one that was set, the former one, or that of the clock.

use super::history::{Attrs, Ino};
use super::oracle::{Oracle, Thing};
use super::state::ino_of;
use super::step::Step;
use super::tape::Time;
use crate::CLOCK;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use vfs::Volume;
use vfs::file_system::{NodeFlags, Time as Timestamp};

impl Oracle {
    /// The files whose attributes a step may change: those it names, and their directories.
    pub(super) fn touched(&self, step: &Step) -> BTreeSet<Ino> {
        let mut touched = BTreeSet::new();
        for path in step.paths() {
            touched.extend(self.at(path));
            touched.extend(self.slot(path).map(|slot| slot.0));
        }
        touched
    }
}

/// Checks and records the attributes of `touched`, once `step` is done.
///
/// # Errors
/// If they are not the result of the step.
pub(super) fn observe(
    volume: &Volume,
    oracle: &mut Oracle,
    step: &Step,
    touched: &BTreeSet<Ino>,
    began: Time,
) -> Result<()> {
    let target = step.paths().last().and_then(|path| oracle.at(path));
    for ino in touched {
        let Some(path) = oracle.path_to(*ino) else { continue };
        let Some(before) = oracle.things.get(ino).and_then(|thing| thing.attrs.last()).cloned() else { continue };
        let metadata = volume.symlink_metadata(&path).with_context(|| path.display().to_string())?;
        ensure!(ino_of(&metadata) == *ino, "{} leads elsewhere", path.display());
        let after = Attrs::of(&metadata);
        let asked = match target == Some(*ino) {
            true => asked(&before, step),
            false => before.clone(),
        };
        let is_time = |time: Timestamp, asked: Timestamp| time == asked || time == now();
        let expected = Attrs {
            mtime: if is_time(after.mtime, asked.mtime) { after.mtime } else { asked.mtime },
            ctime: if is_time(after.ctime, asked.ctime) { after.ctime } else { asked.ctime },
            ..asked
        };
        ensure!(after == expected, "{} has {after}, not {expected}", path.display());
        oracle.change_attrs(*ino, began, after);
    }
    Ok(())
}

/// The attributes that a step asks for.
fn asked(before: &Attrs, step: &Step) -> Attrs {
    let before = before.clone();
    match step {
        Step::Chmod { mode, .. } => Attrs { mode: *mode, ctime: now(), ..before },
        Step::Chown { uid, gid, .. } => Attrs { uid: *uid, gid: *gid, ctime: now(), ..before },
        Step::Utimes { atime, mtime, .. } => {
            Attrs { atime: Timestamp::new(*atime, 0), mtime: Timestamp::new(*mtime, 0), ctime: now(), ..before }
        }
        Step::Chattr { flags, .. } => Attrs { flags: with_flags(before.flags, flags), ctime: now(), ..before },
        _ => before,
    }
}

/// `old` with those of the flags A, d and S that are named, and no others of them.
pub(super) fn with_flags(old: NodeFlags, named: &str) -> NodeFlags {
    let all = [('A', NodeFlags::NOATIME), ('d', NodeFlags::NODUMP), ('S', NodeFlags::SYNC)];
    all.into_iter().fold(old, |flags, (letter, flag)| if named.contains(letter) { flags | flag } else { flags - flag })
}

/// Checks that a new file has the times of the clock.
///
/// # Errors
/// If it has others.
pub(super) fn check_new(thing: &Thing) -> Result<()> {
    let attrs = thing.attrs.last().context("no attributes")?;
    let times = [attrs.atime, attrs.mtime, attrs.ctime, attrs.btime];
    ensure!(times.iter().all(|time| *time == now()), "was made with {attrs}");
    Ok(())
}

fn now() -> Timestamp {
    Timestamp::new(CLOCK.0, CLOCK.1)
}
