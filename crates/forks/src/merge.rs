//! Merges the changes of a fork into a snapshot of the target, path by path: first what the fork removed, from the
//! deepest path up, then what it added or changed, from the top down. `fork` calls it, and puts the snapshot in the
//! place of the target.
//!
//! Two nodes are merged value by value: contents, permissions, owner, group and each extended attribute. A value that
//! only one side changed is taken from there; texts are merged by lines. Times are no conflict. A directory that the
//! fork removed goes only if nothing is left in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use vfs::Result;
use vfs::file_system::NodeKind;

use crate::node::Node;
use crate::rules::{self, Choice};
use crate::text::merge_lines;
use crate::touched::Touched;
use crate::tree::Tree;

/// Bytes of the largest file that is merged by lines.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Ends of the names of versions that were not taken.
const SUFFIX_OURS: &str = ".ours";
const SUFFIX_THEIRS: &str = ".theirs";

/// How conflicts are resolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing is merged if there is a conflict.
    #[default]
    Fail,
    /// The target's version stays; the fork's lies beside it as NAME.theirs.
    Ours,
    /// The fork's version is taken; the target's lies beside it as NAME.ours.
    Theirs,
}

/// The options of a merge.
#[derive(Debug, Clone, Default)]
pub struct Merge {
    /// The subvolume to merge into; the base of the fork if not given.
    pub into: Option<PathBuf>,
    /// How conflicts are resolved.
    pub strategy: Strategy,
}

/// Why a path could not be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConflictKind {
    /// Both changed the contents.
    Contents,
    /// Both changed permissions, owner or extended attributes.
    Attributes,
    /// Both have a new node, or nodes of different kinds.
    Kind,
    /// The fork removed it, and the target changed it.
    RemovedInFork,
    /// The fork changed it, or something in it, and the target removed it.
    RemovedInTarget,
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contents => "both changed the contents",
            Self::Attributes => "both changed the attributes",
            Self::Kind => "both have something else there",
            Self::RemovedInFork => "removed in the fork, changed in the target",
            Self::RemovedInTarget => "changed in the fork, removed in the target",
        })
    }
}

/// A path at which fork and target contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The path, from the root of the subvolume.
    pub path: PathBuf,
    /// The contradiction.
    pub kind: ConflictKind,
    /// The version that was not taken lies here, from the root of the subvolume.
    pub kept: Option<PathBuf>,
}

/// The result of a merge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// The subvolume that was merged into.
    pub target: PathBuf,
    /// Names that the merge made, changed or removed.
    pub changes: u64,
    /// The conflicts. With [`Strategy::Fail`] nothing was merged if there are any.
    pub conflicts: Vec<Conflict>,
    /// True if the target has the changes now; false if it had them already, and after conflicts.
    pub is_merged: bool,
}

/// A running merge. `ours` is the writable snapshot of the target.
pub(crate) struct Merger<'v> {
    base: Tree<'v>,
    theirs: Tree<'v>,
    ours: Tree<'v>,
    takes_theirs: bool,
    merged: Merged,
    /// Paths that the first pass removed.
    cleared: BTreeSet<PathBuf>,
    /// Directories of the fork that are made at other paths.
    moved: BTreeMap<PathBuf, PathBuf>,
    /// New names of files with several, made at the end.
    links: Vec<PathBuf>,
}

impl<'v> Merger<'v> {
    pub(crate) fn new(base: Tree<'v>, theirs: Tree<'v>, ours: Tree<'v>, strategy: Strategy) -> Self {
        Self {
            base,
            theirs,
            ours,
            takes_theirs: strategy == Strategy::Theirs,
            merged: Merged::default(),
            cleared: BTreeSet::new(),
            moved: BTreeMap::new(),
            links: Vec::new(),
        }
    }

    /// Applies the changes at the touched paths. The trees of base and fork do not change meanwhile.
    pub(crate) fn run(mut self, touched: &Touched) -> Result<Merged> {
        for path in touched.paths.iter().rev() {
            self.clear(path)?;
        }
        for path in &touched.paths {
            self.apply(path)?;
        }
        self.make_links(touched)?;
        self.merged.conflicts.sort();
        self.merged.conflicts.dedup();
        Ok(self.merged)
    }

    fn conflict(&mut self, path: &Path, kind: ConflictKind, kept: Option<PathBuf>) {
        self.merged.conflicts.push(Conflict { path: path.to_owned(), kind, kept });
    }

    /// Removes what the fork removed, or replaced by another kind of node.
    fn clear(&mut self, path: &Path) -> Result<()> {
        let Some(base) = self.base.node(path)? else { return Ok(()) };
        let theirs = self.theirs.node(path)?;
        if theirs.as_ref().is_some_and(|theirs| theirs.kind == base.kind) {
            return Ok(());
        }
        let Some(ours) = self.ours.node(path)? else { return Ok(()) };
        if self.is_unchanged(path, &base, path, &ours)? {
            if !ours.is_dir() || self.ours.is_empty_dir(path)? {
                self.ours.remove(path, &ours)?;
                self.merged.changes += 1;
                self.cleared.insert(path.to_owned());
            }
            return Ok(());
        }
        // The second pass sees both kinds.
        if theirs.is_some() {
            return Ok(());
        }
        let mut kept = None;
        if self.takes_theirs {
            if !ours.is_dir() {
                kept = self.move_aside(path)?;
            } else if self.ours.is_empty_dir(path)? {
                self.ours.remove(path, &ours)?;
                self.merged.changes += 1;
            }
        }
        self.conflict(path, ConflictKind::RemovedInFork, kept);
        Ok(())
    }

    /// True if a node of the target is as the base has it. The entries of a directory do not count.
    fn is_unchanged(&self, path: &Path, base: &Node, at: &Path, ours: &Node) -> Result<bool> {
        Ok(base.kind == ours.kind
            && base.attributes == ours.attributes
            && same_contents((&self.base, path, base), (&self.ours, at, ours))?)
    }

    /// Adds or changes what the fork has at a path.
    fn apply(&mut self, path: &Path) -> Result<()> {
        let Some(theirs) = self.theirs.node(path)? else { return Ok(()) };
        let base = self.base.node(path)?;
        if let Some(base) = &base
            && base.kind == theirs.kind
            && base.attributes == theirs.attributes
            && same_contents((&self.base, path, base), (&self.theirs, path, &theirs))?
        {
            return Ok(());
        }
        let at = self.moved_path(path);
        match self.ours.node(&at)? {
            None => self.add(path, &at, base.as_ref(), &theirs),
            Some(ours) if ours.kind == theirs.kind => self.change(path, &at, base.as_ref(), &theirs, &ours),
            Some(ours) => self.replace(path, &at, base.as_ref(), &theirs, &ours),
        }
    }

    /// The path in the target: another one below a directory that lies beside a conflict.
    fn moved_path(&self, path: &Path) -> PathBuf {
        let above = path.ancestors().find_map(|dir| Some((dir, self.moved.get(dir)?)));
        match above {
            Some((dir, to)) => path.strip_prefix(dir).map_or_else(|_| path.to_owned(), |rest| to.join(rest)),
            None => path.to_owned(),
        }
    }

    /// Adds a node that the target does not have.
    fn add(&mut self, path: &Path, at: &Path, base: Option<&Node>, theirs: &Node) -> Result<()> {
        let parent = at.parent().unwrap_or(Path::new(""));
        let has_parent = self.ours.is_plain_dir(parent)?;
        let is_new = base.is_none() || self.cleared.contains(path);
        let is_moved = at != path;
        if has_parent && (is_new || is_moved) {
            if theirs.nlink > 1 && !theirs.is_dir() {
                self.links.push(path.to_owned());
                return Ok(());
            }
            return self.place(path, at, theirs);
        }
        let mut kept = None;
        if self.takes_theirs {
            if has_parent || self.restore_dirs(parent)? {
                self.place(path, at, theirs)?;
            }
        } else if has_parent && !theirs.is_dir() {
            kept = self.place_beside(path, at, theirs)?;
        }
        self.conflict(path, ConflictKind::RemovedInTarget, kept);
        Ok(())
    }

    /// Makes directories of the fork that the target removed; false if something else stays in their place.
    fn restore_dirs(&mut self, dir: &Path) -> Result<bool> {
        let missing: Vec<PathBuf> = dir.ancestors().map(Path::to_owned).collect();
        for dir in missing.iter().rev() {
            if self.ours.is_plain_dir(dir)? {
                continue;
            }
            let Some(theirs) = self.theirs.node(dir)?.filter(Node::is_dir) else { return Ok(false) };
            if self.ours.node(dir)?.is_some() {
                let kept = self.move_aside(dir)?;
                let is_moved = kept.is_some();
                self.conflict(dir, ConflictKind::Kind, kept);
                if !is_moved {
                    return Ok(false);
                }
            }
            self.place(dir, dir, &theirs)?;
        }
        Ok(true)
    }

    fn place(&mut self, path: &Path, at: &Path, theirs: &Node) -> Result<()> {
        self.ours.place(at, &self.theirs, path, theirs)?;
        self.merged.changes += 1;
        Ok(())
    }

    /// Places the fork's version as NAME.theirs.
    fn place_beside(&mut self, path: &Path, at: &Path, theirs: &Node) -> Result<Option<PathBuf>> {
        let beside = self.ours.free_beside(at, SUFFIX_THEIRS)?;
        if let Some(beside) = &beside {
            self.place(path, beside, theirs)?;
        }
        Ok(beside)
    }

    /// Renames the target's version to NAME.ours.
    fn move_aside(&mut self, at: &Path) -> Result<Option<PathBuf>> {
        let beside = self.ours.free_beside(at, SUFFIX_OURS)?;
        if let Some(beside) = &beside {
            self.ours.rename(at, beside)?;
            self.merged.changes += 1;
        }
        Ok(beside)
    }

    /// Merges two nodes of different kinds.
    fn replace(&mut self, path: &Path, at: &Path, base: Option<&Node>, theirs: &Node, ours: &Node) -> Result<()> {
        if let Some(base) = base
            && self.is_unchanged(path, base, at, ours)?
            && !ours.is_dir()
        {
            self.ours.remove(at, ours)?;
            return self.place(path, at, theirs);
        }
        let kept = if self.takes_theirs {
            let kept = self.move_aside(at)?;
            if kept.is_some() {
                self.place(path, at, theirs)?;
            }
            kept
        } else {
            let kept = self.place_beside(path, at, theirs)?;
            if let Some(kept) = kept.as_ref().filter(|_| theirs.is_dir()) {
                self.moved.insert(path.to_owned(), kept.clone());
            }
            kept
        };
        self.conflict(path, ConflictKind::Kind, kept);
        Ok(())
    }

    /// Merges two nodes of the same kind.
    fn change(&mut self, path: &Path, at: &Path, base: Option<&Node>, theirs: &Node, ours: &Node) -> Result<()> {
        let base = base.filter(|base| base.kind == theirs.kind);
        let (attributes, conflicts) = rules::attributes(
            base.map(|base| &base.attributes),
            &theirs.attributes,
            &ours.attributes,
            self.takes_theirs,
        );
        if conflicts {
            self.conflict(path, ConflictKind::Attributes, None);
        }
        let mut now = ours.clone();
        if !theirs.is_dir() {
            self.change_contents(path, at, base, theirs, &mut now)?;
        }
        if attributes != now.attributes {
            self.ours.set_attributes(at, theirs.kind, &now.attributes, &attributes)?;
            self.merged.changes += 1;
        }
        Ok(())
    }

    fn change_contents(
        &mut self,
        path: &Path,
        at: &Path,
        base: Option<&Node>,
        theirs: &Node,
        ours: &mut Node,
    ) -> Result<()> {
        let (their, our) = ((&self.theirs, path, theirs), (&self.ours, at, &*ours));
        let choice = if same_contents(their, our)? {
            Choice::Ours
        } else if let Some(base) = base {
            let base = (&self.base, path, base);
            match (same_contents(base, their)?, same_contents(base, our)?) {
                (true, _) => Choice::Ours,
                (_, true) => Choice::Theirs,
                _ => Choice::Conflict,
            }
        } else {
            Choice::Conflict
        };
        match choice {
            Choice::Ours => Ok(()),
            Choice::Theirs => self.take_contents(path, at, theirs, ours),
            Choice::Conflict => self.merge_contents(path, at, base, theirs, ours),
        }
    }

    /// Gives the target's node the contents of the fork's.
    fn take_contents(&mut self, path: &Path, at: &Path, theirs: &Node, ours: &mut Node) -> Result<()> {
        self.merged.changes += 1;
        // In the fork it is a file of its own: the other names in the target keep their contents.
        let is_shared = ours.nlink > 1 && theirs.nlink == 1;
        if ours.kind.is_file() && !is_shared {
            (ours.mtime, ours.size) = (theirs.mtime, theirs.size);
            return self.ours.set_data(at, &self.theirs, path, ours);
        }
        self.ours.remove(at, ours)?;
        let new = Node { attributes: ours.attributes.clone(), ..theirs.clone() };
        self.ours.place(at, &self.theirs, path, &new)
    }

    /// Merges contents that both changed: texts by lines.
    fn merge_contents(
        &mut self,
        path: &Path,
        at: &Path,
        base: Option<&Node>,
        theirs: &Node,
        ours: &mut Node,
    ) -> Result<()> {
        let nodes = [Some(theirs), Some(&*ours), base];
        if nodes.iter().all(|node| node.is_some_and(is_small_file)) {
            let texts = (self.base.read(path)?, self.ours.read(at)?, self.theirs.read(path)?);
            let is_text = [&texts.0, &texts.1, &texts.2].iter().all(|text| !text.contains(&0));
            let merged = if is_text { merge_lines(&texts.0, &texts.1, &texts.2) } else { None };
            if let Some(merged) = merged {
                ours.mtime = theirs.mtime.max(ours.mtime);
                self.merged.changes += 1;
                return self.ours.set_bytes(at, &merged, ours);
            }
        }
        let kept = if self.takes_theirs {
            let beside = self.ours.free_beside(at, SUFFIX_OURS)?;
            if let Some(beside) = &beside {
                self.ours.place_own(at, beside, ours)?;
                self.merged.changes += 1;
                self.take_contents(path, at, theirs, ours)?;
            }
            beside
        } else {
            self.place_beside(path, at, theirs)?
        };
        self.conflict(path, ConflictKind::Contents, kept);
        Ok(())
    }

    /// Makes the new names of files that have several in the fork.
    fn make_links(&mut self, touched: &Touched) -> Result<()> {
        let mut made: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for path in std::mem::take(&mut self.links) {
            let Some(theirs) = self.theirs.node(&path)? else { continue };
            let at = self.moved_path(&path);
            let known = match made.get(&theirs.ino) {
                Some(known) => Some(known.clone()),
                None => self.same_file(touched.known_names.get(&theirs.ino), &theirs)?,
            };
            match known {
                Some(known) => {
                    self.ours.link(&known, &at)?;
                    self.merged.changes += 1;
                }
                None => {
                    self.place(&path, &at, &theirs)?;
                    made.insert(theirs.ino, at);
                }
            }
        }
        Ok(())
    }

    /// The path, if the target has there what the fork has.
    fn same_file(&self, path: Option<&PathBuf>, theirs: &Node) -> Result<Option<PathBuf>> {
        let Some(path) = path else { return Ok(None) };
        let Some(ours) = self.ours.node(path)? else { return Ok(None) };
        let is_same = ours.kind == theirs.kind
            && ours.attributes == theirs.attributes
            && same_contents((&self.theirs, path, theirs), (&self.ours, path, &ours))?;
        Ok(is_same.then(|| path.clone()))
    }
}

fn is_small_file(node: &Node) -> bool {
    node.kind.is_file() && node.size <= TEXT_BYTES_MAX
}

/// A node in a tree.
type Held<'a, 'v> = (&'a Tree<'v>, &'a Path, &'a Node);

/// True if two nodes of the same kind have the same contents.
fn same_contents((tree, path, node): Held<'_, '_>, (other, other_path, other_node): Held<'_, '_>) -> Result<bool> {
    match node.kind {
        NodeKind::File => Ok(node.size == other_node.size && tree.has_same_data(path, other, other_path)?),
        NodeKind::Symlink => Ok(node.target == other_node.target),
        NodeKind::CharDevice | NodeKind::BlockDevice => Ok(node.rdev == other_node.rdev),
        NodeKind::Directory | NodeKind::Fifo | NodeKind::Socket => Ok(true),
    }
}
