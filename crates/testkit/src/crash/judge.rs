//! Decides whether an image is one of the states that its journal allows. Called by `explore`, `inject`, `fsync` and
//! `damage`.

use super::workload::{Journal, Moment, open_on, store};
use crate::number::{to_u64, to_usize};
use crate::reference::{self, Checked};
use anyhow::{Context, Result, bail, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::Volume as Btrfs;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::file_system::NodeKind;
use vfs::{FileOptions, Volume};
use vfs_conformance::model::{Kind, Model, Node, Operation};
use vfs_conformance::property::{compare_content, compare_trees};

/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;
/// A file that is made to see whether an image can be changed.
const PROBE: &str = "after-the-crash";
const PROBE_BYTES: usize = 100_000;

type Names = BTreeMap<PathBuf, NodeKind>;

/// Checks the image of a device that had seen `events`.
///
/// # Errors
/// The first fault.
pub(super) fn judge(image: &MemoryDevice, journal: &Journal, events: usize) -> Result<()> {
    let promised = journal.promised(events).context("nothing was promised")?;
    let device = Arc::new(image.duplicate());
    let volume = open_on(&device, &Btrfs::options().read_only(true)).context("opened to read")?;
    let generation = volume.info()?.generation.0;
    ensure!(
        generation >= promised.generation,
        "generation {generation} is older than the last sync's, {}",
        promised.generation
    );
    let expected = Expected::new(journal, promised, generation)?;
    expected.compare(&volume).context("opened to read")?;
    drop(volume);
    let volume = open_on(&device, &Btrfs::options()).context("opened to write")?;
    expected.compare(&volume).context("opened to write")?;
    probe(&volume).context("changing the volume after the crash")?;
    volume.close().context("closing the volume after the crash")
}

/// Runs `btrfs check` on an image, and again after a writable open.
///
/// # Errors
/// Its findings; the image is kept and named.
pub(super) fn check(image: &MemoryDevice, folder: &Path, name: &str) -> Result<bool> {
    let path = folder.join(format!("{name}.img"));
    store(image, &path)?;
    // Where a write of the superblock was torn, the tool does not look at the mirrors.
    let is_torn = !has_whole_superblock(image)?;
    let first = if is_torn { Ok(Checked::Clean) } else { reference::check(&path) };
    let checked = first.with_context(|| format!("image kept: {}", path.display()))?;
    let device = Arc::new(image.duplicate());
    let volume = open_on(&device, &Btrfs::options())?;
    probe(&volume)?;
    volume.close()?;
    store(&device, &path)?;
    reference::check(&path).with_context(|| format!("after the open, image kept: {}", path.display()))?;
    std::fs::remove_file(&path)?;
    Ok(checked == Checked::Clean)
}

/// Whether the primary superblock is whole: a writable open would not need to stand in for it.
fn has_whole_superblock(image: &MemoryDevice) -> Result<bool> {
    use blockdev::Device;
    // Without its mirror the image opens only if the primary is whole.
    let alone = image.duplicate();
    alone.write_at(64 << 20, &[&[0; 4096]])?;
    Ok(open_on(&Arc::new(alone), &Btrfs::options().read_only(true)).is_ok())
}

pub(super) fn probe(volume: &Volume) -> Result<()> {
    let data = vec![0x5a; PROBE_BYTES];
    volume.write(PROBE, &data)?;
    volume.sync()?;
    ensure!(volume.read(PROBE)? == data, "the written data differs");
    Ok(())
}

/// Possible contents at the generation of a state.
enum Expected<'a> {
    /// A sync's commit.
    Exact(&'a Moment),
    /// A commit within the operation that leads from one moment to the next.
    Within { promised: &'a Moment, before: &'a Moment, after: &'a Moment },
}

impl<'a> Expected<'a> {
    fn new(journal: &'a Journal, promised: &'a Moment, generation: u64) -> Result<Self> {
        let moments = &journal.moments;
        let is_exact = |m: &&Moment| m.operation.is_none() && m.generation == generation;
        if let Some(moment) = moments.iter().rev().find(is_exact) {
            return Ok(Self::Exact(moment));
        }
        let index = moments
            .iter()
            .position(|moment| moment.generation >= generation)
            .context("a generation that was never committed")?;
        let after = moments.get(index).context("no such moment")?;
        let before = moments.get(index.saturating_sub(1)).context("no such moment")?;
        Ok(Self::Within { promised, before, after })
    }

    fn compare(&self, volume: &Volume) -> Result<()> {
        match self {
            Self::Exact(moment) => compare_trees(volume, &moment.model, Path::new("/")).context("the state of a sync"),
            Self::Within { promised, before, after } => compare_within(volume, promised, before, after)
                .with_context(|| format!("a commit within {:?}", after.operation)),
        }
    }
}

fn compare_within(volume: &Volume, promised: &Moment, before: &Moment, after: &Moment) -> Result<()> {
    let mut found = Names::new();
    read_all(volume, Path::new("/"), &mut found)?;
    let (old, new) = (names_of(&before.model), names_of(&after.model));
    let is_removal = matches!(after.operation, Some(Operation::RemoveAll { .. }));
    let is_between = |found: &Names| {
        let is_in_old = found.iter().all(|(path, kind)| old.get(path) == Some(kind));
        is_in_old && new.iter().all(|(path, kind)| found.get(path) == Some(kind))
    };
    if found != old && found != new && !(is_removal && is_between(&found)) {
        bail!(
            "names: {} too many, {} missing of the state before; {} and {} of the one after",
            count_missing(&found, &old),
            count_missing(&old, &found),
            count_missing(&found, &new),
            count_missing(&new, &found)
        );
    }
    let model = if found == new { &after.model } else { &before.model };
    compare_untouched(volume, model, &found, [&promised.model, &before.model, &after.model])
}

/// Compares the files that have the same content in all `models`.
fn compare_untouched(volume: &Volume, model: &Model, found: &Names, models: [&Model; 3]) -> Result<()> {
    for (path, id) in model.walk() {
        let contents = models.map(|model| model.node(id).and_then(Node::content));
        let [Some(first), Some(second), Some(third)] = contents else {
            continue;
        };
        if first == second && second == third && found.contains_key(&path) {
            compare_content(volume, &path, first).with_context(|| format!("{} was not touched", path.display()))?;
        }
    }
    Ok(())
}

fn count_missing(names: &Names, there: &Names) -> usize {
    let is_missing = |(path, kind): &(&PathBuf, &NodeKind)| there.get(*path) != Some(*kind);
    names.iter().filter(is_missing).count()
}

fn names_of(model: &Model) -> Names {
    let kind_of = |id| model.node(id).map(Node::file_type);
    model.walk().into_iter().skip(1).filter_map(|(path, id)| Some((path, kind_of(id)?))).collect()
}

/// Reads every name, attribute and byte below `directory`.
pub(super) fn read_all(volume: &Volume, directory: &Path, found: &mut Names) -> Result<()> {
    for entry in volume.read_dir(directory)? {
        let entry = entry?;
        let path = directory.join(OsStr::from_bytes(entry.name_bytes()));
        let kind = entry.file_type();
        let name = path.strip_prefix("/").unwrap_or(&path).to_path_buf();
        read_one(volume, &path, kind).with_context(|| path.display().to_string())?;
        found.insert(name, kind);
        if kind == NodeKind::Directory {
            read_all(volume, &path, found)?;
        }
    }
    Ok(())
}

/// Reads the node of one name.
pub(super) fn read_one(volume: &Volume, path: &Path, kind: NodeKind) -> Result<()> {
    let metadata = volume.symlink_metadata(path)?;
    ensure!(metadata.kind == kind, "is {:?}", metadata.kind);
    for name in volume.list_xattrs(path)? {
        volume.get_xattr(path, name.as_bytes())?;
    }
    match kind {
        NodeKind::Symlink => drop(volume.read_link(path)?),
        NodeKind::File => {
            let file = FileOptions::new().read(true).open(volume, path)?;
            let mut buffer = vec![0; READ_BYTES];
            let mut at = 0;
            while at < metadata.size {
                let count = file.read_at(&mut buffer, at)?;
                let expected = to_usize(metadata.size.saturating_sub(at)).min(READ_BYTES);
                ensure!(count == expected, "{count} bytes read at {at}");
                at = at.saturating_add(to_u64(count));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Paths and kinds of a model's files, for callers that read some of them.
pub(super) fn files_of(model: &Model) -> Vec<(PathBuf, NodeKind)> {
    let is_file = |id| matches!(model.node(id).map(|node| &node.kind), Some(Kind::File(_)));
    let files = model.walk().into_iter().filter(|(_, id)| is_file(*id));
    files.map(|(path, _)| (path, NodeKind::File)).collect()
}
