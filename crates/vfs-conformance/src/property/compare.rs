//! Compares a volume's tree with the model's. Called by `run` and `threads`, and by `crash` of `testkit`.

use super::is_refusal;
use crate::model::{Content, Directory, Kind, Model, Node, NodeId, PAGE_BYTES, Role};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vfs::{FileOptions, Metadata, Volume};

/// Bytes of a read in the comparison of contents.
const READ_BYTES: u64 = 1 << 20;

/// Compares everything below `base`, which exists in both.
///
/// # Errors
/// The first difference, with its path.
pub fn compare_trees(volume: &Volume, model: &Model, base: &Path) -> Result<()> {
    let id = if base == Path::new("/") {
        model.root()
    } else {
        model.place(base).ok().and_then(|place| place.node).context("the model has no such directory")?
    };
    let mut inodes = BTreeMap::new();
    compare_node(volume, model, base, id, &mut inodes)
}

/// Compares one path, without its contents.
pub(super) fn compare_one(volume: &Volume, model: &Model, path: &Path) -> Result<()> {
    let at = || path.display().to_string();
    match (model.lookup(path), volume.symlink_metadata(path)) {
        (None, Err(error)) if is_refusal(&error) => Ok(()),
        (None, Ok(_)) => bail!("{}: exists, but should not", at()),
        (None, Err(error)) => Err(error).with_context(at),
        (Some(node), metadata) => {
            compare_inode(volume, model, path, node, &metadata.with_context(at)?).with_context(at)
        }
    }
}

fn compare_node(
    volume: &Volume,
    model: &Model,
    path: &Path,
    id: NodeId,
    inodes: &mut BTreeMap<(u64, u64), NodeId>,
) -> Result<()> {
    let at = || path.display().to_string();
    let node = model.node(id).with_context(|| format!("{}: the model lost a node", at()))?;
    let metadata = volume.symlink_metadata(path).with_context(at)?;
    compare_inode(volume, model, path, node, &metadata).with_context(at)?;
    let Some(directory) = node.directory() else {
        // Names of one inode in the volume are names of one node in the model.
        let first = *inodes.entry((metadata.home.subvolume, metadata.home.ino)).or_insert(id);
        ensure!(first == id, "{}: the inode also has a name it should not have", at());
        return Ok(());
    };
    let names = compare_names(volume, path, model, directory).with_context(at)?;
    for (path, child) in names {
        if !matches!(model.role(child), Role::Stub) {
            compare_node(volume, model, &path, child, inodes)?;
        }
    }
    Ok(())
}

fn compare_names(volume: &Volume, path: &Path, model: &Model, directory: &Directory) -> Result<Vec<(PathBuf, NodeId)>> {
    let mut missing: BTreeSet<&[u8]> = directory.entries.keys().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    for entry in volume.read_dir(path)? {
        let entry = entry?;
        let name = entry.name_bytes();
        let shown = String::from_utf8_lossy(name).into_owned();
        let Some(id) = directory.entries.get(name) else { bail!("lists `{shown}`, which should not exist") };
        ensure!(missing.remove(name), "lists `{shown}` twice");
        let kind = model.node(*id).map(Node::file_type);
        ensure!(kind == Some(entry.file_type()), "lists `{shown}` as {:?}, not {kind:?}", entry.file_type());
        found.push((path.join(OsStr::from_bytes(name)), *id));
    }
    let missing: Vec<_> = missing.into_iter().map(String::from_utf8_lossy).collect();
    ensure!(missing.is_empty(), "does not list {missing:?}");
    Ok(found)
}

fn compare_inode(volume: &Volume, model: &Model, path: &Path, node: &Node, found: &Metadata) -> Result<()> {
    ensure!(found.kind == node.file_type(), "type {:?}, not {:?}", found.kind, node.file_type());
    if node.directory().is_some_and(|directory| directory.role == Role::Stub) {
        return Ok(());
    }
    match node.directory() {
        Some(directory) if volume.symlink_metadata(Path::new("/"))?.nlink != 1 => {
            compare_counted(model, directory, found)?;
        }
        _ => {
            ensure!(found.nlink == node.links, "{} links, not {}", found.nlink, node.links);
            let size = size_of(node);
            ensure!(found.size == size, "size {}, not {size}", found.size);
        }
    }
    if let Some(mode) = node.mode {
        ensure!(found.permissions == mode, "mode {:o}, not {mode:o}", found.permissions);
    }
    if let Some(owner) = node.owner {
        ensure!((found.uid, found.gid) == owner, "owner {}:{}, not {owner:?}", found.uid, found.gid);
    }
    if let Some(mtime) = node.mtime {
        ensure!(found.mtime == mtime, "mtime {:?}, not {mtime:?}", found.mtime);
    }
    compare_xattrs(volume, path, node)?;
    match &node.kind {
        Kind::File(content) => compare_content(volume, path, content),
        Kind::Symlink(target) => {
            let found = volume.read_link(path)?;
            ensure!(found.as_os_str().as_bytes() == target, "target {}", found.display());
            Ok(())
        }
        Kind::Special(_, rdev) => {
            ensure!(found.rdev == *rdev, "device {:#x}, not {rdev:#x}", found.rdev);
            Ok(())
        }
        Kind::Directory(_) => Ok(()),
    }
}

/// A directory of a format that counts its name, `.` and the `..` of those below. Its size says nothing of its names.
fn compare_counted(model: &Model, directory: &Directory, found: &Metadata) -> Result<()> {
    let below = directory.entries.values().filter(|id| model.node(**id).is_some_and(|node| node.directory().is_some()));
    let links = u32::try_from(below.count())?.saturating_add(2);
    ensure!(found.nlink == links, "{} links, not {links}", found.nlink);
    ensure!(found.size > 0, "a directory without bytes");
    Ok(())
}

/// A directory's size is twice the bytes of its names, where the format does not count links of directories.
fn size_of(node: &Node) -> u64 {
    match &node.kind {
        Kind::File(content) => content.len(),
        Kind::Symlink(target) => crate::number::to_u64(target.len()),
        Kind::Special(..) => 0,
        Kind::Directory(directory) => {
            let bytes: usize = directory.entries.keys().map(Vec::len).sum();
            crate::number::to_u64(bytes).saturating_mul(2)
        }
    }
}

fn compare_xattrs(volume: &Volume, path: &Path, node: &Node) -> Result<()> {
    let names = volume.list_xattrs(path)?;
    let listed: BTreeSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    ensure!(listed.len() == names.len(), "an attribute is listed twice");
    let expected: BTreeSet<&[u8]> = node.xattrs.keys().map(Vec::as_slice).collect();
    ensure!(listed == expected, "attributes {names:?}, not {} others", expected.len());
    for (name, value) in &node.xattrs {
        let found = volume.get_xattr(path, name)?;
        ensure!(found.as_ref() == Some(value), "attribute {} has another value", String::from_utf8_lossy(name));
    }
    Ok(())
}

/// Compares the pages that hold something, and that the rest, where it is read, is zeros.
/// # Errors
/// The first difference.
pub fn compare_content(volume: &Volume, path: &Path, content: &Content) -> Result<()> {
    let file = FileOptions::new().read(true).open(volume, path)?;
    let mut compared_to = 0;
    let mut buffer = vec![0; crate::number::to_usize(READ_BYTES)];
    // A page before each page that holds something is read too, and the end of the file.
    let ends = [content.len().saturating_sub(PAGE_BYTES), 0];
    let mut starts: BTreeSet<u64> = content.page_starts().map(|start| start.saturating_sub(PAGE_BYTES)).collect();
    starts.extend(ends);
    for start in starts {
        let mut at = start.max(compared_to);
        let end = start.saturating_add(2 * PAGE_BYTES).min(content.len());
        while at < end {
            let expected = content.read(at, READ_BYTES);
            let len = expected.len();
            let target = buffer.get_mut(..len).unwrap_or_default();
            let count = file.read_at(target, at)?;
            ensure!(count == len, "a read of {len} bytes at {at} gave {count}, the size is {}", content.len());
            if let Some(index) = target.iter().zip(&expected).position(|(found, expected)| found != expected) {
                bail!(
                    "byte {} differs: {:?}, not {:?}",
                    at + crate::number::to_u64(index),
                    target.get(index),
                    expected.get(index)
                );
            }
            at = at.saturating_add(crate::number::to_u64(len));
        }
        compared_to = compared_to.max(at);
    }
    let count = file.read_at(&mut [0; 16], content.len())?;
    ensure!(count == 0, "{count} bytes behind the end");
    Ok(())
}
