//! Makes random trees of subvolumes, snapshots of snapshots, and changes of their contents, and compares them with a
//! model. Called by `testkit/tests/subvolumes.rs` and `cargo trials subvolumes`.
//!
//! The property test of every format ([`crate::property`]) makes few subvolumes among many files. Here it is the other
//! way round: subvolumes lie in subvolumes, are copied as a whole with those that they contain, closed, opened, moved,
//! chosen as the default and deleted. After each commit the trees equal the model's, so does the list of subvolumes,
//! and `btrfs check`, if it is installed, finds no error.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use btrfs::{MakeOptions, TreeId, Volume};
use vfs::SnapshotMode;
use vfs::file_system::{AllocateFlags, RenameFlags};
use vfs_conformance::model::{Model, Operation};
use vfs_conformance::property::{compare_trees, drive, is_full, is_refusal};

use crate::Random;
use crate::reference::{self, Checked};

/// Length of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Operations of a run.
    pub operations: u64,
    /// Commits come after as many operations on average.
    pub commit_every: u64,
    /// Size of the image.
    pub image_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { operations: 200, commit_every: 12, image_bytes: 256 << 20 }
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Operations that succeeded on both sides.
    pub done: u64,
    /// Operations that failed on both sides.
    pub refused: u64,
    /// Commits after which everything was compared.
    pub commits: u64,
    /// Of those, how often `btrfs check` looked.
    pub checked: u64,
    /// Subvolumes and snapshots that were made.
    pub made: u64,
}

/// More are not made before some are deleted.
const SUBVOLUMES_MAX: usize = 40;
/// Files and directories that a subvolume has names for.
const NAMES: u64 = 6;
const FILE_BYTES_MAX: u64 = 96 << 10;
/// Operations after which the image is closed and opened again, on average.
const REOPEN_EVERY: u64 = 40;

/// A subvolume as it has to be.
#[derive(Debug, Clone)]
struct Member {
    path: PathBuf,
    id: TreeId,
    uuid: [u8; 16],
    /// UUID of its source.
    parent_uuid: [u8; 16],
    frozen: bool,
}

struct Run<'a> {
    image: &'a Path,
    random: Random,
    volume: Volume,
    model: Model,
    members: Vec<Member>,
    default: TreeId,
    report: Report,
    story: Vec<String>,
}

/// Runs one seed on a fresh image in `folder`.
///
/// # Errors
/// The first difference; the image is kept then and named.
pub fn run(seed: u64, settings: &Settings, folder: &Path) -> Result<Report> {
    let image = folder.join(format!("lineage-{seed}.img"));
    let report = run_on(seed, settings, &image).with_context(|| {
        format!("seed {seed} ({} operations), image kept: {}", settings.operations, image.display())
    })?;
    std::fs::remove_file(&image)?;
    Ok(report)
}

fn run_on(seed: u64, settings: &Settings, image: &Path) -> Result<Report> {
    let mut random = Random::new(seed ^ 0x0051_b1e5);
    let nodesize = random.pick(&[4096, 16_384, 65_536]).copied().unwrap_or(16_384);
    let make = MakeOptions { size: Some(settings.image_bytes), nodesize, ..MakeOptions::default() };
    Volume::make(image, &make)?.close()?;
    let volume = open(image)?;
    let mut run = Run {
        image,
        random,
        volume,
        model: Model::new(),
        members: Vec::new(),
        default: TreeId::FS,
        report: Report::default(),
        story: Vec::new(),
    };
    for number in 1..=settings.operations {
        run.step().with_context(|| run.told(number))?;
        if run.random.one_in(REOPEN_EVERY) {
            run = run.reopen()?;
        }
        if run.random.one_in(settings.commit_every) || number == settings.operations {
            run.commit().with_context(|| run.told(number))?;
        }
    }
    Ok(run.report)
}

/// Paths begin at the top level, whatever the default is.
fn open(image: &Path) -> Result<Volume> {
    Ok(Volume::options().subvolume_id(TreeId::FS).open(image)?)
}

impl Run<'_> {
    fn told(&self, number: u64) -> String {
        let from = self.story.len().saturating_sub(12);
        let last = self.story.get(from..).unwrap_or_default();
        format!("operation {number}; the last ones:\n    {}", last.join("\n    "))
    }

    fn step(&mut self) -> Result<()> {
        let crowded = self.members.len() >= SUBVOLUMES_MAX;
        match self.random.below(100) {
            0..10 if !crowded => self.create(),
            10..26 if !crowded => self.snapshot(),
            26..31 if !crowded => self.snapshot_all(),
            0..31 => self.delete_all(),
            31..38 => self.delete(),
            38..42 => self.delete_all(),
            42..50 => self.rename(),
            50..58 => self.freeze(),
            58..62 => self.choose_default(),
            _ => self.write(),
        }
    }

    /// A subvolume's path, or the top level's.
    fn any_container(&mut self) -> PathBuf {
        let index = self.random.index(self.members.len() + 1);
        self.members.get(index).map_or_else(|| PathBuf::from("/"), |member| member.path.clone())
    }

    fn any_member(&mut self) -> Option<Member> {
        let index = self.random.index(self.members.len().max(1));
        self.members.get(index).cloned()
    }

    fn new_path(&mut self) -> PathBuf {
        let mut container = self.any_container();
        let dir = format!("d{}", self.random.below(NAMES));
        if self.random.one_in(3) && self.is_dir(&container.join(&dir)) {
            container.push(dir);
        }
        container.join(format!("s{}", self.random.below(12)))
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.volume.symlink_metadata(path).is_ok_and(|found| found.kind == vfs::file_system::NodeKind::Directory)
    }

    /// Does an operation on both; whether it succeeded.
    fn both(&mut self, operation: &Operation) -> Result<bool> {
        self.story.push(format!("{operation:?}"));
        let found = drive(&self.volume, operation);
        if let Err(error) = &found
            && (is_full(error) || !is_refusal(error))
        {
            bail!("{operation:?}: {error}");
        }
        match (found, self.model.apply(operation)) {
            (Ok(()), Ok(())) => self.report.done += 1,
            (Err(_), Err(_)) => {
                self.report.refused += 1;
                return Ok(false);
            }
            (Ok(()), Err(expected)) => bail!("{operation:?} succeeds, but should fail with {expected:?}"),
            (Err(error), Ok(())) => return Err(error).context("fails, but should succeed"),
        }
        Ok(true)
    }

    fn learn(&mut self, path: &Path, parent_uuid: [u8; 16], frozen: bool) -> Result<TreeId> {
        let id = self.volume.subvolume_at(path)?;
        let uuid = self.volume.subvolume_info(id)?.uuid;
        self.members.push(Member { path: path.to_owned(), id, uuid, parent_uuid, frozen });
        self.report.made += 1;
        Ok(id)
    }

    fn create(&mut self) -> Result<()> {
        let path = self.new_path();
        if self.both(&Operation::CreateSubvolume { path: path.clone() })? {
            self.learn(&path, [0; 16], false)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        let Some(source) = self.any_member() else { return self.create() };
        let path = self.new_path();
        self.snapshot_to(&source, &path)?;
        Ok(())
    }

    fn snapshot_to(&mut self, source: &Member, path: &Path) -> Result<bool> {
        let frozen = self.random.one_in(3);
        let mode = if frozen { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        self.snapshot_as(source, path, mode)
    }

    fn snapshot_as(&mut self, source: &Member, path: &Path, mode: SnapshotMode) -> Result<bool> {
        let operation = Operation::Snapshot { source: source.path.clone(), path: path.to_owned(), mode };
        let done = self.both(&operation)?;
        if done {
            self.learn(path, source.uuid, mode == SnapshotMode::ReadOnly)?;
        }
        Ok(done)
    }

    /// A snapshot of a subvolume and of all in it, which is closed at the end or not.
    fn snapshot_all(&mut self) -> Result<()> {
        let Some(source) = self.any_member() else { return self.create() };
        let path = self.new_path();
        let nested = self.nested(&source.path);
        if !self.snapshot_as(&source, &path, SnapshotMode::ReadWrite)? {
            return Ok(());
        }
        let mut made = vec![path.clone()];
        for one in nested {
            let dest = path.join(one.path.strip_prefix(&source.path)?);
            ensure!(self.both(&Operation::RemoveDir { path: dest.clone() })?, "no stand-in at {}", dest.display());
            ensure!(self.snapshot_as(&one, &dest, SnapshotMode::ReadWrite)?, "no snapshot at {}", dest.display());
            made.push(dest);
        }
        if self.random.one_in(2) {
            for path in made.iter().rev() {
                self.set_frozen(path, true)?;
            }
        }
        Ok(())
    }

    /// The subvolumes in another, containers first.
    fn nested(&self, path: &Path) -> Vec<Member> {
        let is_below = |member: &&Member| member.path != path && member.path.starts_with(path);
        let mut nested: Vec<Member> = self.members.iter().filter(is_below).cloned().collect();
        nested.sort_by_key(|member| member.path.components().count());
        nested
    }

    fn delete(&mut self) -> Result<()> {
        let Some(member) = self.any_member() else { return Ok(()) };
        self.delete_one(&member).map(drop)
    }

    fn delete_one(&mut self, member: &Member) -> Result<bool> {
        let operation = Operation::DeleteSubvolume { path: member.path.clone() };
        if member.id == self.default {
            ensure!(drive(&self.volume, &operation).is_err(), "the default subvolume was deleted");
            return Ok(false);
        }
        let done = match self.random.one_in(2) {
            true => self.both(&operation)?,
            false => self.delete_by_number(member, &operation)?,
        };
        if done {
            self.members.retain(|other| other.id != member.id);
        }
        Ok(done)
    }

    fn delete_by_number(&mut self, member: &Member, operation: &Operation) -> Result<bool> {
        self.story.push(format!("{operation:?} by its number {}", member.id.0));
        let found = self.volume.delete_subvolume_of(member.id);
        match (found, self.model.apply(operation)) {
            (Ok(()), Ok(())) => Ok(true),
            (Err(_), Err(_)) => Ok(false),
            (found, expected) => bail!("{found:?}, not {expected:?}"),
        }
    }

    fn delete_all(&mut self) -> Result<()> {
        let Some(member) = self.any_member() else { return Ok(()) };
        let nested = self.nested(&member.path);
        for one in nested.iter().rev().chain(std::iter::once(&member)) {
            self.delete_one(one)?;
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let Some(member) = self.any_member() else { return Ok(()) };
        let to = match member.frozen {
            // Linux refuses to move a directory elsewhere that cannot be written to: libraries are not asked that.
            true => member.path.with_file_name(format!("s{}", self.random.below(12))),
            false => self.new_path(),
        };
        // A rename replaces an empty subvolume only by a directory.
        if self.volume.symlink_metadata(&to).is_ok() {
            return Ok(());
        }
        let from = member.path;
        let operation = Operation::Rename { from: from.clone(), to: to.clone(), flags: RenameFlags::empty() };
        if self.both(&operation)? {
            for member in self.members.iter_mut().filter(|member| member.path.starts_with(&from)) {
                member.path = match member.path.strip_prefix(&from) {
                    Ok(rest) if rest.as_os_str().is_empty() => to.clone(),
                    Ok(rest) => to.join(rest),
                    Err(error) => return Err(error.into()),
                };
            }
        }
        Ok(())
    }

    fn freeze(&mut self) -> Result<()> {
        let Some(member) = self.any_member() else { return Ok(()) };
        self.set_frozen(&member.path, !member.frozen)
    }

    fn set_frozen(&mut self, path: &Path, frozen: bool) -> Result<()> {
        self.story.push(format!("set_frozen {} {frozen}", path.display()));
        self.volume.set_subvolume_read_only(path, frozen)?;
        ensure!(self.model.set_frozen(path, frozen).is_ok(), "the model knows no subvolume {}", path.display());
        for member in self.members.iter_mut().filter(|member| member.path == path) {
            member.frozen = frozen;
        }
        Ok(())
    }

    fn choose_default(&mut self) -> Result<()> {
        let path = self.any_container();
        self.story.push(format!("default {}", path.display()));
        self.volume.set_default_subvolume(&path)?;
        self.default = self.volume.subvolume_at(&path)?;
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let container = self.any_container();
        let file = container.join(format!("f{}", self.random.below(NAMES)));
        let other = self.any_container().join(format!("f{}", self.random.below(NAMES)));
        let dir = container.join(format!("d{}", self.random.below(NAMES)));
        let (offset, len) = (self.random.below(FILE_BYTES_MAX), self.random.skewed(FILE_BYTES_MAX).max(1));
        let operation = match self.random.below(20) {
            0..3 => Operation::Create { path: file },
            3 => Operation::CreateDir { path: dir },
            4 => Operation::Remove { path: file },
            5 => Operation::SetLen { path: file, len: offset },
            6 => Operation::Link { original: file, path: dir.join("again") },
            7 => Operation::RemoveDir { path: dir },
            8 => {
                let mode = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
                Operation::Allocate { path: file, mode, offset, len }
            }
            9 => {
                let len = self.model.lookup(&other).and_then(|node| node.content()).map_or(0, |found| found.len());
                if len == 0 || other == file {
                    return Ok(());
                }
                Operation::Reflink { source: other, source_offset: 0, path: file, offset: 0, len }
            }
            _ => Operation::Write { path: file, offset, len, seed: self.random.number() },
        };
        self.both(&operation).map(drop)
    }

    fn reopen(mut self) -> Result<Self> {
        self.story.push("re-open".to_owned());
        let Self { image, random, volume, model, members, default, report, story } = self;
        // The image is locked as long as it is open.
        volume.close()?;
        Ok(Self { image, random, volume: open(image)?, model, members, default, report, story })
    }

    fn commit(&mut self) -> Result<()> {
        self.volume.sync()?;
        self.report.commits += 1;
        compare_trees(&self.volume, &self.model, Path::new("/"))?;
        self.compare_list()?;
        if reference::check(self.image)? == Checked::Clean {
            self.report.checked += 1;
        }
        Ok(())
    }

    fn compare_list(&self) -> Result<()> {
        let mut found = self.volume.subvolumes()?;
        let mut wanted: Vec<&Member> = self.members.iter().collect();
        found.sort_by_key(|one| one.id);
        wanted.sort_by_key(|one| one.id);
        ensure!(found.len() == wanted.len(), "{} subvolumes, not {}", found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            let path = wanted.path.strip_prefix("/").unwrap_or(&wanted.path);
            let same = found.path.as_bytes() == path.as_os_str().as_bytes()
                && (found.id, found.uuid, found.read_only) == (wanted.id, wanted.uuid, wanted.frozen)
                && found.parent_uuid == wanted.parent_uuid;
            ensure!(same, "{found:?}, not {wanted:?}");
        }
        let default = self.volume.default_subvolume()?;
        ensure!(default == self.default, "the default is {}, not {}", default.0, self.default.0);
        Ok(())
    }
}
