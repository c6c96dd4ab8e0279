//! [`Receiver`]: reads streams and builds their subvolumes.
//!
//! Invariant: a subvolume is marked as received only when its stream ended (by the end command, or because the next
//! subvolume begins) and no command failed. A resumable subvolume is built under another name and renamed after that;
//! if a crash comes in between, the next receipt of the stream renames it.
//!
//! Failure: an [`Error`]; the unfinished subvolume stays for `discard` or for [`resume`]. Callers: the command
//! `receive`, backups, programs.

mod resume;

use crate::error::{Cause, Error, Result};
use crate::node_ref::NodeRef;
use crate::note;
use crate::options::{Notices, Options};
use crate::origins::{Origins, Wanted};
use crate::path;
use crate::subvolume::Target;
use btrfs::{Generation, Received, TreeId, Volume};
use btrfs_stream::{Command, Decoder, Prefix, ResumePoint, Version};
use checking::Watch;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portable::{OsStrExt as _, with_slashes};
use vfs::file_system::{Caller, Errno, Follow, SnapshotMode, Subvolumes};

/// A completely received subvolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSubvolume {
    /// Its number.
    pub id: TreeId,
    /// Its path.
    pub path: PathBuf,
    /// Its received UUID.
    pub uuid: [u8; 16],
    /// True if it began as a snapshot.
    pub is_snapshot: bool,
}

/// The resumable remainder of a failed receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The unfinished subvolume.
    pub path: PathBuf,
    /// How far the stream was applied to it.
    pub point: ResumePoint,
}

/// The results of a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Completely received subvolumes.
    pub subvolumes: Vec<ReceivedSubvolume>,
    /// Subvolumes with failed commands, if failures were allowed. They stay writable, without a received UUID.
    pub incomplete: Vec<PathBuf>,
    /// Subvolumes of the streams that existed already, received from the same state (resumable receipts only).
    pub present: Vec<PathBuf>,
    /// The point from which the failed receipt can resume.
    pub left: Option<Left>,
    /// Commands applied.
    pub commands: u64,
    /// Bytes read from the streams.
    pub bytes: u64,
}

/// Receives streams to a directory of a volume.
pub struct Receiver<'v> {
    volume: &'v Volume,
    dir: Arc<NodeRef>,
    dir_path: PathBuf,
    options: Options,
    origins: Origins,
    building: Option<Building>,
    report: Report,
    failures: u64,
    /// True while skipping a stream that was received before.
    passes: bool,
}

/// The subvolume being built, and its data from the stream.
struct Building {
    target: Target,
    name: Vec<u8>,
    sent: u64,
    is_snapshot: bool,
    resumable: Option<Resumable>,
}

/// State of a resumable receipt.
struct Resumable {
    /// Final name of the subvolume.
    wanted: Vec<u8>,
    version: Version,
    /// The commands applied.
    done: Prefix,
    /// Point up to which the subvolume already has the commands of the stream.
    skips_to: Option<ResumePoint>,
    /// Name and point of the last snapshot.
    kept: Option<(Vec<u8>, ResumePoint)>,
    /// Position in the stream when it was made.
    kept_at_bytes: u64,
}

impl<'v> Receiver<'v> {
    /// A receiver that makes subvolumes in the directory at `dir`.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub fn new(volume: &'v Volume, dir: &Path, options: Options) -> Result<Self> {
        let fs = volume.by_paths().file_system();
        let refused = |source| Error::Directory { path: dir.display().to_string(), source };
        let held =
            NodeRef::new(fs, fs.resolve(&with_slashes(dir.as_os_str().as_bytes()), Follow::Last).map_err(refused)?);
        if !held.attr().is_dir() {
            return Err(refused(Errno::ENOTDIR.into()));
        }
        Ok(Self {
            volume,
            dir: Arc::new(held),
            dir_path: dir.to_owned(),
            options,
            origins: Origins::default(),
            building: None,
            report: Report::default(),
            failures: 0,
            passes: false,
        })
    }

    /// Results so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Path of the incomplete subvolume. It stays there after a failure.
    #[must_use]
    pub fn unfinished(&self) -> Option<PathBuf> {
        self.building.as_ref().map(|building| self.path_of(&building.name))
    }

    /// Deletes the incomplete subvolume.
    ///
    /// # Errors
    /// [`Error::Discard`].
    pub fn discard(&mut self) -> Result<()> {
        let Some(building) = self.building.take() else {
            return Ok(());
        };
        let name = building.name;
        drop(building.target);
        self.subvolumes().and_then(|own| own.delete(self.dir.node(), &name)).map_err(Error::Discard)
    }

    /// Receives the streams of `input`, which should be buffered. Complete subvolumes are durable when this returns,
    /// also after a failure. `watch` gets the bytes of the stream and the nodes that were made; it may cancel the
    /// receipt between two commands.
    ///
    /// # Errors
    /// Every [`Error`]. The subvolume that was being built then stays as it is: [`Receiver::unfinished`].
    pub fn receive(&mut self, input: impl Read, watch: &dyn Watch, notices: &mut dyn Notices) -> Result<()> {
        let received = self.receive_all(input, watch, notices);
        match received {
            Err(error) if self.options.resumable => {
                self.leave(&error);
                Err(error)
            }
            received => received,
        }
    }

    fn receive_all(&mut self, input: impl Read, watch: &dyn Watch, notices: &mut dyn Notices) -> Result<()> {
        let mut decoder = Decoder::open(input)?.ok_or(Error::Empty)?;
        loop {
            self.receive_one(&mut decoder, watch, notices)?;
            if self.options.stops_at_end || !decoder.next_stream()? {
                break;
            }
        }
        if self.failures > 0 { Err(Error::Failures(self.failures)) } else { Ok(()) }
    }

    /// Receives one stream up to its end command.
    fn receive_one(
        &mut self,
        decoder: &mut Decoder<impl Read>,
        watch: &dyn Watch,
        notices: &mut dyn Notices,
    ) -> Result<()> {
        let version = decoder.version();
        match decoder.rest_of() {
            Some(point) if self.options.resumable => self.go_on(point).map_err(Error::GoOn)?,
            Some(_) => return Err(Error::Rest),
            None => {}
        }
        loop {
            if watch.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (at, before) = (decoder.position(), decoder.taken());
            let Some(command) = decoder.command()? else {
                return Err(Error::NotWhole { at });
            };
            let is_end = command == Command::End;
            let begins = matches!(command, Command::Subvol { .. } | Command::Snapshot { .. });
            // A stream may begin another subvolume without an end command (`send -e`).
            self.passes &= !begins;
            let skips = self.is_there_already(before, is_end)?;
            let applied = if skips { Ok(()) } else { self.apply(&command, version, notices) };
            let applied = applied.map_err(|cause| Error::Command {
                at,
                name: command.name(),
                path: command.path().unwrap_or_default().to_vec(),
                cause,
            });
            let is_made = !skips && applied.is_ok() && is_making(&command);
            self.report.bytes = decoder.position();
            watch.add_bytes(self.report.bytes.saturating_sub(at));
            watch.add_inodes(u64::from(is_made));
            match applied {
                Ok(()) if skips => {}
                Ok(()) => self.report.commands = self.report.commands.saturating_add(1),
                Err(error) => self.failed(error, begins || is_end || self.options.resumable, notices)?,
            }
            if is_end {
                self.passes = false;
                return Ok(());
            }
            if !skips {
                self.applied(decoder.taken())?;
            }
        }
    }

    /// Counts a failure. Returns the error if the limit is reached, or if no later command makes sense without this
    /// one.
    fn failed(&mut self, error: Error, is_fatal: bool, notices: &mut dyn Notices) -> Result<()> {
        let Some(building) = self.building.as_mut().filter(|_| !is_fatal) else {
            return Err(error);
        };
        building.target.failures = building.target.failures.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        if self.options.errors_max > 0 && self.failures >= self.options.errors_max {
            return Err(error);
        }
        notices.failed(&error);
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>, version: Version, notices: &mut dyn Notices) -> Result<(), Cause> {
        match *command {
            Command::Subvol { path, uuid, ctransid } => {
                self.complete()?;
                let name = path::subvolume_name(path)?;
                check_uuid(uuid)?;
                notices.begun(name, false);
                if self.options.resumable {
                    return self.begin_resumable(name, (uuid, ctransid, version), None);
                }
                self.subvolumes()?.create(&Caller::default(), self.dir.node(), name)?;
                self.begin(name, uuid, ctransid, false)
            }
            Command::Snapshot { path, uuid, ctransid, parent_uuid, parent_ctransid } => {
                self.complete()?;
                let name = path::subvolume_name(path)?;
                check_uuid(uuid)?;
                let parent =
                    self.origin(Wanted { uuid: parent_uuid, sent: parent_ctransid, role: "parent" }, notices)?;
                notices.begun(name, true);
                if self.options.resumable {
                    return self.begin_resumable(name, (uuid, ctransid, version), Some(&parent));
                }
                let mode = SnapshotMode::ReadWrite;
                self.subvolumes()?.snapshot(parent.node(), self.dir.node(), name, mode)?;
                self.begin(name, uuid, ctransid, true)
            }
            Command::End => self.complete(),
            Command::Clone(ref range) => {
                let target = &self.building.as_ref().ok_or(Cause::NoSubvolume)?.target;
                let (uuid, sent) = (range.from_uuid, range.from_ctransid);
                let origin = match uuid == target.uuid {
                    true => Arc::clone(target.root()),
                    false => self.origin(Wanted { uuid, sent, role: "source of a clone" }, notices)?,
                };
                let target = &mut self.building.as_mut().ok_or(Cause::NoSubvolume)?.target;
                target.with_flags_off(command, |target| target.share(range, &origin))
            }
            _ => {
                let building = self.building.as_mut().ok_or(Cause::NoSubvolume)?;
                building.target.apply(command)
            }
        }
    }

    /// Finds an origin of the stream.
    fn origin(&mut self, wanted: Wanted, notices: &mut dyn Notices) -> Result<Arc<NodeRef>, Cause> {
        let mut warn = |cause: &Cause| notices.warned(cause);
        let warn: Option<&mut dyn FnMut(&Cause)> = if self.options.takes_changed { Some(&mut warn) } else { None };
        self.origins.find(self.volume, wanted, warn)
    }

    /// Makes the new subvolume the target of the following commands.
    fn begin(&mut self, name: &[u8], uuid: [u8; 16], sent: u64, is_snapshot: bool) -> Result<(), Cause> {
        let fs = self.volume.by_paths().file_system();
        let root = NodeRef::new(fs, fs.lookup(self.dir.node(), name)?);
        let target = Target::new(fs, root, uuid, self.options);
        self.building = Some(Building { target, name: name.to_vec(), sent, is_snapshot, resumable: None });
        Ok(())
    }

    /// Marks the subvolume being built as received, if there is one and none of its commands failed.
    fn complete(&mut self) -> Result<(), Cause> {
        let Some(building) = &mut self.building else {
            return Ok(());
        };
        building.target.complete()?;
        if building.resumable.is_some() {
            note::remove(self.volume.by_paths().file_system(), building.target.root().node())?;
        }
        if building.target.failures == 0 {
            let id = TreeId(building.target.number());
            let received = Received { uuid: building.target.uuid, sent: Generation(building.sent) };
            self.volume.set_subvolume_received(id, &received)?;
        }
        let Some(mut building) = self.building.take() else {
            return Ok(());
        };
        self.origins.forget();
        if let Some(resumable) = building.resumable.take() {
            self.give_name(&building.name, &resumable.wanted, (building.target.uuid, building.sent))?;
            building.name = resumable.wanted;
        }
        if building.target.failures > 0 {
            self.report.incomplete.push(self.path_of(&building.name));
        } else {
            self.report.subvolumes.push(ReceivedSubvolume {
                id: TreeId(building.target.number()),
                path: self.path_of(&building.name),
                uuid: building.target.uuid,
                is_snapshot: building.is_snapshot,
            });
        }
        Ok(())
    }

    fn path_of(&self, name: &[u8]) -> PathBuf {
        self.dir_path.join(OsStr::from_bytes(name))
    }

    fn subvolumes(&self) -> vfs::Result<&dyn Subvolumes> {
        self.volume.by_paths().file_system().subvolumes().ok_or_else(|| Errno::EOPNOTSUPP.into())
    }
}

/// Refuses the nil UUID, which marks subvolumes that were never received.
fn check_uuid(uuid: [u8; 16]) -> Result<(), Cause> {
    if uuid == [0; 16] { Err(Cause::Value { what: "the UUID of a subvolume", found: 0 }) } else { Ok(()) }
}

fn is_making(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mknod(_)
            | Command::Mkfifo(_)
            | Command::Mksock(_)
            | Command::Symlink { .. }
    )
}
