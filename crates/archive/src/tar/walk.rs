//! Writes a whole tree as a tar archive: a directory before what is in it, names in the order of their bytes. Programs
//! that make archives of images and directories call it.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::vec;

use transfer::{Contents, FileId, Name, Observer, Result as TransferResult, Source, file_id};
use vfs::file_system::KnownNode;

use super::writer::{Described, TarWriter, WriteOptions};
use crate::error::Result;

/// A directory of which the names are being written.
struct Level<D> {
    dir: D,
    path: PathBuf,
    left: vec::IntoIter<Name>,
}

/// Writes everything below the root of `source`, and the root directory itself, to `out`.
///
/// Sockets are left out with [`transfer::Loss::Socket`]; `watch` decides about names that cannot be read.
///
/// # Errors
/// [`crate::Error::Write`]; those of reading the source.
pub fn write(source: &impl Source, out: &mut impl Write, options: &WriteOptions, watch: &dyn Observer) -> Result<()> {
    let mut writer = TarWriter::new(out, options.clone()).watched(watch);
    let top = source.top(Path::new(""))?;
    put(&mut writer, Path::new(""), &top, None)?;
    let mut links = HashMap::new();
    let mut open = vec![level(source, PathBuf::new(), watch)?];
    while let Some(level) = open.last_mut() {
        let Some(name) = level.left.next() else {
            open.pop();
            continue;
        };
        watch.check()?;
        watch.tried();
        let path = level.path.join(&name.name);
        let below = match found(source, level, &name) {
            Ok((node, contents)) => {
                member(&mut writer, &mut links, &path, &node, &contents)?;
                node.attr.is_dir()
            }
            Err(error) => {
                watch.failed(error.about(shown(source, &path)))?;
                false
            }
        };
        watch.done();
        if below {
            match self::level(source, path, watch) {
                Ok(level) => open.push(level),
                Err(error) => watch.failed(error)?,
            }
        }
    }
    writer.finish()?;
    Ok(())
}

/// Opens a directory and reads its names.
fn level<S: Source>(source: &S, path: PathBuf, watch: &dyn Observer) -> TransferResult<Level<S::Dir>> {
    let dir = source.open_dir(&path)?;
    let mut names = source.names(&dir, &mut |error| watch.failed(error))?;
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Level { dir, path, left: names.into_iter() })
}

/// All of a node.
fn found<S: Source>(source: &S, level: &Level<S::Dir>, name: &Name) -> TransferResult<(KnownNode, S::Contents)> {
    let one = source.look(&level.dir, std::slice::from_ref(name)).pop();
    let mut found =
        one.ok_or_else(|| transfer::Error::from(std::io::Error::other("the source returned no node")))??;
    source.complete(&mut found)?;
    if found.node.xattrs.is_none() && found.node.attr.is_dir() {
        found.node.xattrs = Some(source.xattrs(&level.path.join(&name.name))?);
    }
    Ok((found.node, found.contents))
}

/// Writes a node, or a link to where it was written before.
fn member<W: Write>(
    writer: &mut TarWriter<'_, W>,
    links: &mut HashMap<FileId, PathBuf>,
    path: &Path,
    node: &KnownNode,
    contents: &dyn Contents,
) -> Result<()> {
    if node.attr.nlink > 1 && !node.attr.is_dir() {
        let id = file_id(&node.attr);
        if let Some(first) = links.get(&id) {
            return writer.link(path, first, &node.attr);
        }
        links.insert(id, path.to_owned());
    }
    put(writer, path, node, Some(contents))
}

fn put<W: Write>(
    writer: &mut TarWriter<'_, W>,
    path: &Path,
    node: &KnownNode,
    contents: Option<&dyn Contents>,
) -> Result<()> {
    let no_xattrs = Vec::new();
    let xattrs = node.xattrs.as_ref().unwrap_or(&no_xattrs);
    let described = Described { attr: &node.attr, target: node.target.as_deref(), xattrs };
    match &node.data {
        Some(data) => writer.member(path, described, Some(&Whole(data))),
        None => writer.member(path, described, contents),
    }
}

/// A path for messages.
fn shown(source: &impl Source, path: &Path) -> PathBuf {
    source.display(path).unwrap_or_else(|| path.to_owned())
}

/// Contents that were read with the node.
struct Whole<'a>(&'a [u8]);

impl Contents for Whole<'_> {
    fn next_data(&self, at: u64, size: u64) -> TransferResult<Option<(u64, u64)>> {
        Ok((at < size).then_some((at, size)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> TransferResult<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let Some((from, to)) = rest.get(..count).zip(buffer.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn size(&self) -> TransferResult<u64> {
        Ok(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }
}
