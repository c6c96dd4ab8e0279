//! Finds deleted files: inodes in unreferenced leaves that the newest state does not have.
//!
//! A leaf of generation G belonged to its tree at commit G, so its files are read from state G, as far as its blocks
//! still exist. `Rescue::undelete` calls it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::{Key, TreeId, Uuid};

use crate::blocks::{At, Blocks};
use crate::inode::{self, File};
use crate::listing::{Target, path_of};
use crate::orphans::is_inode;
use crate::roots::starts;
use crate::state::{Pick, State};
use crate::tree_view::TreeView;

/// Limit on deleted files returned.
const HITS_MAX: usize = 100_000;
/// Limit on earlier states opened.
const STATES_MAX: usize = 256;

/// A deleted file or directory.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its path from the top level, below `lost+found` if a parent is lost.
    pub path: Vec<u8>,
    /// Generation of the newest state that has it.
    pub generation: u64,
    /// Number of its subvolume.
    pub subvolume: u64,
    /// Number of its inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of its contents, seconds since 1970.
    pub seconds: i64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// States with deleted files, by generation.
type Views = BTreeMap<u64, Arc<TreeView>>;

/// Finds deleted files, directories and subvolumes whose name, or path if the pattern has a slash, matches, and the
/// states that have them.
pub(crate) fn find(
    blocks: &Arc<Blocks>,
    fields: Option<&DiskSuperblock>,
    newest: &State,
    pattern: &[u8],
) -> (Vec<Deleted>, Views) {
    let mut search = Search {
        blocks,
        newest,
        pattern,
        roots: BTreeMap::new(),
        found: Vec::new(),
        inside: HashSet::new(),
        views: Views::new(),
    };
    for start in starts(blocks, fields) {
        search.roots.entry(start.at.generation).or_insert((start.at, start.level));
    }
    search.subvolumes();
    search.files();
    let Search { mut found, views, .. } = search;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    (found, views)
}

struct Search<'a> {
    blocks: &'a Arc<Blocks>,
    newest: &'a State,
    pattern: &'a [u8],
    /// Root tree roots by generation, as far as known.
    roots: BTreeMap<u64, (At, u8)>,
    found: Vec<Deleted>,
    /// Files of deleted subvolumes, from the newest state that lists each subvolume.
    inside: HashSet<File>,
    views: Views,
}

impl Search<'_> {
    fn by_path(&self) -> bool {
        self.pattern.contains(&b'/')
    }

    fn view(&mut self, generation: u64) -> Arc<TreeView> {
        let pick = Pick { root: self.roots.get(&generation).copied(), generation_max: generation, is_strict: false };
        let blocks = self.blocks;
        let view = self.views.entry(generation);
        Arc::clone(view.or_insert_with(|| Arc::new(TreeView::new(State::open(blocks, pick)))))
    }

    /// Adds a file of a state if its path matches.
    fn take(&mut self, view: &TreeView, generation: u64, file: File) -> bool {
        let Some(inode) = inode::read(&view.state, file) else { return false };
        let path = path_of(&view.state, &view.listings, file);
        if self.by_path() && !matches(self.pattern, &path) {
            return false;
        }
        self.found.push(Deleted {
            path,
            generation,
            subvolume: file.0,
            inode: file.1,
            size: inode.size,
            seconds: inode.times.get(1).map_or(0, |time| time.sec),
            is_dir: inode.kind.is_dir(),
        });
        true
    }

    /// Finds subvolumes that older states list and the newest does not.
    fn subvolumes(&mut self) {
        // The blocks of a snapshot may be owned by its source, which still exists, so a deleted snapshot is searched
        // from its own root and not by block owner.
        let mut seen: HashSet<(u64, Uuid)> = HashSet::new();
        for (generation, root) in self.roots.clone().into_iter().rev().take(STATES_MAX) {
            let pick = Pick { root: Some(root), generation_max: generation, is_strict: true };
            let state = State::open(self.blocks, pick);
            let placed: Vec<(u64, Vec<u8>)> =
                state.placed.values().flatten().map(|placed| (placed.tree, placed.name.clone())).collect();
            for (tree, name) in placed {
                let Some(info) = state.infos.get(&tree) else { continue };
                // A new subvolume may have reused the number.
                let is_gone = self.newest.infos.get(&tree).is_none_or(|newer| newer.uuid != info.uuid);
                if is_gone && seen.insert((tree, info.uuid)) {
                    let view = self.view(generation);
                    let top = view.state.infos.get(&tree).map_or(256, |info| info.top);
                    if self.by_path() || matches(self.pattern, &name) {
                        self.take(&view, generation, (tree, top));
                    }
                    self.inside(&view, generation, (tree, top));
                }
            }
        }
    }

    /// Adds the files of a deleted subvolume.
    fn inside(&mut self, view: &TreeView, generation: u64, top: File) {
        let mut walked = HashSet::from([top]);
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            for named in &view.listings.list(&view.state, dir).names {
                let Target::File(file) = named.target else { continue };
                if file.0 != top.0 || walked.len() >= HITS_MAX || !walked.insert(file) {
                    continue;
                }
                if named.kind.is_dir() {
                    dirs.push(file);
                }
                let is_wanted = self.by_path() || matches(self.pattern, &named.name);
                if is_wanted && self.take(view, generation, file) {
                    self.inside.insert(file);
                }
            }
        }
    }

    /// Adds files and directories, each from the newest state that has it.
    fn files(&mut self) {
        let by_path = self.by_path();
        let pattern = self.pattern;
        let hits = hits(self.blocks, self.newest, |name| by_path || matches(pattern, name));
        let mut by_generation: BTreeMap<u64, Vec<File>> = BTreeMap::new();
        for (file, generation) in hits.into_iter().filter(|(file, _)| !self.inside.contains(file)) {
            by_generation.entry(generation).or_default().push(file);
        }
        for (generation, mut files) in by_generation.into_iter().rev().take(STATES_MAX) {
            files.sort_unstable();
            let (count, is_new) = (self.found.len(), !self.views.contains_key(&generation));
            let view = self.view(generation);
            for file in files {
                self.take(&view, generation, file);
            }
            if is_new && self.found.len() == count {
                self.views.remove(&generation);
            }
        }
    }
}

/// Inodes missing from the newest state, each with the newest generation that has it.
fn hits(blocks: &Arc<Blocks>, newest: &State, is_wanted: impl Fn(&[u8]) -> bool) -> HashMap<File, u64> {
    let mut hits: HashMap<File, u64> = HashMap::new();
    let owners = blocks.table().owners();
    for tree in owners.into_iter().filter(|owner| TreeId(*owner).is_subvolume()) {
        let current = newest.infos.contains_key(&tree).then(|| newest.tree(tree));
        let used: HashSet<At> = current.iter().flat_map(|leaves| leaves.used()).collect();
        for found in blocks.table().of(tree, 0) {
            let at = At { logical: found.logical, generation: found.generation };
            if used.contains(&at) || found.generation > newest.pick.generation_max {
                continue;
            }
            let Some(block) = blocks.read(at, 0) else { continue };
            for (key, data) in LeafView::new(&block).iter() {
                let is_name = matches!(key.item_type, item_type::INODE_REF | item_type::INODE_EXTREF);
                let file = (tree, key.objectid);
                if !is_name || !is_inode(key.objectid) || hits.contains_key(&file) || hits.len() >= HITS_MAX {
                    continue;
                }
                if !inode::backs(key, data).any(|back| is_wanted(&back.name)) {
                    continue;
                }
                let item = Key::new(key.objectid, item_type::INODE_ITEM, 0);
                let is_there = current.as_ref().is_some_and(|leaves| leaves.get(blocks, item).is_some());
                if !is_there {
                    hits.insert(file, found.generation);
                }
            }
        }
    }
    hits
}

/// Matches a name against a pattern with wildcards `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut behind) = ((0, 0), None);
    loop {
        let (p, n) = at;
        match (pattern.get(p), name.get(n)) {
            (Some(b'*'), _) => {
                behind = Some((p + 1, n));
                at = (p + 1, n);
            }
            (Some(b'?'), Some(_)) => at = (p + 1, n + 1),
            (Some(wanted), Some(found)) if wanted == found => at = (p + 1, n + 1),
            (None, None) => return true,
            _ => match behind {
                Some((p, n)) if n < name.len() => {
                    behind = Some((p, n + 1));
                    at = (p, n + 1);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, name) in
            [("*.txt", "a.txt"), ("a?c*", "abc"), ("*", ""), ("/home/*/x*", "/home/u/v/xy"), ("a", "a")]
        {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("*.txt", "a.tx"), ("a", ""), ("", "a"), ("?", ""), ("a*b", "abc")] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
