//! The rules of a merge, on plain maps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use forks::{ConflictKind, Strategy, merge_lines};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Dir,
    File(Vec<u8>),
    Link(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) tag: Option<u8>,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    fn is_alike(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.kind) == std::mem::discriminant(&other.kind)
    }
}

pub(crate) type Map = BTreeMap<PathBuf, Node>;
pub(crate) type Conflicts = BTreeSet<(PathBuf, ConflictKind)>;

pub(crate) fn is_empty(map: &Map, dir: &Path) -> bool {
    !map.keys().any(|path| path.parent() == Some(dir))
}

fn has_dir(map: &Map, dir: &Path) -> bool {
    dir.as_os_str().is_empty() || map.get(dir).is_some_and(Node::is_dir)
}

/// Moves a path and everything below it.
pub(crate) fn move_all(map: &mut Map, from: &Path, to: &Path) {
    let below: Vec<PathBuf> = map.keys().filter(|path| path.starts_with(from)).cloned().collect();
    for path in below {
        let node = map.remove(&path).unwrap();
        let rest = path.strip_prefix(from).unwrap();
        map.insert(if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) }, node);
    }
}

fn beside(map: &Map, path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap().to_str().unwrap();
    let numbered = (1..).map(|number| format!("{name}{suffix}.{number}"));
    let mut names = std::iter::once(format!("{name}{suffix}")).chain(numbered);
    names.find_map(|name| Some(path.with_file_name(name)).filter(|path| !map.contains_key(path))).unwrap()
}

struct Merging<'a> {
    base: &'a Map,
    fork: &'a Map,
    result: Map,
    theirs: bool,
    conflicts: Conflicts,
    moved: BTreeMap<PathBuf, PathBuf>,
    cleared: BTreeSet<PathBuf>,
}

/// The target after the merge of `fork`, and the conflicts.
pub(crate) fn merge(base: &Map, fork: &Map, target: &Map, strategy: Strategy) -> (Map, Conflicts) {
    let paths: BTreeSet<&PathBuf> = base.keys().chain(fork.keys()).collect();
    let touched: Vec<&PathBuf> = paths.into_iter().filter(|path| base.get(*path) != fork.get(*path)).collect();
    let mut merging = Merging {
        base,
        fork,
        result: target.clone(),
        theirs: strategy == Strategy::Theirs,
        conflicts: Conflicts::new(),
        moved: BTreeMap::new(),
        cleared: BTreeSet::new(),
    };
    touched.iter().rev().for_each(|path| merging.clear(path));
    touched.iter().for_each(|path| merging.apply(path));
    let Merging { result, conflicts, .. } = merging;
    if strategy == Strategy::Fail && !conflicts.is_empty() {
        return (target.clone(), conflicts);
    }
    (result, conflicts)
}

impl Merging<'_> {
    fn conflict(&mut self, path: &Path, kind: ConflictKind) {
        self.conflicts.insert((path.to_owned(), kind));
    }

    fn clear(&mut self, path: &Path) {
        let Some(base) = self.base.get(path) else { return };
        let fork = self.fork.get(path);
        if fork.is_some_and(|fork| fork.is_alike(base)) {
            return;
        }
        let Some(ours) = self.result.get(path).cloned() else { return };
        let can_go = !ours.is_dir() || is_empty(&self.result, path);
        if ours == *base {
            if can_go {
                self.result.remove(path);
                self.cleared.insert(path.to_owned());
            }
        } else if fork.is_none() {
            if self.theirs && !ours.is_dir() {
                let kept = beside(&self.result, path, ".ours");
                move_all(&mut self.result, path, &kept);
            } else if self.theirs && can_go {
                self.result.remove(path);
            }
            self.conflict(path, ConflictKind::RemovedInFork);
        }
    }

    fn apply(&mut self, path: &Path) {
        let Some(fork) = self.fork.get(path).cloned() else { return };
        let base = self.base.get(path).cloned();
        let above = path.ancestors().find_map(|dir| Some((dir, self.moved.get(dir)?)));
        let at = above.map_or(path.to_owned(), |(dir, to)| to.join(path.strip_prefix(dir).unwrap()));
        match self.result.get(&at).cloned() {
            None => self.add(path, &at, base.as_ref(), fork),
            Some(ours) if ours.is_alike(&fork) => self.change(path, &at, base.as_ref(), &fork, ours),
            Some(ours) => self.replace(path, &at, base.as_ref(), fork, &ours),
        }
    }

    fn add(&mut self, path: &Path, at: &Path, base: Option<&Node>, fork: Node) {
        let parent = at.parent().unwrap();
        let has_parent = has_dir(&self.result, parent);
        if has_parent && (base.is_none() || self.cleared.contains(path) || at != path) {
            self.result.insert(at.to_owned(), fork);
            return;
        }
        self.conflict(path, ConflictKind::RemovedInTarget);
        if self.theirs {
            let dirs: Vec<PathBuf> = parent.ancestors().map(Path::to_owned).collect();
            for dir in dirs.iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
                if has_dir(&self.result, dir) {
                    continue;
                }
                if self.result.contains_key(dir) {
                    let kept = beside(&self.result, dir, ".ours");
                    move_all(&mut self.result, dir, &kept);
                    self.conflict(dir, ConflictKind::Kind);
                }
                self.result.insert(dir.clone(), self.fork[dir].clone());
            }
            self.result.insert(at.to_owned(), fork);
        } else if has_parent && !fork.is_dir() {
            let kept = beside(&self.result, at, ".theirs");
            self.result.insert(kept, fork);
        }
    }

    fn replace(&mut self, path: &Path, at: &Path, base: Option<&Node>, fork: Node, ours: &Node) {
        if base == Some(ours) && !ours.is_dir() {
            self.result.insert(at.to_owned(), fork);
            return;
        }
        self.conflict(path, ConflictKind::Kind);
        if self.theirs {
            let kept = beside(&self.result, at, ".ours");
            move_all(&mut self.result, at, &kept);
            self.result.insert(at.to_owned(), fork);
        } else {
            let kept = beside(&self.result, at, ".theirs");
            if fork.is_dir() {
                self.moved.insert(path.to_owned(), kept.clone());
            }
            self.result.insert(kept, fork);
        }
    }

    fn change(&mut self, path: &Path, at: &Path, base: Option<&Node>, fork: &Node, ours: Node) {
        let base = base.filter(|base| base.is_alike(fork));
        let mut new = ours.clone();
        let (mode, clash) = three(base.map(|base| &base.mode), &fork.mode, &ours.mode, self.theirs);
        // A tag that only one has was added by it.
        let tag = Some(base.map_or(&None, |base| &base.tag));
        let (tag, tags_clash) = three(tag, &fork.tag, &ours.tag, self.theirs);
        if clash || tags_clash {
            self.conflict(path, ConflictKind::Attributes);
        }
        let (kind, clash) = three(base.map(|base| &base.kind), &fork.kind, &ours.kind, self.theirs);
        let base_kind = base.map(|base| &base.kind);
        new.kind = match (clash, text_merge(base_kind, &fork.kind, &ours.kind)) {
            (true, Some(text)) => Kind::File(text),
            (true, None) => {
                self.conflict(path, ConflictKind::Contents);
                let suffix = if self.theirs { ".ours" } else { ".theirs" };
                let kept = beside(&self.result, at, suffix);
                self.result.insert(kept, if self.theirs { ours.clone() } else { fork.clone() });
                kind
            }
            (false, _) => kind,
        };
        (new.mode, new.tag) = (mode, tag);
        self.result.insert(at.to_owned(), new);
    }
}

fn text_merge(base: Option<&Kind>, fork: &Kind, ours: &Kind) -> Option<Vec<u8>> {
    match (base, fork, ours) {
        (Some(Kind::File(base)), Kind::File(fork), Kind::File(ours))
            if [base, fork, ours].iter().all(|text| !text.contains(&0)) =>
        {
            merge_lines(base, ours, fork)
        }
        _ => None,
    }
}

/// The merged value, and whether both sides changed it in different ways.
fn three<T: Clone + PartialEq>(base: Option<&T>, fork: &T, ours: &T, theirs: bool) -> (T, bool) {
    if fork == ours || base == Some(fork) {
        (ours.clone(), false)
    } else if base == Some(ours) {
        (fork.clone(), false)
    } else {
        (if theirs { fork.clone() } else { ours.clone() }, true)
    }
}
