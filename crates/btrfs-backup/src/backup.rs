//! Carries out one backup of a subvolume: finishes an interrupted one, takes a snapshot, sends it, and deletes the
//! states that the rule drops. Called by the command `backup`, through `spinney::btrfs::back_up`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use checking::Watch;
use serde::Serialize;

use crate::destination::{Destination, Sent};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::rule::Rule;
use crate::source::Source;
use crate::stamp::Stamp;
use crate::state::{self, State};

/// A backup of a subvolume.
#[derive(Debug, Clone)]
pub struct Backup {
    /// The subvolume in the source.
    pub subvolume: PathBuf,
    /// The first part of the names of its states.
    pub name: Name,
    /// Directory in the source for the snapshots.
    pub snapshots: PathBuf,
    /// The time of the new state. A later one is taken if there are states of this time or after it.
    pub time: Stamp,
    /// The states to keep; without it all are kept.
    pub keep: Option<Rule>,
    /// Continue a name that another subvolume's states have, or whose states the source lacks.
    pub adopt: bool,
    /// Send the whole state instead of a difference.
    pub full: bool,
    /// Report what would be done, and do nothing.
    pub dry_run: bool,
}

/// The report of a backup, which also says what a failed one did.
#[derive(Debug, Default)]
pub struct Report {
    /// The actions, in their order.
    pub actions: Vec<Action>,
    /// States that were changed, lost or damaged, and are not used as parents.
    pub warnings: Vec<String>,
}

/// An action that was done, or would be in a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The kind of action.
    #[serde(rename = "action")]
    pub kind: ActionKind,
    /// The side that it changes.
    pub side: Party,
    /// The name of the state, or of a file.
    pub state: String,
    /// The state that a stream builds on.
    pub parent: Option<String>,
    /// Bytes of a stream.
    pub bytes: Option<u64>,
}

/// A kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    /// A snapshot was taken.
    Snapshot,
    /// A state was sent.
    Send,
    /// A state was read back.
    Verify,
    /// A state was deleted.
    Delete,
    /// The remains of an interrupted backup were deleted.
    Clear,
}

/// A side of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Party {
    /// The volume that is backed up.
    Source,
    /// The place that the backup goes to.
    Destination,
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::Send => "send",
            Self::Verify => "verify",
            Self::Delete => "delete",
            Self::Clear => "clear",
        })
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Source { "source" } else { "destination" })
    }
}

impl Action {
    fn new(kind: ActionKind, side: Party, state: impl Into<String>) -> Self {
        Self { kind, side, state: state.into(), parent: None, bytes: None }
    }
}

/// A backup that runs.
struct Run<'a> {
    backup: &'a Backup,
    source: &'a dyn Source,
    dest: &'a mut dyn Destination,
    watch: &'a dyn Watch,
    report: &'a mut Report,
}

impl Backup {
    /// Runs it. `report` is filled also if it fails.
    ///
    /// # Errors
    /// Every [`Error`]; [`Error::Cancelled`] after the watch cancelled it. The snapshots and the states that are
    /// complete stay, and the next backup continues from them.
    pub fn run(
        &self,
        source: &dyn Source,
        dest: &mut dyn Destination,
        watch: &dyn Watch,
        report: &mut Report,
    ) -> Result<()> {
        let lost = dest.losses().into_iter().map(|text| format!("{text}; it is no longer used as a parent"));
        report.warnings.extend(lost);
        let done = Run { backup: self, source, dest: &mut *dest, watch, report }.run();
        let finished = dest.finish();
        done.and(finished).map_err(|error| if watch.is_cancelled() { Error::Cancelled } else { error })
    }
}

impl Run<'_> {
    fn run(&mut self) -> Result<()> {
        let Backup { subvolume, name, snapshots: dir, dry_run, .. } = self.backup;
        let lineage = self.source.lineage(subvolume)?;
        let found = self.source.subvolumes_in(dir)?;
        for name in state::changed(&found, name) {
            let path = dir.join(name);
            let text = "was changed since it was made; it is no longer used as a parent";
            self.report.warnings.push(format!("{}: {text}", path.display()));
        }
        let newest = state::newest(&found, name);
        let mut states = state::states(found, name);
        let shared = state::common(&states, |state| self.dest.knows(state)).map(|state| state.stamp);
        if self.dest.keeps() {
            self.check_name(&lineage, &states, shared.is_some() || self.dest.count() == 0)?;
            self.finish_last(&mut states, shared)?;
        }
        let stamp = self.backup.stamp(newest)?;
        self.add(ActionKind::Snapshot, Party::Source, name.at(stamp));
        if *dry_run {
            self.would_send(&states, name.at(stamp));
        } else {
            self.source.freeze(subvolume, &dir.join(name.at(stamp)))?;
            states = state::states(self.source.subvolumes_in(dir)?, name);
            if let Some(state) = states.iter().find(|state| state.stamp == stamp) {
                self.send(&states, state)?;
            }
        }
        states.retain(|state| state.is_of(&lineage) || self.dest.knows(state));
        self.prune(&states, stamp)
    }

    fn add(&mut self, kind: ActionKind, side: Party, state: impl Into<String>) {
        self.report.actions.push(Action::new(kind, side, state));
    }

    /// Refuses a mixture of the states of two subvolumes: a rule would drop states of one because of the other.
    fn check_name(&self, lineage: &[[u8; 16]], states: &[State], is_known: bool) -> Result<()> {
        let Backup { subvolume, name, snapshots, adopt, .. } = self.backup;
        let (subvolume, name) = (subvolume.clone(), name.text().to_owned());
        match states.last() {
            _ if *adopt => Ok(()),
            Some(last) if !last.is_of(lineage) => {
                Err(Error::OtherSubvolume { subvolume, name, state: snapshots.join(&last.name) })
            }
            _ if !is_known => Err(Error::UnknownStates { subvolume, name }),
            _ => Ok(()),
        }
    }

    /// Sends the newest state that the destination lacks and deletes older ones that it lacks: the remains of
    /// interrupted backups.
    fn finish_last(&mut self, states: &mut Vec<State>, shared: Option<Stamp>) -> Result<()> {
        let is_lacking =
            |last: &mut State| shared.is_none_or(|shared| last.stamp > shared) && !self.dest.is_taken(last);
        let Some(last) = states.pop_if(is_lacking) else {
            return self.clear();
        };
        while let Some(older) = states.pop_if(|older| shared.is_some_and(|shared| older.stamp > shared)) {
            self.delete(older.name)?;
        }
        states.push(last.clone());
        if self.backup.dry_run {
            self.would_send(states, last.name);
            return Ok(());
        }
        self.send(states, &last)?;
        self.clear()
    }

    /// Deletes a state of the source.
    fn delete(&mut self, state: String) -> Result<()> {
        if !self.backup.dry_run {
            self.source.delete(&self.backup.snapshots.join(&state))?;
        }
        self.add(ActionKind::Delete, Party::Source, state);
        Ok(())
    }

    fn clear(&mut self) -> Result<()> {
        if !self.backup.dry_run {
            for left in self.dest.clear()? {
                self.add(ActionKind::Clear, Party::Destination, left);
            }
        }
        Ok(())
    }

    /// Reports that a state would be sent.
    fn would_send(&mut self, states: &[State], state: String) {
        let parent = state::common(states, |other| other.name != state && self.dest.has(other));
        let parent = parent.filter(|_| !self.backup.full).map(|parent| parent.name.clone());
        let action = Action::new(ActionKind::Send, Party::Destination, state);
        self.report.actions.push(Action { parent, ..action });
    }

    fn send(&mut self, states: &[State], state: &State) -> Result<()> {
        let parent = state::common(states, |other| other.stamp < state.stamp && self.dest.has(other));
        let parent = parent.filter(|_| !self.backup.full);
        let sent = Sent { source: self.source, dir: &self.backup.snapshots, state, parent };
        let bytes = self.dest.receive(&sent, self.watch)?;
        let parent = parent.map(|parent| parent.name.clone());
        let action = Action::new(ActionKind::Send, Party::Destination, &state.name);
        self.report.actions.push(Action { parent, bytes: Some(bytes), ..action });
        if self.dest.keeps() {
            self.dest.verify(&sent, self.watch)?;
            self.add(ActionKind::Verify, Party::Destination, &state.name);
        }
        Ok(())
    }

    /// Deletes the states of both sides that the rule drops.
    fn prune(&mut self, states: &[State], newest: Stamp) -> Result<()> {
        let Some(rule) = &self.backup.keep else { return Ok(()) };
        for name in self.dest.prune(rule, newest, self.backup.dry_run)? {
            self.add(ActionKind::Delete, Party::Destination, name);
        }
        let dropped: BTreeSet<Stamp> = rule.dropped(states.iter().map(|state| state.stamp), newest);
        for state in states.iter().filter(|state| dropped.contains(&state.stamp)) {
            self.delete(state.name.clone())?;
        }
        Ok(())
    }
}

impl Backup {
    /// The time of the new state, which is later than that of every other.
    fn stamp(&self, newest: Option<Stamp>) -> Result<Stamp> {
        let Some(last) = newest else { return Ok(self.time) };
        Ok(self.time.max(last.next().ok_or(Error::NoLaterTime)?))
    }
}
