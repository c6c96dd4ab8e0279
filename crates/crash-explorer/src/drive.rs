//! Runs the steps of a workload on a volume, and tells the oracle the effect of each step and what each sync promises.
//! Called by `workload` and `fault_runs`.

use super::history::{Attrs, Floors, Ino, Slot, Versions};
use super::observe::{observe, with_flags};
use super::oracle::{Oracle, Thing};
use super::state::{ino_of, read_thing};
use super::step::{CloneHow, Reserve, Step, WriteHow};
use super::tape::{TapeDevice, Time};
use crate::number::to_usize;
use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use vfs::file_system::{AllocateFlags, Errno, NodeKind, RenameFlags, SetAttr, Time as Timestamp, XattrMode};
use vfs::{Blame, File, FileOptions, Layout, Size, SnapshotMode, Times, Trim, Volume};

/// Most entries of a directory of a workload: the explorer reads all of them again in every state.
const ENTRIES_MAX: usize = 10_000;

/// A volume on which a workload runs, the device that records its writes, and the oracle of its contents.
pub(super) struct Scene {
    pub(super) volume: Volume,
    pub(super) device: Arc<TapeDevice>,
    pub(super) oracle: Mutex<Oracle>,
    /// Files that are kept open.
    held: Mutex<BTreeMap<Ino, Arc<File>>>,
}

impl Scene {
    /// Begins with the contents of the directories of `paths`.
    pub(super) fn new(volume: Volume, device: Arc<TapeDevice>, paths: &BTreeSet<String>) -> Result<Self> {
        let mut oracle = Oracle::default();
        let top = volume.symlink_metadata("/")?;
        oracle.top = ino_of(&top);
        let mut all: BTreeSet<&str> = BTreeSet::from([""]);
        for path in paths {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            all.extend(ends.filter_map(|at| path.get(..at)));
        }
        // A directory comes before its contents.
        let mut links = BTreeMap::new();
        for path in all {
            watch(&volume, &mut oracle, &mut links, path).with_context(|| format!("/{path}"))?;
        }
        for (ino, thing) in &mut oracle.things {
            let names = thing.names.last().map_or(0, |names| names.len());
            thing.is_complete = links.get(ino).copied() == u32::try_from(names).ok();
        }
        oracle.at_begin = oracle.things.keys().copied().collect();
        Ok(Self { volume, device, oracle: Mutex::new(oracle), held: Mutex::default() })
    }

    /// Runs a step. The inner error is a refusal by the volume, which then has changed nothing.
    pub(super) fn run(&self, step: &Step, fill: u64) -> Result<Result<(), vfs::Error>> {
        let began = self.device.now();
        if step.is_sync() {
            return self.sync(step);
        }
        let mut touched = self.oracle.lock().touched(step);
        match self.apply(step, fill) {
            Ok(()) => {}
            Err(error) if is_refusal(&error) => return Ok(Err(error)),
            Err(error) => return Err(error).with_context(|| step.to_string()),
        }
        self.note(step, fill, began).with_context(|| step.to_string())?;
        let mut oracle = self.oracle.lock();
        touched.extend(oracle.touched(step));
        observe(&self.volume, &mut oracle, step, &touched, began).with_context(|| step.to_string())?;
        Ok(Ok(()))
    }

    fn sync(&self, step: &Step) -> Result<Result<(), vfs::Error>> {
        let (floors, result) = match step {
            Step::Fsync { path } | Step::Fdatasync { path } => {
                let file = match self.open_to_sync(path) {
                    Ok(file) => file,
                    Err(error) if is_refusal(&error) => return Ok(Err(error)),
                    Err(error) => return Err(error.into()),
                };
                let is_full = matches!(step, Step::Fsync { .. });
                let floors = {
                    let oracle = self.oracle.lock();
                    match oracle.at(path) {
                        None => Floors::default(),
                        Some(ino) if is_full => oracle.floors_of(ino),
                        Some(ino) => oracle.floors_of_data(ino),
                    }
                };
                (floors, if is_full { file.sync_all() } else { file.sync_data() })
            }
            _ => (self.oracle.lock().floors_of_all(), self.volume.sync()),
        };
        if let Err(error) = result {
            return Err(error).with_context(|| step.to_string());
        }
        self.oracle.lock().promise(self.device.now(), floors);
        Ok(Ok(()))
    }

    /// Opens a file or directory for a sync; `ENOENT` if the path is a symbolic link, since that would sync its target.
    fn open_to_sync(&self, path: &str) -> Result<File, vfs::Error> {
        let oracle_ino = self.oracle.lock().at(path);
        let file = FileOptions::new().read(true).open(&self.volume, from_top(path))?;
        let metadata = file.metadata()?;
        if oracle_ino == Some(ino_of(&metadata)) { Ok(file) } else { Err(Errno::ENOENT.into()) }
    }

    /// A file that is kept open, or opened now.
    fn open(&self, path: &str) -> Result<Arc<File>, vfs::Error> {
        let ino = self.oracle.lock().at(path);
        if let Some(file) = ino.and_then(|ino| self.held.lock().get(&ino).cloned()) {
            return Ok(file);
        }
        FileOptions::new().read(true).write(true).open(&self.volume, from_top(path)).map(Arc::new)
    }

    fn apply(&self, step: &Step, fill: u64) -> Result<(), vfs::Error> {
        let volume = &self.volume;
        match step {
            Step::Create { path } => FileOptions::new().write(true).create(true).open(volume, from_top(path)).map(drop),
            Step::CreateDir { path } => volume.create_dir(from_top(path)),
            Step::Write { how, path, offset, len } => {
                let file = self.open(path)?;
                file.write_at(&content(fill, *offset, *len), *offset)?;
                if *how == WriteHow::Direct {
                    // The query for extents makes the volume write the data. A format without the query need not write:
                    // the step promises nothing.
                    match file.extents() {
                        Err(error) if error.errno() == Errno::EOPNOTSUPP => {}
                        written => drop(written?),
                    }
                }
                Ok(())
            }
            Step::Allocate { reserve, path, offset, len } => {
                let mode = match reserve {
                    Reserve::Grow => AllocateFlags::empty(),
                    Reserve::KeepSize => AllocateFlags::KEEP_SIZE,
                    Reserve::Punch => AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE,
                    Reserve::Zero => AllocateFlags::ZERO_RANGE,
                };
                self.open(path)?.allocate(mode, *offset, *len)
            }
            Step::Link { original, path } => volume.hard_link(from_top(original), from_top(path)),
            Step::Symlink { target, path } => volume.symlink(target, from_top(path)),
            Step::Remove { path } => volume.remove_file(from_top(path)),
            Step::RemoveDir { path } => volume.remove_dir(from_top(path)),
            Step::Rename { from, to } => volume.rename(from_top(from), from_top(to)),
            Step::Truncate { path, len } => self.open(path)?.set_len(*len),
            Step::SetXattr { path, name, value } => volume.set_xattr(from_top(path), name, value, XattrMode::Either),
            Step::RemoveXattr { path, name } => volume.remove_xattr(from_top(path), name),
            other => self.apply_more(other, fill),
        }
    }

    fn apply_more(&self, step: &Step, fill: u64) -> Result<(), vfs::Error> {
        let volume = &self.volume;
        let set = |path: &str, changes: SetAttr| volume.set_attributes(from_top(path), &changes);
        match step {
            Step::Chmod { path, mode } => set(path, SetAttr { permissions: Some(*mode), ..SetAttr::default() }),
            Step::Chown { path, uid, gid } => {
                set(path, SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() })
            }
            Step::Utimes { path, atime, mtime } => {
                let [atime, mtime] = [atime, mtime].map(|sec| Some(Timestamp::new(*sec, 0)));
                volume.set_times(from_top(path), &Times { atime, mtime, ..Times::default() })
            }
            Step::Chattr { path, flags } => {
                let old = volume.symlink_metadata(from_top(path))?.flags;
                volume.set_flags(from_top(path), with_flags(old, flags))
            }
            Step::Clone { how, source, source_offset, path, offset, len } => {
                let (from, to) = (self.open(source)?, self.open(path)?);
                match how {
                    CloneHow::Reflink => to.reflink(&from, *source_offset, *offset, *len),
                    CloneHow::Copy => copy(&from, *source_offset, &to, *offset, *len),
                }
            }
            Step::Defrag { path, compression } => {
                let wanted = Layout { compression: *compression, ..Layout::default() };
                volume.defragment(from_top(path), &wanted).map(drop)
            }
            Step::Trim => volume.trim(&Trim::default(), &mut |_, _| ()).map(drop),
            Step::Resize { bytes } => volume.resize(bytes.map_or(Size::Least, Size::Bytes)).map(drop),
            Step::Order { name, value } => volume.order(name, value).and_then(|()| volume.sync()),
            Step::Unnamed { path, len } => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                let file = File::unnamed(volume, from_top(parent))?;
                file.write_at(&content(fill, 0, *len), 0)?;
                file.link(from_top(path))
            }
            Step::Exchange { from, to } => volume.rename_with(from_top(from), from_top(to), RenameFlags::EXCHANGE),
            Step::Hold { path } => {
                let file = self.open(path)?;
                self.held.lock().insert(ino_of(&file.metadata()?), file);
                Ok(())
            }
            Step::Release => {
                let held = std::mem::take(&mut *self.held.lock());
                drop(held);
                Ok(())
            }
            Step::Subvolume { path } => volume.create_subvolume(from_top(path)).map(drop),
            Step::Snapshot { source, path } => {
                volume.snapshot(from_top(source), from_top(path), SnapshotMode::ReadWrite).map(drop)
            }
            Step::DeleteSubvolume { path } => volume.delete_subvolume(from_top(path)),
            // `apply` handles the other steps, and `sync` the sync steps.
            _ => Ok(()),
        }
    }

    /// Records the effect of a step in the oracle.
    fn note(&self, step: &Step, fill: u64, began: Time) -> Result<()> {
        let mut oracle = self.oracle.lock();
        match step {
            Step::Create { path } => self.note_new(&mut oracle, path, NodeKind::File, None, began)?,
            Step::CreateDir { path } => self.note_new(&mut oracle, path, NodeKind::Directory, None, began)?,
            Step::Symlink { target, path } => {
                self.note_new(&mut oracle, path, NodeKind::Symlink, Some(target.as_bytes().to_vec()), began)?;
            }
            Step::Write { path, offset, len, .. } if *len > 0 => {
                let bytes = content(fill, *offset, *len);
                oracle.change_data(path, began, |data| overwrite(data, to_usize(*offset), &bytes));
            }
            Step::Allocate { reserve, path, offset, len } => {
                let (start, end) = (to_usize(*offset), to_usize(offset.saturating_add(*len)));
                oracle.change_data(path, began, |data| reserve_range(data, *reserve, start, end));
            }
            Step::Truncate { path, len } => {
                oracle.change_data(path, began, |data| data.resize(to_usize(*len), 0));
            }
            Step::Link { original, path } => {
                let ino = oracle.at(original);
                let slot = known(oracle.slot(path))?;
                oracle.bind(&slot, ino, began);
            }
            Step::Remove { path } | Step::RemoveDir { path } => {
                let slot = known(oracle.slot(path))?;
                oracle.bind(&slot, None, began);
            }
            Step::Rename { from, to } => {
                let (from, to) = (known(oracle.slot(from))?, known(oracle.slot(to))?);
                oracle.rename(&from, &to, began);
            }
            Step::SetXattr { path, name, value } => oracle.change_xattrs(path, began, |xattrs| {
                xattrs.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
            }),
            Step::RemoveXattr { path, name } => oracle.change_xattrs(path, began, |xattrs| {
                xattrs.remove(name.as_bytes());
            }),
            other => self.note_more(&mut oracle, other, fill, began)?,
        }
        Ok(())
    }

    fn note_more(&self, oracle: &mut Oracle, step: &Step, fill: u64, began: Time) -> Result<()> {
        match step {
            Step::Clone { source, source_offset, path, offset, len, .. } => {
                let bytes = oracle.at(source).and_then(|ino| oracle.things.get(&ino)).map(Thing::bytes);
                let bytes = bytes.context("the source was renamed, and its contents were not looked at before")?;
                let start = to_usize(*source_offset).min(bytes.len());
                let end = if *len == 0 { bytes.len() } else { start.saturating_add(to_usize(*len)).min(bytes.len()) };
                oracle.change_data(path, began, |data| overwrite(data, to_usize(*offset), &bytes[start..end]));
            }
            Step::Unnamed { path, len } => {
                self.note_new(oracle, path, NodeKind::File, None, began)?;
                let bytes = content(fill, 0, *len);
                oracle.change_data(path, began, |data| overwrite(data, 0, &bytes));
            }
            Step::Exchange { from, to } => {
                let (from, to) = (known(oracle.slot(from))?, known(oracle.slot(to))?);
                oracle.exchange(&from, &to, began);
            }
            Step::Subvolume { path } => self.note_new(oracle, path, NodeKind::Directory, None, began)?,
            Step::Snapshot { source, path } => {
                let slot = known(oracle.slot(path))?;
                let source = oracle.at(source).context("a snapshot of nothing")?;
                let root = ino_of(&self.volume.symlink_metadata(from_top(path))?);
                oracle.copy_subvolume(source, root.0, began);
                oracle.bind(&slot, Some(root), began);
            }
            Step::DeleteSubvolume { path } => {
                let (slot, root) = (known(oracle.slot(path))?, oracle.at(path));
                oracle.bind(&slot, None, began);
                oracle.forget_subvolume(root.context("no such subvolume")?, began);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_new(
        &self,
        oracle: &mut Oracle,
        path: &str,
        kind: NodeKind,
        target: Option<Vec<u8>>,
        began: Time,
    ) -> Result<()> {
        let slot = known(oracle.slot(path))?;
        if oracle.entry(&slot).is_some() {
            return Ok(());
        }
        let metadata = self.volume.symlink_metadata(from_top(path))?;
        let ino = ino_of(&metadata);
        let thing = Thing { target, ..Thing::new(kind, began, Attrs::of(&metadata)) };
        super::observe::check_new(&thing)?;
        oracle.add(ino, thing);
        oracle.bind(&slot, Some(ino), began);
        Ok(())
    }
}

fn known(slot: Option<Slot>) -> Result<Slot> {
    slot.context("a directory on the way is a symbolic link, which a workload cannot use")
}

/// True when the volume refused a step and goes on as if it had not been asked.
fn is_refusal(error: &vfs::Error) -> bool {
    matches!(error.blame(), Blame::Caller | Blame::Program)
}

/// Paths of a workload start at the top.
pub(super) fn from_top(path: &str) -> std::path::PathBuf {
    Path::new("/").join(path)
}

/// All paths of a volume, of which there are few.
pub(super) fn all_paths(volume: &Volume, folder: &str, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in volume.read_dir(from_top(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_str().context("a name that is not UTF-8")?;
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        if entry.file_type() == NodeKind::Directory {
            all_paths(volume, &path, found)?;
        }
        found.insert(path);
    }
    Ok(())
}

/// Records the node at a path before the workload begins, if there is one.
fn watch(volume: &Volume, oracle: &mut Oracle, links: &mut BTreeMap<Ino, u32>, path: &str) -> Result<()> {
    let parent_is_known = path.rsplit_once('/').is_none_or(|(parent, _)| oracle.at(parent).is_some());
    let Ok(metadata) = volume.symlink_metadata(from_top(path)) else { return Ok(()) };
    if !parent_is_known {
        bail!("a directory on the way is a symbolic link, which a workload cannot use");
    }
    let ino = ino_of(&metadata);
    if oracle.things.contains_key(&ino) {
        return Ok(());
    }
    links.insert(ino, metadata.nlink);
    let found = read_thing(volume, &from_top(path), &metadata)?;
    let mut thing = Thing::new(metadata.kind, 0, found.attrs);
    thing.data = Versions::new(0, Arc::new(found.data));
    thing.xattrs = Versions::new(0, found.xattrs);
    thing.target = found.target;
    let names: super::history::Names = oracle
        .slots
        .iter()
        .filter(|(_, versions)| versions.last() == Some(&Some(ino)))
        .map(|(slot, _)| slot.clone())
        .collect();
    thing.names = Versions::new(0, names);
    oracle.add(ino, thing);
    if metadata.is_dir() {
        watch_entries(volume, oracle, path, ino)?;
    }
    Ok(())
}

fn watch_entries(volume: &Volume, oracle: &mut Oracle, path: &str, ino: Ino) -> Result<()> {
    for (index, entry) in volume.read_dir(from_top(path))?.enumerate() {
        let entry = entry?;
        ensure!(index < ENTRIES_MAX, "a directory of a workload may have {ENTRIES_MAX} entries, this one has more");
        let slot = (ino, entry.name_bytes().to_vec());
        let child = from_top(path).join(entry.file_name());
        let child = ino_of(&volume.symlink_metadata(child)?);
        oracle.slots.insert(slot.clone(), Versions::new(0, Some(child)));
        if let Some(thing) = oracle.things.get_mut(&child) {
            let mut names = thing.names.last().cloned().unwrap_or_default();
            names.insert(slot);
            thing.names = Versions::new(0, names);
        }
    }
    Ok(())
}

fn copy(from: &File, source_offset: u64, to: &File, offset: u64, len: u64) -> Result<(), vfs::Error> {
    let mut done = 0;
    while done < len {
        match to.copy_range(from, source_offset + done, offset + done, len - done)? {
            0 => return Ok(()),
            count => done += count,
        }
    }
    Ok(())
}

/// Bytes that depend on the number `fill` of the step and on the offset, so that writes differ; none is zero.
fn content(fill: u64, offset: u64, len: u64) -> Vec<u8> {
    let byte = |at: u64| {
        let mixed = (at ^ fill.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        u8::try_from((mixed >> 33) % 255 + 1).unwrap_or(1)
    };
    (offset..offset.saturating_add(len)).map(byte).collect()
}

fn overwrite(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[offset..end].copy_from_slice(bytes);
}

fn reserve_range(data: &mut Vec<u8>, reserve: Reserve, start: usize, end: usize) {
    if matches!(reserve, Reserve::Grow | Reserve::Zero) && data.len() < end {
        data.resize(end, 0);
    }
    if matches!(reserve, Reserve::Punch | Reserve::Zero) {
        let end = end.min(data.len());
        if start < end {
            data[start..end].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_and_have_no_zeros() {
        let (a, b) = (content(1, 0, 8192), content(2, 0, 8192));
        assert!(a.iter().chain(&b).all(|byte| *byte != 0));
        let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
        assert!(same < 100, "{same}");
        assert_eq!(content(1, 4096, 10), a[4096..4106]);
        assert_eq!(a.len(), 8192);
    }

    #[test]
    fn ranges_grow_and_become_zero_as_fallocate_says() {
        let made = |reserve| {
            let mut data = vec![1; 10];
            reserve_range(&mut data, reserve, 8, 12);
            data
        };
        assert_eq!(made(Reserve::Grow), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(made(Reserve::KeepSize), [1; 10]);
        assert_eq!(made(Reserve::Punch), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(made(Reserve::Zero), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
    }
}
