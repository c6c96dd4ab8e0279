//! Writes the layer that makes one tree of another: nodes that are new or changed, and whiteouts of those that are
//! gone. Programs that make images of containers call it.
//!
//! Invariants
//! * Applied over the old tree, the layer makes the new one, except for access times and sockets.
//! * The archive depends on the two trees alone: paths in their order, each directory before what is in it; in a
//!   directory the opaque marker first, then whiteouts, then nodes. Whiteouts are empty files of root, mode 600, of
//!   1970.
//! * All directories on the way to something that is written are members, changed or not: engines that unpack a layer
//!   by itself take their attributes from there.
//! * Of a file with several names all are written when one is, so that they stay one file.
//! * A directory that lost two names or more, and all that it had, gets an opaque marker in place of whiteouts.
//!
//! Failure: a name that begins with `.wh.`, which a layer cannot have; those of the sources and of writing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::tar::{TarWriter, WriteOptions};
use portable::FileExt as _;
use portable::OsStrExt as _;
use transfer::{Contents, Name, NewNode, Observer, Source, Stored, copy_data, plain_metadata};
use vfs::file_system::{KnownNode, NodeKind, Time, Xattrs};

use super::inventory::{self, Inventory, Item};
use crate::content::Bytes;
use crate::error::{Error, Result, shown};
use crate::listing;
use crate::number::to_u64;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Bytes of contents that are compared or copied at once. A file that is not larger is held in memory.
const PIECE_BYTES: usize = 256 << 10;

/// How a difference is written.
#[derive(Debug, Clone)]
pub struct DifferenceOptions {
    /// How the archive is written.
    pub write: WriteOptions,
    /// Directory of temporary files for contents, which have no names there.
    pub temp_dir: PathBuf,
}

impl Default for DifferenceOptions {
    /// As GNU tar writes archives; the host's directory for temporary files.
    fn default() -> Self {
        Self { write: WriteOptions::default(), temp_dir: std::env::temp_dir() }
    }
}

/// The members that a difference has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Nodes, directories on the way included.
    pub nodes: u64,
    /// Further names of nodes.
    pub links: u64,
    /// Names that are gone.
    pub whiteouts: u64,
    /// Directories that lost all names.
    pub opaque: u64,
}

/// Names that are gone from a directory that is still there.
enum Gone {
    All,
    Names(Vec<OsString>),
}

/// The members that have to be written.
struct Plan<'a> {
    paths: BTreeSet<&'a Path>,
    gone: BTreeMap<&'a Path, Gone>,
}

/// Writes the layer that makes `new` of `old`, as an uncompressed tar archive.
///
/// # Errors
/// See the head of the module; those of `watch`.
pub fn difference(
    old: &impl Source,
    new: &impl Source,
    out: impl Write,
    options: &DifferenceOptions,
    watch: &dyn Observer,
) -> Result<Written> {
    let (old_nodes, new_nodes) = (inventory::list(old, &())?, inventory::list(new, watch)?);
    let mut plan = Plan { paths: BTreeSet::new(), gone: gone(&old_nodes, &new_nodes) };
    for (path, item) in &new_nodes {
        watch.check()?;
        check_name(path)?;
        let is_same = match old_nodes.get(path) {
            None => false,
            Some(before) => is_alike(before, item) && has_same_contents(old, new, path, item)?,
        };
        if !is_same {
            plan.paths.insert(path);
        }
    }
    plan.complete(&new_nodes);
    write(&plan, &new_nodes, new, out, options, watch)
}

/// The names that are gone, by directories that are in both trees.
fn gone<'a>(old: &'a Inventory, new: &'a Inventory) -> BTreeMap<&'a Path, Gone> {
    let mut gone: BTreeMap<&Path, Vec<OsString>> = BTreeMap::new();
    let mut kept: BTreeSet<&Path> = BTreeSet::new();
    for path in old.keys() {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
        if new.contains_key(path) {
            kept.insert(dir);
        } else if new.get(dir).is_some_and(|item| item.node.attr.is_dir()) {
            gone.entry(dir).or_default().push(name.to_owned());
        }
    }
    let all = |dir: &Path, names: &[OsString]| names.len() > 1 && !kept.contains(dir);
    gone.into_iter().map(|(dir, names)| (dir, if all(dir, &names) { Gone::All } else { Gone::Names(names) })).collect()
}

impl<'a> Plan<'a> {
    /// Adds the other names of files, and the directories on the way.
    fn complete(&mut self, new: &'a Inventory) {
        let firsts: BTreeSet<&Path> = self.paths.iter().filter_map(|path| new.get(*path)?.first.as_deref()).collect();
        let linked = new.iter().filter(|(_, item)| item.first.as_deref().is_some_and(|first| firsts.contains(first)));
        self.paths.extend(linked.map(|(path, _)| path.as_path()));
        let dirs = self.gone.keys().flat_map(|dir| dir.ancestors());
        let above = self.paths.iter().flat_map(|path| path.ancestors().skip(1));
        let above: Vec<&Path> = dirs.chain(above).collect();
        self.paths.extend(above);
    }
}

/// Layers have no names that begin with `.wh.`.
fn check_name(path: &Path) -> Result<()> {
    let Some(name) = path.file_name().filter(|name| name.as_bytes().starts_with(WHITEOUT.as_bytes())) else {
        return Ok(());
    };
    let expected = format!("a name that does not begin with `{WHITEOUT}`, as whiteouts do");
    let place = path.display().to_string();
    Err(Error::Mismatch { place, what: "name", expected, found: shown(name.as_bytes()) })
}

/// True if the nodes have the same attributes and names.
fn is_alike(old: &Item, new: &Item) -> bool {
    let seen = |item: &Item| {
        let KnownNode { attr, .. } = &item.node;
        let is_device = matches!(attr.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        let rdev = if is_device { attr.rdev } else { 0 };
        let size = if attr.is_file() { attr.size } else { 0 };
        (attr.kind, attr.permissions, attr.uid, attr.gid, rdev, size, attr.mtime)
    };
    let (a, b) = (&old.node, &new.node);
    seen(old) == seen(new) && a.target == b.target && a.xattrs == b.xattrs && old.first == new.first
}

/// The contents of the file at a path.
fn open<S: Source>(source: &S, path: &Path) -> Result<S::Contents> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let name = Name { name: path.file_name().unwrap_or_default().to_owned(), kind: Some(NodeKind::File) };
    let dir = source.open_dir(dir)?;
    Ok(listing::look(source, &dir, &name, path)?.contents)
}

fn has_same_contents(old: &impl Source, new: &impl Source, path: &Path, item: &Item) -> Result<bool> {
    let size = item.node.attr.size;
    // The first name says it for all.
    let is_told = item.first.as_deref().is_some_and(|first| first != path);
    if !item.node.attr.is_file() || size == 0 || is_told {
        return Ok(true);
    }
    let (old, new) = (open(old, path)?, open(new, path)?);
    let (mut a, mut b) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut at = 0;
    while at < size {
        let want = usize::try_from(size - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let (left, right) = (a.get_mut(..want).unwrap_or_default(), b.get_mut(..want).unwrap_or_default());
        fill(&old, left, at)?;
        fill(&new, right, at)?;
        if left != right {
            return Ok(false);
        }
        at = at.saturating_add(to_u64(want));
    }
    Ok(true)
}

/// Fills the buffer; what a file does not have any more is zeros.
fn fill(contents: &impl Contents, buffer: &mut [u8], at: u64) -> Result<()> {
    let mut count = 0;
    while count < buffer.len() {
        let rest = buffer.get_mut(count..).unwrap_or_default();
        match contents.read_at(rest, at.saturating_add(to_u64(count)))? {
            0 => {
                rest.fill(0);
                break;
            }
            read => count = count.saturating_add(read),
        }
    }
    Ok(())
}

fn write<S: Source>(
    plan: &Plan<'_>,
    nodes: &Inventory,
    new: &S,
    out: impl Write,
    options: &DifferenceOptions,
    watch: &dyn Observer,
) -> Result<Written> {
    let mut tar = TarWriter::new(out, options.write.clone()).watched(watch);
    let mut written = Written::default();
    let failed = |path: &Path| Error::archive(&format!("layer, at {}", path.display()));
    for path in &plan.paths {
        let Some(item) = nodes.get(*path) else { continue };
        let node = &item.node;
        let described = |contents| NewNode {
            attr: node.attr,
            target: node.target.clone(),
            xattrs: node.xattrs.clone().unwrap_or_default(),
            contents,
        };
        match item.first.as_deref().filter(|first| first != path) {
            Some(first) => {
                tar.append_link(path, first, &described(None)).map_err(failed(path))?;
                written.links = written.links.saturating_add(1);
            }
            None => {
                let has_data = node.attr.is_file() && node.attr.size > 0;
                let contents = if has_data { Some(kept(new, path, node.attr.size, options)?) } else { None };
                tar.append(path, &described(contents)).map_err(failed(path))?;
                written.nodes = written.nodes.saturating_add(1);
            }
        }
        let names = match plan.gone.get(path) {
            None => continue,
            Some(Gone::All) => {
                tar.append(&path.join(OPAQUE), &marker()).map_err(failed(path))?;
                written.opaque = written.opaque.saturating_add(1);
                continue;
            }
            Some(Gone::Names(names)) => names,
        };
        for name in names {
            let mut hidden = OsString::from(WHITEOUT);
            hidden.push(name);
            tar.append(&path.join(hidden), &marker()).map_err(failed(path))?;
            written.whiteouts = written.whiteouts.saturating_add(1);
        }
    }
    tar.finish().map_err(Error::archive("layer"))?;
    Ok(written)
}

/// The node of a whiteout.
fn marker() -> NewNode {
    let attr = plain_metadata(NodeKind::File, 0o600, Time::default());
    NewNode { attr, target: None, xattrs: Xattrs::new(), contents: None }
}

/// Contents in a temporary file.
struct Copied(Arc<File>);

impl Stored for Copied {
    fn open(&self) -> transfer::Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(transfer::HostContents::from(self.0.try_clone()?)))
    }
}

/// The contents of a file of a source, in a form that outlives the source: in memory, or, if they are larger, in a
/// temporary file with the same holes.
fn kept(source: &impl Source, path: &Path, size: u64, options: &DifferenceOptions) -> Result<Arc<dyn Stored>> {
    let contents = open(source, path)?;
    let mut buffer = vec![0; PIECE_BYTES];
    if let Some(small) = usize::try_from(size).ok().and_then(|size| buffer.get_mut(..size)) {
        fill(&contents, small, 0)?;
        return Ok(Arc::new(Bytes((&*small).into())));
    }
    let failed = |error| Error::host(&options.temp_dir)(error);
    let file = tempfile::tempfile_in(&options.temp_dir).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    copy_data(&contents, size, &mut buffer, |at, part| file.write_all_at(part, at).map_err(failed))?;
    Ok(Arc::new(Copied(Arc::new(file))))
}
