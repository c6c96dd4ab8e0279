//! What a workload needs before each of its operations: files and directories that have to be there, bytes to be
//! overwritten, attributes to be removed.

use super::step::{Reserve, Step, WriteHow};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that are written to a file before it is overwritten, cut or punched.
pub(super) const FILLED_BYTES: u64 = 16 << 10;
/// The attribute of all workloads.
pub(super) const XATTR: &str = "user.xattr1";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    Symlink,
    /// Names of one file have the same number.
    File { len: u64, number: usize },
}

/// Names and kinds, as far as a workload's generator has to know them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sketch {
    names: BTreeMap<String, Kind>,
    with_xattr: BTreeSet<String>,
    files: usize,
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

    /// What has to be done before `step`, and then `step`; nothing, where it cannot be done at all.
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
            Step::Create { path } => {
                self.need_folder(parent(path), steps) && (!self.has(path) || self.is_file(path))
            }
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
            Step::Allocate { path, .. } => self.need_file(path, steps),
            Step::Link { original, path } => {
                self.need_file(original, steps) && self.need_folder(parent(path), steps) && !self.has(path)
            }
            Step::Remove { path } => self.need_file(path, steps),
            Step::RemoveDir { path } => self.need_folder(path, steps) && self.children(path).next().is_none(),
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
            Step::Sync => true,
        }
    }

    fn prepare_rename(&mut self, from: &str, to: &str, steps: &mut Vec<Step>) -> bool {
        let is_within = to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'));
        if is_within || !self.need_any(from, steps) || !self.need_folder(parent(to), steps) {
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
            self.add(Step::CreateDir { path: path.to_owned() }, steps);
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

    /// Notes what a step that is possible does.
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
            _ => {}
        }
    }

    fn forget(&mut self, path: &str) {
        self.names.remove(path);
        self.with_xattr.remove(path);
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
            let kind = self.names.get(&old).cloned();
            self.forget(&old);
            self.forget(&new);
            if let Some(kind) = kind {
                self.names.insert(new.clone(), kind);
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
