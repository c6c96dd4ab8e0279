//! Continues receipts after a break, from the same stream or its rest. `Receiver` calls it for each stream.

use super::{Building, Left, Receiver, Resumable};
use crate::error::{Cause, Error, Result};
use crate::leftovers::{self, Kept, Leftovers};
use crate::node_ref::NodeRef;
use crate::note::Note;
use crate::subvolume::Target;
use btrfs_stream::{Prefix, ResumePoint, Version};
use std::sync::Arc;
use vfs::file_system::{Caller, Errno, RenameFlags, SnapshotMode};

impl Receiver<'_> {
    /// Resumes where the rest of a stream begins.
    pub(super) fn go_on(&mut self, point: ResumePoint) -> Result<(), Cause> {
        self.complete()?;
        let leftovers = Leftovers::list(self.volume, &self.dir)?;
        let kept = leftovers.at(point)?;
        let stream = (point.uuid, point.ctransid, point.version);
        if self.is_received(&leftovers, &kept.name, stream)? {
            return Ok(());
        }
        self.clear_work(&leftovers, &kept.name, stream, Some(&kept))?;
        self.begin_from(&kept, stream)
    }

    /// Begins a subvolume, or resumes it.
    pub(super) fn begin_resumable(
        &mut self,
        name: &[u8],
        stream: ([u8; 16], u64, Version),
        parent: Option<&Arc<NodeRef>>,
    ) -> Result<(), Cause> {
        let (uuid, sent, version) = stream;
        let leftovers = Leftovers::list(self.volume, &self.dir)?;
        if self.is_received(&leftovers, name, stream)? {
            return Ok(());
        }
        let kept = leftovers.last(name, uuid, sent)?;
        self.clear_work(&leftovers, name, stream, kept.as_ref())?;
        if let Some(kept) = &kept {
            self.begin_from(kept, stream)?;
            if let Some(resumable) = self.building.as_mut().and_then(|building| building.resumable.as_mut()) {
                resumable.skips_to = Some(kept.note.point);
            }
            return Ok(());
        }
        let work = leftovers::work_name(name);
        match parent {
            None => self.subvolumes()?.create(&Caller::default(), self.dir.node(), &work)?,
            Some(parent) => {
                self.subvolumes()?.snapshot(parent.node(), self.dir.node(), &work, SnapshotMode::ReadWrite)?;
            }
        }
        self.begin(&work, uuid, sent, parent.is_some())?;
        let resumable = Resumable {
            wanted: name.to_vec(),
            version,
            done: Prefix { commands: 0, digest: 0 },
            skips_to: None,
            kept: None,
            kept_at_bytes: self.report.bytes,
        };
        self.set_resumable(resumable)
    }

    /// Resumes from a copy of a snapshot.
    fn begin_from(&mut self, kept: &Kept, (uuid, sent, version): ([u8; 16], u64, Version)) -> Result<(), Cause> {
        let work = leftovers::work_name(&kept.name);
        let fs = self.volume.by_paths().file_system();
        let root = NodeRef::new(fs, self.subvolumes()?.root(kept.id)?);
        self.subvolumes()?.snapshot(root.node(), self.dir.node(), &work, SnapshotMode::ReadWrite)?;
        drop(root);
        self.begin(&work, uuid, sent, kept.note.is_snapshot)?;
        if let Some(building) = &mut self.building {
            building.resumable = Some(Resumable {
                wanted: kept.name.clone(),
                version,
                done: kept.note.point.prefix,
                skips_to: None,
                kept: Some((kept.kept.clone(), kept.note.point)),
                kept_at_bytes: self.report.bytes,
            });
        }
        Ok(())
    }

    /// Marks the subvolume just begun as unfinished.
    fn set_resumable(&mut self, resumable: Resumable) -> Result<(), Cause> {
        let fs = self.volume.by_paths().file_system();
        if let Some(building) = &mut self.building {
            note_of(&building.target, building.sent, building.is_snapshot, &resumable)
                .write(fs, building.target.root().node())?;
            building.resumable = Some(resumable);
        }
        Ok(())
    }

    /// True if the subvolume of the stream exists already, so the rest of the stream can be skipped. A received
    /// subvolume without its final name is renamed now.
    fn is_received(
        &mut self,
        leftovers: &Leftovers,
        name: &[u8],
        (uuid, sent, _): ([u8; 16], u64, Version),
    ) -> Result<bool, Cause> {
        let work = leftovers::work_name(name);
        // A changed subvolume is not the received state, and its name is taken.
        let is_there = |name: &[u8]| match leftovers.get(name).filter(|found| found.is_received(uuid, sent)) {
            Some(found) => Ok::<_, Cause>(!self.volume.is_changed_since_receipt(found.info.id)?),
            None => Ok(false),
        };
        if is_there(name)? {
            for kept in leftovers.kept_names(name, (uuid, sent)) {
                self.subvolumes()?.delete(self.dir.node(), kept)?;
            }
        } else if is_there(&work)? {
            self.give_name(&work, name, (uuid, sent))?;
        } else {
            return Ok(false);
        }
        self.report.present.push(self.path_of(name));
        self.passes = true;
        Ok(true)
    }

    /// Deletes the work subvolume if this stream built it. The final name must be free.
    fn clear_work(
        &self,
        leftovers: &Leftovers,
        name: &[u8],
        (uuid, sent, _): ([u8; 16], u64, Version),
        kept: Option<&Kept>,
    ) -> Result<(), Cause> {
        let fs = self.volume.by_paths().file_system();
        match fs.lookup(self.dir.node(), name) {
            Ok(entry) => {
                fs.forget(entry.node, 1);
                return Err(vfs::Error::from(Errno::EEXIST).into());
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        let work = leftovers::work_name(name);
        match leftovers.get(&work) {
            Some(found) if leftovers.is_ours(found, uuid, sent, kept) => {
                Ok(self.subvolumes()?.delete(self.dir.node(), &work)?)
            }
            // Creating it then fails because the name is taken.
            _ => Ok(()),
        }
    }

    /// True if the subvolume already has the command.
    pub(super) fn is_there_already(&mut self, before: Prefix, is_end: bool) -> Result<bool> {
        if self.passes {
            return Ok(true);
        }
        let Some(resumable) = self.building.as_mut().and_then(|building| building.resumable.as_mut()) else {
            return Ok(false);
        };
        let Some(point) = resumable.skips_to else { return Ok(false) };
        if before.commands < point.prefix.commands && !is_end {
            return Ok(true);
        }
        if before != point.prefix {
            let (commands, expected, found) = (before.commands, point.prefix.digest, before.digest);
            return Err(btrfs_stream::Error::OtherStream { commands, expected, found }.into());
        }
        resumable.skips_to = None;
        Ok(false)
    }

    /// Records a command as applied, and makes a snapshot if enough data followed the last one.
    pub(super) fn applied(&mut self, done: Prefix) -> Result<()> {
        let interval = self.options.keep_interval_bytes;
        let bytes = self.report.bytes;
        let Some(resumable) = self.building.as_mut().and_then(|building| building.resumable.as_mut()) else {
            return Ok(());
        };
        if resumable.skips_to.is_some() {
            return Ok(());
        }
        resumable.done = done;
        if bytes.saturating_sub(resumable.kept_at_bytes) >= interval {
            resumable.kept_at_bytes = bytes;
            self.keep().map_err(Error::GoOn)?;
        }
        Ok(())
    }

    /// Makes a snapshot from which the receipt can resume, and deletes the last one.
    fn keep(&mut self) -> Result<(), Cause> {
        let fs = self.volume.by_paths().file_system();
        let own = self.volume.by_paths().file_system().subvolumes().ok_or(vfs::Error::from(Errno::EOPNOTSUPP))?;
        let Some(Building { target, sent, is_snapshot, resumable: Some(resumable), .. }) = &mut self.building else {
            return Ok(());
        };
        // Late flags are set now, so that the note need not record them.
        target.complete()?;
        let note = note_of(target, *sent, *is_snapshot, resumable);
        note.write(fs, target.root().node())?;
        let name = leftovers::kept_name(&resumable.wanted, resumable.done.commands);
        if resumable.kept.as_ref().is_some_and(|(kept, _)| *kept == name) {
            return Ok(());
        }
        own.snapshot(target.root().node(), self.dir.node(), &name, SnapshotMode::ReadWrite)?;
        self.volume.by_paths().sync()?;
        if let Some((last, _)) = resumable.kept.replace((name, note.point)) {
            own.delete(self.dir.node(), &last)?;
        }
        Ok(())
    }

    /// Renames a complete subvolume to its final name and deletes its resume snapshots. A crash may have left several.
    pub(super) fn give_name(&self, work: &[u8], wanted: &[u8], (uuid, sent): ([u8; 16], u64)) -> Result<(), Cause> {
        let fs = self.volume.by_paths().file_system();
        let dir = self.dir.node();
        fs.rename(&Caller::default(), (dir, work), (dir, wanted), RenameFlags::NO_REPLACE)?;
        for kept in Leftovers::list(self.volume, &self.dir)?.kept_names(wanted, (uuid, sent)) {
            self.subvolumes()?.delete(dir, kept)?;
        }
        Ok(self.volume.by_paths().sync()?)
    }

    /// Keeps only the state that a failed receipt can resume from. A failed command may be partly done, so in that case
    /// the last snapshot is kept.
    pub(super) fn leave(&mut self, error: &Error) {
        let is_between_commands = matches!(error, Error::Stream(_) | Error::NotWhole { .. });
        let skips = |resumable: &Resumable| resumable.skips_to.is_some();
        let Some(Building { resumable: Some(resumable), .. }) = &self.building else { return };
        if is_between_commands && !skips(resumable) {
            // If no other snapshot can be made, for instance on a full volume, the last one stays.
            let _ = self.keep();
        }
        let Some(Building { resumable: Some(resumable), .. }) = &self.building else { return };
        self.report.left =
            resumable.kept.as_ref().map(|(name, point)| Left { path: self.path_of(name), point: *point });
        // The next receipt deletes what cannot be deleted now.
        if self.discard().is_ok() {
            let _ = self.volume.by_paths().sync();
        }
    }
}

fn note_of(target: &Target, sent: u64, is_snapshot: bool, resumable: &Resumable) -> Note {
    let Resumable { version, done: prefix, .. } = *resumable;
    let point = ResumePoint { uuid: target.uuid, ctransid: sent, version, prefix };
    Note { point, is_snapshot }
}
