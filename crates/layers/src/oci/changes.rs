//! Records what a layer changes in a tree, and puts it into an order in which a caller can do the same to a volume.
//! `apply` records; callers of [`super::Image::apply_layer`] get the list.
//!
//! The list is made when the layer has been applied: first what of the lower tree is gone, then the names that the
//! layer has, each directory before what is in it, then the times of directories. A node is in the list once, as the
//! tree has it at the end, even if the archive names it several times.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use transfer::{NewNode, NodeNumber, Tree};

use crate::error::Result;
use crate::number::to_u64;

/// A change that a layer makes. Paths have no symbolic links on the way and are relative to the root, whose path is
/// empty. The nodes to put are those of the tree after the layer was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerChange {
    /// The name goes, with all below it.
    Remove(PathBuf),
    /// All names in the directory go.
    Clear(PathBuf),
    /// The name gets the node that the tree has there. A directory that is there already keeps its names and gets the
    /// attributes; nothing else is there.
    Put(PathBuf),
    /// The name becomes one more of a node that is there.
    Link {
        /// A name that the node has already.
        first: PathBuf,
        /// The new name.
        path: PathBuf,
    },
    /// Names in the directory were changed: it gets the times that the tree has. Deeper directories come first.
    Times(PathBuf),
}

/// Puts members into a tree and notes what changes.
pub(super) struct Recorder {
    /// Nodes up to this number are of lower layers.
    lower_count: u64,
    /// Names of the lower tree that go, in order.
    gone: Vec<LayerChange>,
    removed: HashSet<PathBuf>,
    /// The paths that the layer puts or links.
    touched: BTreeSet<PathBuf>,
    /// The first lower name that the layer makes links of, by the node's number.
    lower_names: HashMap<u64, PathBuf>,
}

impl Recorder {
    pub(super) fn new(tree: &Tree) -> Self {
        let (touched, removed) = (BTreeSet::new(), HashSet::new());
        let lower_count = to_u64(tree.node_count());
        Self { lower_count, gone: Vec::new(), removed, touched, lower_names: HashMap::new() }
    }

    /// A whiteout removed a lower name.
    pub(super) fn removed(&mut self, path: PathBuf) {
        if self.removed.insert(path.clone()) {
            self.gone.push(LayerChange::Remove(path));
        }
    }

    /// An opaque marker removed all names of a lower directory.
    pub(super) fn cleared(&mut self, dir: PathBuf) {
        self.gone.push(LayerChange::Clear(dir));
    }

    /// Puts a node of the layer.
    ///
    /// # Errors
    /// Those of the tree.
    pub(super) fn put(&mut self, tree: &mut Tree, path: &Path, node: NewNode) -> Result<()> {
        let found = tree.find(path)?;
        let stays = |number| node.attr.is_dir() && tree.node(number).attr.is_dir();
        if let Some(number) = found.filter(|number| !stays(*number)) {
            self.replaced(tree, number, path)?;
        }
        tree.put(path, node)?;
        self.touch(tree, path)
    }

    /// Makes a hard link of the layer.
    ///
    /// # Errors
    /// Those of the tree.
    pub(super) fn link(&mut self, tree: &mut Tree, first: &Path, path: &Path) -> Result<()> {
        let target = tree.find(first)?;
        if let Some(number) = tree.find(path)?.filter(|number| Some(*number) != target) {
            self.replaced(tree, number, path)?;
        }
        tree.link(first, path)?;
        if let Some(number) = target.filter(|number| self.is_lower(tree, *number))
            && let Some(first) = tree.real_path(first)?
            && !self.touched.contains(&first)
        {
            self.lower_names.entry(tree.node(number).attr.ino).or_insert(first);
        }
        self.touch(tree, path)
    }

    fn is_lower(&self, tree: &Tree, number: NodeNumber) -> bool {
        tree.node(number).attr.ino <= self.lower_count
    }

    /// Notes that a node is about to be replaced, if a lower layer has it.
    fn replaced(&mut self, tree: &Tree, number: NodeNumber, path: &Path) -> Result<()> {
        // A lower node that this layer linked to the name is not what the lower tree has there.
        if self.is_lower(tree, number)
            && let Some(path) = tree.real_path(path)?
            && !self.touched.contains(&path)
        {
            self.removed(path);
        }
        Ok(())
    }

    /// Notes the path, and directories on the way that the tree made for it.
    fn touch(&mut self, tree: &Tree, path: &Path) -> Result<()> {
        let Some(path) = tree.real_path(path)? else { return Ok(()) };
        for dir in path.ancestors().skip(1) {
            let is_new = tree.find(dir)?.is_some_and(|number| !self.is_lower(tree, number));
            if !is_new || !self.touched.insert(dir.to_owned()) {
                break;
            }
        }
        self.touched.insert(path);
        Ok(())
    }

    /// The changes in order.
    pub(super) fn finish(self, tree: &Tree) -> Vec<LayerChange> {
        let mut names: HashMap<u64, &Path> = HashMap::new();
        let mut changes = self.gone.clone();
        for path in &self.touched {
            // The layer itself may have replaced a node that it put.
            let Some(number) = at(tree, path) else { continue };
            let attr = tree.node(number).attr;
            if attr.is_dir() || attr.nlink < 2 {
                changes.push(LayerChange::Put(path.clone()));
                continue;
            }
            let first = names.get(&attr.ino).copied().or_else(|| self.lower_name(tree, number));
            changes.push(match first {
                Some(first) => LayerChange::Link { first: first.to_owned(), path: path.clone() },
                None => LayerChange::Put(path.clone()),
            });
            names.entry(attr.ino).or_insert(first.unwrap_or(path));
        }
        let times = changed_dirs(&changes, tree);
        // A directory comes before what is in it in the order of paths.
        changes.extend(times.into_iter().rev().map(LayerChange::Times));
        changes
    }

    /// The name of a lower node that it had before the layer, and still has.
    fn lower_name(&self, tree: &Tree, number: NodeNumber) -> Option<&Path> {
        let path = self.lower_names.get(&tree.node(number).attr.ino)?;
        let is_kept = path.ancestors().all(|path| !self.removed.contains(path)) && at(tree, path) == Some(number);
        is_kept.then_some(path)
    }
}

/// The node at a path without symbolic links; `None` if the path has some by now.
fn at(tree: &Tree, path: &Path) -> Option<NodeNumber> {
    let is_real = tree.real_path(path).ok().flatten().is_some_and(|real| real == path);
    if is_real { tree.find(path).ok().flatten() } else { None }
}

/// Directories whose times a caller's changes disturb, as far as they are there at the end.
fn changed_dirs(changes: &[LayerChange], tree: &Tree) -> BTreeSet<PathBuf> {
    let is_dir = |path: &Path| at(tree, path).is_some_and(|number| tree.node(number).attr.is_dir());
    let mut dirs = BTreeSet::new();
    for change in changes {
        let (own, path) = match change {
            LayerChange::Clear(path) | LayerChange::Put(path) => (Some(path.as_path()), path),
            LayerChange::Remove(path) | LayerChange::Link { path, .. } => (None, path),
            LayerChange::Times(_) => continue,
        };
        let parent = if matches!(change, LayerChange::Clear(_)) { None } else { path.parent() };
        for dir in own.into_iter().chain(parent) {
            if !dirs.contains(dir) && is_dir(dir) {
                dirs.insert(dir.to_owned());
            }
        }
    }
    dirs
}
