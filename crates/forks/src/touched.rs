//! Collects the paths at which a fork differs from its ancestor. `merge` and `patch` call it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use btrfs::{Change, ChangeKind, Named};
use vfs::Result;

use crate::tree::Tree;

/// The paths, and what hard links need.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Paths that either tree has and that may differ. A directory comes before what is in it.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// For an inode of the fork with an added name: a name that the ancestor had, too.
    pub(crate) known_names: BTreeMap<u64, PathBuf>,
}

impl Touched {
    /// Adds a change. Everything below a directory that was renamed is touched at both places.
    pub(crate) fn add(&mut self, change: &Change, old: &Tree<'_>, new: &Tree<'_>) -> Result<()> {
        for name in &change.names {
            match name {
                Named::Added(path) | Named::Removed(path) => {
                    self.paths.insert(path.clone());
                }
                Named::Renamed(from, to) => {
                    for (tree, path) in [(old, from), (new, to)] {
                        self.paths.insert(path.clone());
                        if change.kind.is_dir() {
                            self.add_below(tree, path)?;
                        }
                    }
                }
            }
        }
        if let ChangeKind::Changed { path, .. } = &change.what {
            let is_new = change.names.iter().any(|name| matches!(name, Named::Added(new) if new == path));
            if !is_new {
                self.known_names.insert(change.ino.0, path.clone());
            }
            self.paths.insert(path.clone());
        }
        Ok(())
    }

    fn add_below(&mut self, tree: &Tree<'_>, top: &Path) -> Result<()> {
        let mut todo = vec![top.to_owned()];
        while let Some(dir) = todo.pop() {
            for (name, kind) in tree.names(&dir)? {
                let path = dir.join(name);
                if kind.is_dir() && tree.is_plain_dir(&path)? {
                    todo.push(path.clone());
                }
                self.paths.insert(path);
            }
        }
        Ok(())
    }
}
