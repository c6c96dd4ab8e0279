//! Finds names of a `Tree` by paths, as a process would that has the tree's root as its own root directory, and walks
//! all of them. Called by the parts of `tree`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use portable::{OsStrExt as _, OsStringExt as _};

use super::{LINKS_FOLLOWED_MAX, NodeNumber, Tree, implied, is_root, refused};
use crate::error::Result;
use crate::rules::check_name;

/// Where one part of a path leads.
enum Step {
    At(NodeNumber),
    /// The directory has no such name.
    Missing(OsString),
}

/// The parts of a path, without those that mean nothing.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsString::from_vec(part.to_vec()))
}

impl Tree {
    /// The directory and the name that `path` means; the directories on the way are made. `None` for the root.
    pub(super) fn place(&mut self, path: &Path) -> Result<Option<(NodeNumber, OsString)>> {
        let Some((mut left, last)) = split(path)? else { return Ok(None) };
        // The directories above each, so that `..` leads back.
        let (mut above, mut dir, mut followed) = (Vec::new(), self.root(), 0);
        while let Some(step) = self.step(path, &mut left, &mut above, dir, &mut followed)? {
            dir = match step {
                Step::At(next) => next,
                Step::Missing(name) => {
                    let node = implied(self.implied_time);
                    self.add(path, dir, name, node, true)?
                }
            };
        }
        Ok(Some((dir, last)))
    }

    /// As [`Tree::place`], but `None` also where a directory on the way is missing.
    pub(super) fn look_for(&self, path: &Path) -> Result<Option<(NodeNumber, OsString)>> {
        let Some((mut left, last)) = split(path)? else { return Ok(None) };
        let (mut above, mut dir, mut followed) = (Vec::new(), self.root(), 0);
        while let Some(step) = self.step(path, &mut left, &mut above, dir, &mut followed)? {
            match step {
                Step::At(next) => dir = next,
                Step::Missing(_) => return Ok(None),
            }
        }
        Ok(Some((dir, last)))
    }

    /// The path of a name without symbolic links, `.` and `..`: of the directories that `path` leads through, and its
    /// last name, which may be missing. The empty path for the root; `None` where a directory on the way is missing.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn real_path(&self, path: &Path) -> Result<Option<PathBuf>> {
        let Some((mut left, last)) = split(path)? else { return Ok(is_root(path).then(PathBuf::new)) };
        let (mut above, mut dir, mut followed) = (Vec::new(), self.root(), 0);
        let mut names: Vec<OsString> = Vec::new();
        while let Some(part) = left.front().cloned() {
            let depth = above.len();
            match self.step(path, &mut left, &mut above, dir, &mut followed)? {
                Some(Step::At(next)) => dir = next,
                Some(Step::Missing(_)) => return Ok(None),
                None => break,
            }
            if above.len() > depth {
                names.push(part);
            }
            names.truncate(above.len());
        }
        Ok(Some(names.into_iter().chain([last]).collect()))
    }

    /// Takes the next part of `left`. `None` when there is none.
    fn step(
        &self,
        path: &Path,
        left: &mut VecDeque<OsString>,
        above: &mut Vec<NodeNumber>,
        dir: NodeNumber,
        followed: &mut usize,
    ) -> Result<Option<Step>> {
        let Some(part) = left.pop_front() else { return Ok(None) };
        if part == ".." {
            return Ok(Some(Step::At(above.pop().unwrap_or(self.root()))));
        }
        check_name(&part).map_err(|error| error.about(path))?;
        let Some(next) = self.at(dir).names.get(&part).copied() else {
            above.push(dir);
            return Ok(Some(Step::Missing(part)));
        };
        let node = self.node(next);
        if node.attr.is_symlink() {
            *followed += 1;
            if *followed > LINKS_FOLLOWED_MAX {
                return Err(refused(path, format!("more than {LINKS_FOLLOWED_MAX} symbolic links on the way")));
            }
            let target = node.target.as_deref().unwrap_or_default();
            parts(target).rev().for_each(|part| left.push_front(part));
            if target.starts_with(b"/") {
                above.clear();
                return Ok(Some(Step::At(self.root())));
            }
            return Ok(Some(Step::At(dir)));
        }
        if !node.attr.is_dir() {
            return Err(refused(path, format!("`{}` on the way is no directory", part.display())));
        }
        above.push(dir);
        Ok(Some(Step::At(next)))
    }
}

/// The parts on the way to the last name, and that name. `None` for the root.
fn split(path: &Path) -> Result<Option<(VecDeque<OsString>, OsString)>> {
    let mut all: VecDeque<OsString> = parts(path.as_os_str().as_bytes()).collect();
    let Some(last) = all.pop_back() else { return Ok(None) };
    check_name(&last).map_err(|error| error.about(path))?;
    Ok(Some((all, last)))
}

/// All nodes of a tree with their paths; see [`Tree::walk`].
#[derive(Debug)]
pub struct Walk<'a> {
    tree: &'a Tree,
    /// Nodes that are still to come, the next one last.
    waiting: Vec<(PathBuf, NodeNumber)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Self { tree, waiting: vec![(PathBuf::new(), tree.root())] }
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, NodeNumber);

    fn next(&mut self) -> Option<Self::Item> {
        let (path, number) = self.waiting.pop()?;
        let names: Vec<(&OsStr, NodeNumber)> = self.tree.names(number).collect();
        self.waiting.extend(names.into_iter().rev().map(|(name, number)| (path.join(name), number)));
        Some((path, number))
    }
}
