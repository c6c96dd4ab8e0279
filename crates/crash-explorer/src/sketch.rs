//! Makes the prerequisites of a workload's operations: existing files and directories, bytes to be overwritten,
//! attributes to be removed. `ace`, `programs` and `random_workloads` call it.

use super::step::{Reserve, Step, WriteHow};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that are written to a file before it is overwritten, cut or punched.
pub(super) const FILLED_BYTES: u64 = 16 << 10;
/// Initial of the name of a directory at the top that is a subvolume.
const SUBVOLUME_INITIAL: char = 'S';
/// The attribute of all workloads.
pub(super) const XATTR: &str = "user.xattr1";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    Symlink,
    /// Names of one file have the same number.
    File {
        len: u64,
        number: usize,
    },
}

/// Names and kinds, as far as a workload's generator has to know them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sketch {
    names: BTreeMap<String, Kind>,
    with_xattr: BTreeSet<String>,
    /// Directories that are the roots of subvolumes, the top apart.
    subvolumes: BTreeSet<String>,
    files: usize,
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Sketch {
    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.names.contains_key(path)
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        matches!(self.names.get(path), Some(Kind::File { .. }))
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.names.get(path) == Some(&Kind::Directory)
    }

    pub(super) fn len(&self, path: &str) -> u64 {
        if let Some(Kind::File { len, .. }) = self.names.get(path) { *len } else { 0 }
    }

    pub(super) fn can_be_synced(&self, path: &str) -> bool {
        self.is_dir(path) || self.is_file(path)
    }

    fn children(&self, path: &str) -> impl Iterator<Item = &String> {
        let prefix = format!("{path}/");
        self.names.keys().filter(move |name| name.starts_with(&prefix))
    }

    /// The prerequisites of `step`, followed by `step`; empty if it is impossible.
    pub(super) fn complete(&mut self, step: &Step) -> Vec<Step> {
        let mut steps = Vec::new();
        let before = self.clone();
        if self.prepare(step, &mut steps) {
            self.take(step);
            steps.push(step.clone());
            return steps;
        }
        *self = before;
        Vec::new()
    }

    fn prepare(&mut self, step: &Step, steps: &mut Vec<Step>) -> bool {
        match step {
            Step::Create { path } => self.need_folder(parent(path), steps) && (!self.has(path) || self.is_file(path)),
            Step::CreateDir { path } | Step::Symlink { path, .. } => {
                self.need_folder(parent(path), steps) && !self.has(path)
            }
            Step::Write { path, how: WriteHow::Mapped, offset, len } => {
                self.need_file(path, steps) && self.need_bytes(path, offset.saturating_add(*len), steps)
            }
            Step::Write { path, offset, .. } => self.need_file(path, steps) && self.need_bytes(path, *offset, steps),
            Step::Allocate { reserve: Reserve::Punch | Reserve::Zero, path, .. } | Step::Truncate { path, .. } => {
                self.need_file(path, steps) && self.need_bytes(path, 1, steps)
            }
            Step::Allocate { path, .. } | Step::Defrag { path, .. } => self.need_file(path, steps),
            Step::Link { original, path } => {
                self.need_file(original, steps)
                    && self.need_folder(parent(path), steps)
                    && !self.has(path)
                    && self.is_in_one_subvolume(original, path)
            }
            Step::Remove { path } => self.need_file(path, steps),
            Step::RemoveDir { path } => {
                self.need_folder(path, steps) && self.children(path).next().is_none() && !self.subvolumes.contains(path)
            }
            Step::Rename { from, to } => self.prepare_rename(from, to, steps),
            Step::SetXattr { path, .. } => self.need_any(path, steps),
            Step::RemoveXattr { path, name } => {
                if !self.need_any(path, steps) {
                    return false;
                }
                if !self.with_xattr.contains(path) {
                    let (path, name, value) = (path.clone(), name.clone(), "value1".to_owned());
                    self.add(Step::SetXattr { path, name, value }, steps);
                }
                true
            }
            Step::Fsync { path } | Step::Fdatasync { path } => self.can_be_synced(path),
            Step::Sync | Step::Trim | Step::Resize { .. } | Step::Order { .. } | Step::Release => true,
            other => self.prepare_more(other, steps),
        }
    }

    fn prepare_more(&mut self, step: &Step, steps: &mut Vec<Step>) -> bool {
        match step {
            Step::Chmod { path, .. }
            | Step::Chown { path, .. }
            | Step::Utimes { path, .. }
            | Step::Chattr { path, .. } => self.need_any(path, steps),
            Step::Hold { path } => self.need_file(path, steps),
            Step::Clone { source, source_offset, path, len, .. } => {
                let end = source_offset.saturating_add(*len);
                self.need_file(source, steps)
                    && self.need_file(path, steps)
                    && self.need_bytes(source, end, steps)
                    && self.number(source) != self.number(path)
            }
            Step::Unnamed { path, .. } => self.need_folder(parent(path), steps) && !self.has(path),
            Step::Exchange { from, to } => {
                let are_there = self.need_any(from, steps) && self.need_any(to, steps);
                let is_below = |one: &str, other: &str| one == other || is_within(one, other);
                let has_subvolumes = [from, to].into_iter().any(|path| self.has_subvolumes(path));
                are_there
                    && !is_below(from, to)
                    && !is_below(to, from)
                    && !has_subvolumes
                    && self.number(from) != self.number(to)
                    && self.is_in_one_subvolume(from, to)
            }
            Step::Subvolume { path } => self.need_folder(parent(path), steps) && !self.has(path),
            Step::Snapshot { source, path } => {
                let is_source = self.need_folder(source, steps) && self.subvolumes.contains(source);
                let has_inner = self.children(source).any(|child| self.subvolumes.contains(child));
                is_source
                    && !has_inner
                    && !is_within(path, source)
                    && self.need_folder(parent(path), steps)
                    && !self.has(path)
            }
            Step::DeleteSubvolume { path } => {
                let has_inner = self.children(path).any(|child| self.subvolumes.contains(child));
                self.subvolumes.contains(path) && !has_inner
            }
            _ => false,
        }
    }

    /// The subvolume that has a name: that of its directory.
    fn subvolume_of(&self, path: &str) -> Option<&str> {
        let mut folder = parent(path);
        while !folder.is_empty() && !self.subvolumes.contains(folder) {
            folder = parent(folder);
        }
        self.subvolumes.get(folder).map(String::as_str)
    }

    fn is_in_one_subvolume(&self, one: &str, other: &str) -> bool {
        self.subvolume_of(one) == self.subvolume_of(other)
    }

    fn has_subvolumes(&self, path: &str) -> bool {
        self.subvolumes.iter().any(|root| root == path || is_within(root, path))
    }

    fn number(&self, path: &str) -> Option<usize> {
        match self.names.get(path)? {
            Kind::File { number, .. } => Some(*number),
            _ => None,
        }
    }

    fn prepare_rename(&mut self, from: &str, to: &str, steps: &mut Vec<Step>) -> bool {
        if is_within(to, from) || !self.need_any(from, steps) || !self.need_folder(parent(to), steps) {
            return false;
        }
        if !self.is_in_one_subvolume(from, to) || self.subvolumes.contains(to) {
            return false;
        }
        match (self.is_dir(from), self.names.get(to)) {
            (_, None) => true,
            (true, Some(kind)) => *kind == Kind::Directory && self.children(to).next().is_none(),
            (false, Some(kind)) => *kind != Kind::Directory,
        }
    }

    /// A name in capitals is a directory's.
    fn need_any(&mut self, path: &str, steps: &mut Vec<Step>) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        if self.has(path) {
            return self.can_be_synced(path);
        }
        if name.starts_with(char::is_uppercase) { self.need_folder(path, steps) } else { self.need_file(path, steps) }
    }

    fn need_folder(&mut self, path: &str, steps: &mut Vec<Step>) -> bool {
        if !self.has(path) {
            if !self.need_folder(parent(path), steps) {
                return false;
            }
            let path = path.to_owned();
            let is_subvolume = path.starts_with(SUBVOLUME_INITIAL) && parent(&path).is_empty();
            self.add(if is_subvolume { Step::Subvolume { path } } else { Step::CreateDir { path } }, steps);
        }
        self.is_dir(path)
    }

    fn need_file(&mut self, path: &str, steps: &mut Vec<Step>) -> bool {
        if !self.has(path) {
            if !self.need_folder(parent(path), steps) {
                return false;
            }
            self.add(Step::Create { path: path.to_owned() }, steps);
        }
        self.is_file(path)
    }

    fn need_bytes(&mut self, path: &str, len: u64, steps: &mut Vec<Step>) -> bool {
        if self.len(path) < len {
            let (path, len) = (path.to_owned(), len.max(FILLED_BYTES));
            self.add(Step::Write { how: WriteHow::Buffered, path, offset: 0, len }, steps);
        }
        true
    }

    fn add(&mut self, step: Step, steps: &mut Vec<Step>) {
        self.take(&step);
        steps.push(step);
    }

    /// Records the effect of a possible step.
    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Create { path } if !self.has(path) => {
                self.files += 1;
                self.names.insert(path.clone(), Kind::File { len: 0, number: self.files });
            }
            Step::CreateDir { path } => drop(self.names.insert(path.clone(), Kind::Directory)),
            Step::Symlink { path, .. } => drop(self.names.insert(path.clone(), Kind::Symlink)),
            Step::Write { path, offset, len, .. }
            | Step::Allocate { reserve: Reserve::Grow | Reserve::Zero, path, offset, len } => {
                self.set_len(path, offset.saturating_add(*len).max(self.len(path)));
            }
            Step::Truncate { path, len } => self.set_len(path, *len),
            Step::Link { original, path } => {
                if let Some(kind) = self.names.get(original).cloned() {
                    self.names.insert(path.clone(), kind);
                }
            }
            Step::Remove { path } | Step::RemoveDir { path } => self.forget(path),
            Step::Rename { from, to } => self.rename(from, to),
            Step::SetXattr { path, .. } => drop(self.with_xattr.insert(path.clone())),
            Step::RemoveXattr { path, .. } => drop(self.with_xattr.remove(path)),
            other => self.take_more(other),
        }
    }

    fn take_more(&mut self, step: &Step) {
        match step {
            Step::Clone { path, offset, len, .. } => {
                self.set_len(path, offset.saturating_add(*len).max(self.len(path)));
            }
            Step::Unnamed { path, len } => {
                self.files += 1;
                self.names.insert(path.clone(), Kind::File { len: *len, number: self.files });
            }
            Step::Exchange { from, to } => {
                // By a name that no workload has.
                let between = "\0";
                for (from, to) in [(from.as_str(), between), (to, from), (between, to)] {
                    self.rename(from, to);
                }
            }
            Step::Subvolume { path } => {
                self.names.insert(path.clone(), Kind::Directory);
                self.subvolumes.insert(path.clone());
            }
            Step::Snapshot { source, path } => self.copy(source, path),
            Step::DeleteSubvolume { path } => {
                let below: Vec<String> = self.children(path).cloned().collect();
                below.iter().chain([path]).for_each(|path| self.forget(path));
            }
            _ => {}
        }
    }

    /// A snapshot: its files have numbers of their own.
    fn copy(&mut self, source: &str, path: &str) {
        let first = self.files;
        let old: Vec<String> = self.children(source).cloned().collect();
        for name in old {
            let new = format!("{path}{}", name.strip_prefix(source).unwrap_or_default());
            if self.with_xattr.contains(&name) {
                self.with_xattr.insert(new.clone());
            }
            let kind = match self.names.get(&name) {
                Some(Kind::File { len, number }) => Kind::File { len: *len, number: first + number },
                Some(kind) => kind.clone(),
                None => continue,
            };
            self.names.insert(new, kind);
        }
        self.files += first;
        if self.with_xattr.contains(source) {
            self.with_xattr.insert(path.to_owned());
        }
        self.names.insert(path.to_owned(), Kind::Directory);
        self.subvolumes.insert(path.to_owned());
    }

    fn forget(&mut self, path: &str) {
        self.names.remove(path);
        self.with_xattr.remove(path);
        self.subvolumes.remove(path);
    }

    fn set_len(&mut self, path: &str, new: u64) {
        let Some(Kind::File { number: own, .. }) = self.names.get(path).cloned() else { return };
        for kind in self.names.values_mut() {
            if let Kind::File { len, number } = kind
                && *number == own
            {
                *len = new;
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        if self.is_file(from) && self.names.get(from) == self.names.get(to) {
            // Two names of one file: a rename does nothing then.
            return;
        }
        let below: Vec<String> = self.children(from).cloned().collect();
        for old in std::iter::once(from.to_owned()).chain(below) {
            let new = format!("{to}{}", old.strip_prefix(from).unwrap_or_default());
            let had_xattr = self.with_xattr.contains(&old);
            let was_subvolume = self.subvolumes.contains(&old);
            let kind = self.names.get(&old).cloned();
            self.forget(&old);
            self.forget(&new);
            if let Some(kind) = kind {
                self.names.insert(new.clone(), kind);
            }
            if was_subvolume {
                self.subvolumes.insert(new.clone());
            }
            if had_xattr {
                self.with_xattr.insert(new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::language::parse;
    use super::*;

    fn completed(text: &str) -> String {
        let mut sketch = Sketch::default();
        let steps = parse(text.as_bytes()).unwrap();
        let all = steps.iter().flat_map(|(_, step)| sketch.complete(step));
        all.map(|step| step.to_string()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_is_missing_is_made_first() {
        assert_eq!(completed("fsync foo"), "");
        assert_eq!(
            completed("rename A/foo B/bar\nfsync B/bar"),
            "mkdir A, creat A/foo, mkdir B, rename A/foo B/bar, fsync B/bar"
        );
        assert_eq!(
            completed("rename A B\nrmdir B\nunlink B/foo"),
            "mkdir A, rename A B, rmdir B, mkdir B, creat B/foo, unlink B/foo"
        );
        assert_eq!(
            completed("creat A/foo\nrename A B\nwrite B/foo 16384 4096"),
            "mkdir A, creat A/foo, rename A B, write B/foo 0 16384, write B/foo 16384 4096"
        );
        assert_eq!(
            completed("link foo bar\nrename foo bar\nunlink foo"),
            "creat foo, link foo bar, rename foo bar, unlink foo"
        );
        assert_eq!(
            completed("removexattr A user.xattr1"),
            "mkdir A, setxattr A user.xattr1 value1, removexattr A user.xattr1"
        );
    }
}
